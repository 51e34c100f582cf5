// Reads the header of one GGUF file front to back. Every read is checked against the bytes that remain.
#pragma once

#include "gguf/gguf-types.h"
#include "gguf/mapped-file.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace pds {

class byte_reader {
  public:
    explicit byte_reader(const mapped_file & source) : file(source) {}

    // What is being read from here on, for messages: "metadata key 3".
    void begin_item(const char * kind, uint64_t index);
    // Its name, once that has been read.
    void name_item(std::string_view name) { item_name = name; }

    uint64_t        position() const { return at; }
    uint64_t        remaining() const { return file.size() - at; }
    const uint8_t * here() const { return file.data() + at; }

    // what: the field's name, for messages.
    template <typename number_t> number_t read(const char * what) {
        number_t number;
        std::memcpy(&number, skip(sizeof(number_t), what), sizeof(number_t));
        return number;
    }
    // A length (u64) and that many bytes.
    std::string_view read_string(const char * what);
    // Returns where the skipped bytes start.
    const uint8_t * skip(uint64_t n_bytes, const char * what);

    // Throws an error that starts with the file and the item.
    [[noreturn]] void fail(int32_t code, const std::string & text) const;

  private:
    const mapped_file & file;
    uint64_t            at         = 0;
    const char *        item_kind  = "the header";
    uint64_t            item_index = 0;
    bool                in_list    = false;
    std::string_view    item_name;
};

} // namespace pds
