#include "gguf/byte-reader.h"

#include "base/error.h"

#include <cinttypes>

namespace pds {

void byte_reader::begin_item(const char * kind, uint64_t index) {
    item_kind  = kind;
    item_index = index;
    item_name  = {};
    in_list    = true;
}

std::string_view byte_reader::read_string(const char * what) {
    const uint64_t  size = read<uint64_t>(what);
    const uint8_t * text = skip(size, what);
    return { reinterpret_cast<const char *>(text), static_cast<size_t>(size) };
}

const uint8_t * byte_reader::skip(uint64_t n_bytes, const char * what) {
    if (n_bytes > remaining()) {
        fail(PDS_ERR_FORMAT, format("%s takes %" PRIu64 " bytes at offset %" PRIu64 ", but the file has only %" PRIu64
                                    " more. It is damaged or cut short: download it again",
                                    what, n_bytes, at, remaining()));
    }
    const uint8_t * start = here();
    at += n_bytes;
    return start;
}

void byte_reader::fail(int32_t code, const std::string & text) const {
    std::string item = item_kind;
    if (in_list) {
        item += " " + std::to_string(item_index);
    }
    if (!item_name.empty()) {
        item += " (" + quoted(item_name) + ")";
    }
    throw error(code, file.path() + ": " + item + ": " + text);
}

} // namespace pds
