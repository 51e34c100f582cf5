#include "gguf/gguf-types.h"

#include "base/error.h"

#include <cinttypes>
#include <limits>

namespace pds {

namespace {

struct type_traits {
    const char * name;
    int64_t      size;
    bool         is_int;
};

constexpr type_traits traits[] = {
    { "u8", 1, true },  { "i8", 1, true },   { "u16", 2, true },   { "i16", 2, true },     { "u32", 4, true },
    { "i32", 4, true }, { "f32", 4, false }, { "bool", 1, false }, { "string", 0, false }, { "array", 0, false },
    { "u64", 8, true }, { "i64", 8, true },  { "f64", 8, false },
};

const type_traits & traits_of(gguf_type type) {
    return traits[static_cast<size_t>(type)];
}

std::string scalar_text(const gguf_value & value) {
    if (value.type == gguf_type::string) {
        std::string text;
        gguf_for_each_string(value, [&](std::string_view item) { text = quoted(item); });
        return text;
    }
    if (value.type == gguf_type::bool_) {
        return gguf_item<uint8_t>(value, 0) != 0 ? "true" : "false";
    }
    if (!gguf_type_is_int(value.type)) {
        return format("%g", gguf_float_item(value, 0));
    }
    const std::optional<int64_t> number = gguf_int_item(value, 0);
    return number ? format("%" PRId64, *number) : format("%" PRIu64, gguf_item<uint64_t>(value, 0));
}

} // namespace

bool gguf_type_known(uint32_t number) {
    return number < std::size(traits);
}

const char * gguf_type_name(gguf_type type) {
    return traits_of(type).name;
}

int64_t gguf_type_size(gguf_type type) {
    return traits_of(type).size;
}

bool gguf_type_is_int(gguf_type type) {
    return traits_of(type).is_int;
}

std::string gguf_describe(const gguf_value & value) {
    if (value.type == gguf_type::array) {
        return format("an array of %" PRId64 " %s", value.n, gguf_type_name(value.item_type));
    }
    return std::string(gguf_type_name(value.type)) + " " + scalar_text(value);
}

std::string quoted(std::string_view text) {
    constexpr size_t max_shown = 80;
    std::string      out       = "'";
    for (const char c : text.substr(0, max_shown)) {
        if (c >= 0x20 && c < 0x7F) {
            out += c;
        } else {
            out += format("\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
        }
    }
    out += text.size() > max_shown ? "...'" : "'";
    return out;
}

std::string shape_text(const int64_t * ne, int n_dims) {
    std::string out = "[";
    for (int i = 0; i < n_dims; i++) {
        out += (i > 0 ? ", " : "") + std::to_string(ne[i]);
    }
    return out + "]";
}

std::optional<int64_t> gguf_int_item(const gguf_value & value, int64_t i) {
    switch (value.item_type) {
    case gguf_type::u8:
        return gguf_item<uint8_t>(value, i);
    case gguf_type::i8:
        return gguf_item<int8_t>(value, i);
    case gguf_type::u16:
        return gguf_item<uint16_t>(value, i);
    case gguf_type::i16:
        return gguf_item<int16_t>(value, i);
    case gguf_type::u32:
        return gguf_item<uint32_t>(value, i);
    case gguf_type::i32:
        return gguf_item<int32_t>(value, i);
    case gguf_type::i64:
        return gguf_item<int64_t>(value, i);
    default:
        break;
    }
    const uint64_t number = gguf_item<uint64_t>(value, i);
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return std::nullopt;
    }
    return static_cast<int64_t>(number);
}

double gguf_float_item(const gguf_value & value, int64_t i) {
    return value.item_type == gguf_type::f32 ? static_cast<double>(gguf_item<float>(value, i))
                                             : gguf_item<double>(value, i);
}

void gguf_throw_wrong_value(const std::string & path, const gguf_value & value, const char * wanted) {
    throw error(PDS_ERR_FORMAT, path + ": key " + quoted(value.key) + " is " + gguf_describe(value) + ", wanted " +
                                    wanted + ". Convert the model again, or override this value");
}

int64_t gguf_require_int(const std::string & path, const gguf_value & value) {
    if (!gguf_type_is_int(value.type)) {
        gguf_throw_wrong_value(path, value, "an integer");
    }
    const std::optional<int64_t> number = gguf_int_item(value, 0);
    if (!number) {
        gguf_throw_wrong_value(path, value, "an integer of at most 63 bits");
    }
    return *number;
}

} // namespace pds
