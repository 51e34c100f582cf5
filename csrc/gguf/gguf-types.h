// What a GGUF file holds: metadata values and tensors, as views into the mapped file.
#pragma once

#include "ggml.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace pds {

// Values are read from the file's bytes as they stand.
static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

enum class gguf_type : int32_t { u8 = 0, i8, u16, i16, u32, i32, f32, bool_, string, array, u64, i64, f64 };

struct gguf_value {
    std::string_view key;
    gguf_type        type      = gguf_type::u8;
    gguf_type        item_type = gguf_type::u8; // of an array's items; otherwise the same as type
    int64_t          n         = 1;             // items; 1 for scalars
    const uint8_t *  data      = nullptr;       // unaligned items; a string is its length (u64) and then its bytes
    int64_t          n_bytes   = 0;             // of all items; for strings of their text alone
};

struct gguf_tensor {
    std::string     name;
    ggml_type       type       = GGML_TYPE_F32;
    int             n_dims     = 0;
    int64_t         ne[4]      = { 1, 1, 1, 1 };
    int64_t         n_bytes    = 0;
    int             file_index = 0;
    uint64_t        offset     = 0; // from the start of that file
    const uint8_t * data       = nullptr;
};

bool         gguf_type_known(uint32_t number);
const char * gguf_type_name(gguf_type type);
// Bytes of one item; 0 for strings and arrays.
int64_t gguf_type_size(gguf_type type);
bool    gguf_type_is_int(gguf_type type);

// What a value is, for messages: "u32 5", "string 'gpt2'", "an array of 3 i32".
std::string gguf_describe(const gguf_value & value);
// Text from a file in quotes, for messages: cut if long, with everything but printable ASCII escaped.
std::string quoted(std::string_view text);
// "[576, 49152]"
std::string shape_text(const int64_t * ne, int n_dims);

template <typename item_t> item_t gguf_item(const gguf_value & value, int64_t i) {
    item_t item;
    std::memcpy(&item, value.data + static_cast<size_t>(i) * sizeof(item_t), sizeof(item_t));
    return item;
}

// The value's item_type must be an integer type. Nothing if the item does not fit (u64 only).
std::optional<int64_t> gguf_int_item(const gguf_value & value, int64_t i);
// The value's item_type must be f32 or f64.
double gguf_float_item(const gguf_value & value, int64_t i);

// Throws PDS_ERR_FORMAT: what the value is, and what was wanted instead.
[[noreturn]] void gguf_throw_wrong_value(const std::string & path, const gguf_value & value, const char * wanted);
// The value as an integer; throws as above if it is none or does not fit.
int64_t gguf_require_int(const std::string & path, const gguf_value & value);

// Calls fn(std::string_view) for each item of a string or of an array of strings.
template <typename fn_t> void gguf_for_each_string(const gguf_value & value, fn_t && fn) {
    const uint8_t * at = value.data;
    for (int64_t i = 0; i < value.n; i++) {
        uint64_t size;
        std::memcpy(&size, at, sizeof(size));
        at += sizeof(size);
        fn(std::string_view(reinterpret_cast<const char *>(at), static_cast<size_t>(size)));
        at += size;
    }
}

} // namespace pds
