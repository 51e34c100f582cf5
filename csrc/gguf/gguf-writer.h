// Writes a GGUF file (version 3) under a temporary name beside its place; only a whole file gets the real name.
#pragma once

#include "gguf/gguf-types.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace pds {

struct gguf_new_tensor {
    std::string_view name;
    ggml_type        type    = GGML_TYPE_F32;
    int              n_dims  = 0;
    int64_t          ne[4]   = { 1, 1, 1, 1 };
    int64_t          n_bytes = 0;
};

// Every error throws PDS_ERR_FILE. Without finish() the destructor removes what was written.
class gguf_writer {
  public:
    // Throws if path exists (unless replace), is not a regular file, or if its folder cannot be written.
    gguf_writer(const std::string & path, bool replace);
    ~gguf_writer();
    gguf_writer(const gguf_writer &)             = delete;
    gguf_writer & operator=(const gguf_writer &) = delete;

    // Once, before any data. alignment: bytes, a power of two. Throws if the disk has no room for the whole file.
    void write_header(const std::vector<gguf_value> & values, const std::vector<gguf_new_tensor> & tensors,
                      uint64_t alignment);
    // Data of the tensors in the order of the header, in pieces of any size.
    void write(const void * data, size_t n_bytes);
    // After the data of each tensor: fills up to the alignment.
    void pad();
    // Waits for the disk and gives the file its name.
    void finish();

    // Part of the file that is written, in [0, 1]. After write_header.
    double fraction() const { return static_cast<double>(n_written_) / static_cast<double>(n_total_); }

  private:
    void check_place() const;
    void open_temporary();
    void check_space() const;
    void close_file();

    [[noreturn]] void fail(const char * what, int code) const;

    std::string path_;
    std::string temporary_; // empty when there is nothing to remove
    bool        replace_;
    std::FILE * file_      = nullptr;
    uint64_t    alignment_ = 1;
    uint64_t    n_written_ = 0; // bytes
    uint64_t    n_total_   = 0; // bytes of the whole file
};

} // namespace pds
