// A whole file as read-only memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pds {

// Maps the file where the system can; on Windows the file is read into memory instead.
// The file must not shrink while it is mapped: a read past its new end kills the process.
class mapped_file {
  public:
    // Throws PDS_ERR_FILE if path is missing, unreadable or not a regular file. An empty file has size 0.
    explicit mapped_file(const std::string & path);
    ~mapped_file();

    mapped_file(mapped_file && other) noexcept;
    mapped_file & operator=(mapped_file &&) = delete;

    const std::string & path() const { return file_path; }
    const uint8_t *     data() const { return bytes; }
    uint64_t            size() const { return n_bytes; }

    // Keeps the file's pages in memory. False where the system does not allow it.
    bool lock() const;

  private:
    std::string     file_path;
    const uint8_t * bytes   = nullptr;
    uint64_t        n_bytes = 0;
#if defined(_WIN32)
    std::vector<uint8_t> buffer;
#endif
};

} // namespace pds
