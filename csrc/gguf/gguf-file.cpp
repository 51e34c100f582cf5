#include "gguf/gguf-file.h"

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/keys.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace pds {

namespace {

// The bytes of a number, as a file holds them.
template <typename number_t> std::string bytes_of(number_t number) {
    return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
}

} // namespace

std::shared_ptr<gguf_file> gguf_file::open(const std::string & path) {
    return std::shared_ptr<gguf_file>(new gguf_file(gguf_open_set(path)));
}

gguf_file::gguf_file(gguf_set && opened) : set(std::move(opened)) {
    index_values();
    index_tensors();
}

void gguf_file::index_values() {
    for (const gguf_value & value : values()) {
        value_index.emplace(value.key, value_index.size());
    }
}

void gguf_file::index_tensors() {
    for (gguf_contents & contents : set.contents) {
        all_tensors.insert(all_tensors.end(), std::make_move_iterator(contents.tensors.begin()),
                           std::make_move_iterator(contents.tensors.end()));
        contents.tensors.clear();
    }
    for (const gguf_tensor & tensor : all_tensors) {
        const bool is_new = tensor_index.emplace(tensor.name, tensor_index.size()).second;
        PDS_REQUIRE(is_new, PDS_ERR_FORMAT, "%s: tensor %s is there twice. %s",
                    files()[static_cast<size_t>(tensor.file_index)].path().c_str(), quoted(tensor.name).c_str(),
                    files().size() > 1 ? "The parts do not belong to one model: download them again"
                                       : "The file is damaged");
    }
}

const gguf_value * gguf_file::find_value(std::string_view key) const {
    const auto found = value_index.find(key);
    return found == value_index.end() ? nullptr : &values()[found->second];
}

const gguf_tensor * gguf_file::find(std::string_view name) const {
    const auto found = tensor_index.find(name);
    return found == tensor_index.end() ? nullptr : &all_tensors[found->second];
}

const gguf_value & gguf_file::require_value(std::string_view key, const char * wanted) const {
    const gguf_value * value = find_value(key);
    PDS_REQUIRE(value != nullptr, PDS_ERR_FORMAT,
                "%s: key %s is missing, wanted %s. The file is not a complete model: convert it again", path().c_str(),
                quoted(key).c_str(), wanted);
    return *value;
}

int64_t gguf_file::to_int(const gguf_value & value) const {
    return gguf_require_int(path(), value);
}

double gguf_file::to_float(const gguf_value & value) const {
    if (value.type != gguf_type::f32 && value.type != gguf_type::f64) {
        gguf_throw_wrong_value(path(), value, "a float");
    }
    return gguf_float_item(value, 0);
}

bool gguf_file::to_bool(const gguf_value & value) const {
    if (value.type != gguf_type::bool_) {
        gguf_throw_wrong_value(path(), value, "a bool");
    }
    return gguf_item<uint8_t>(value, 0) != 0;
}

std::string_view gguf_file::to_string(const gguf_value & value) const {
    if (value.type != gguf_type::string) {
        gguf_throw_wrong_value(path(), value, "a string");
    }
    std::string_view text;
    gguf_for_each_string(value, [&](std::string_view item) { text = item; });
    return text;
}

std::string_view gguf_file::architecture() const {
    const std::string_view name = get_string(keys::architecture);
    PDS_REQUIRE(!name.empty(), PDS_ERR_FORMAT,
                "%s: general.architecture is empty, wanted the name of an architecture. Convert the model again",
                path().c_str());
    return name;
}

int64_t gguf_file::get_int(std::string_view key) const {
    return to_int(require_value(key, "an integer"));
}

int64_t gguf_file::get_int(std::string_view key, int64_t fallback) const {
    const gguf_value * value = find_value(key);
    return value == nullptr ? fallback : to_int(*value);
}

double gguf_file::get_float(std::string_view key) const {
    return to_float(require_value(key, "a float"));
}

double gguf_file::get_float(std::string_view key, double fallback) const {
    const gguf_value * value = find_value(key);
    return value == nullptr ? fallback : to_float(*value);
}

bool gguf_file::get_bool(std::string_view key) const {
    return to_bool(require_value(key, "a bool"));
}

bool gguf_file::get_bool(std::string_view key, bool fallback) const {
    const gguf_value * value = find_value(key);
    return value == nullptr ? fallback : to_bool(*value);
}

std::string_view gguf_file::get_string(std::string_view key) const {
    return to_string(require_value(key, "a string"));
}

std::string_view gguf_file::get_string(std::string_view key, std::string_view fallback) const {
    const gguf_value * value = find_value(key);
    return value == nullptr ? fallback : to_string(*value);
}

std::vector<int64_t> gguf_file::get_ints(std::string_view key) const {
    const gguf_value & value = require_value(key, "integers");
    if (!gguf_type_is_int(value.item_type)) {
        gguf_throw_wrong_value(path(), value, "integers");
    }
    std::vector<int64_t> items;
    items.reserve(static_cast<size_t>(value.n));
    for (int64_t i = 0; i < value.n; i++) {
        const std::optional<int64_t> item = gguf_int_item(value, i);
        if (!item) {
            gguf_throw_wrong_value(path(), value, "integers of at most 63 bits");
        }
        items.push_back(*item);
    }
    return items;
}

std::vector<double> gguf_file::get_floats(std::string_view key) const {
    const gguf_value & value = require_value(key, "floats");
    if (value.item_type != gguf_type::f32 && value.item_type != gguf_type::f64) {
        gguf_throw_wrong_value(path(), value, "floats");
    }
    std::vector<double> items;
    items.reserve(static_cast<size_t>(value.n));
    for (int64_t i = 0; i < value.n; i++) {
        items.push_back(gguf_float_item(value, i));
    }
    return items;
}

std::vector<bool> gguf_file::get_bools(std::string_view key) const {
    const gguf_value & value = require_value(key, "bools");
    if (value.item_type != gguf_type::bool_) {
        gguf_throw_wrong_value(path(), value, "bools");
    }
    std::vector<bool> items;
    items.reserve(static_cast<size_t>(value.n));
    for (int64_t i = 0; i < value.n; i++) {
        items.push_back(gguf_item<uint8_t>(value, i) != 0);
    }
    return items;
}

std::vector<std::string_view> gguf_file::get_strings(std::string_view key) const {
    const gguf_value & value = require_value(key, "strings");
    if (value.item_type != gguf_type::string) {
        gguf_throw_wrong_value(path(), value, "strings");
    }
    std::vector<std::string_view> items;
    items.reserve(static_cast<size_t>(value.n));
    gguf_for_each_string(value, [&](std::string_view item) { items.push_back(item); });
    return items;
}

int64_t gguf_file::array_size(std::string_view key) const {
    const gguf_value & value = require_value(key, "an array");
    if (value.type != gguf_type::array) {
        gguf_throw_wrong_value(path(), value, "an array");
    }
    return value.n;
}

void gguf_file::override_int(std::string_view key, int64_t value) {
    override_value(key, gguf_type::i64, bytes_of(value));
}

void gguf_file::override_float(std::string_view key, double value) {
    override_value(key, gguf_type::f64, bytes_of(value));
}

void gguf_file::override_bool(std::string_view key, bool value) {
    override_value(key, gguf_type::bool_, bytes_of(static_cast<uint8_t>(value)));
}

void gguf_file::override_string(std::string_view key, std::string_view value) {
    override_value(key, gguf_type::string, bytes_of(uint64_t{ value.size() }) + std::string(value));
}

void gguf_file::override_value(std::string_view key, gguf_type type, std::string_view item) {
    PDS_REQUIRE(!key.empty() && key.size() <= gguf_max_key_size && utf8_valid(key), PDS_ERR_ARGUMENT,
                "the key %s cannot be overridden: wanted 1 to %zu bytes of UTF-8", quoted(key).c_str(),
                gguf_max_key_size);
    owned.push_back(std::make_unique<const owned_value>(owned_value{ std::string(key), std::string(item) }));
    const owned_value & bytes = *owned.back();

    gguf_value value;
    value.key       = bytes.key;
    value.type      = type;
    value.item_type = type;
    value.data      = reinterpret_cast<const uint8_t *>(bytes.data.data());
    value.n_bytes   = static_cast<int64_t>(bytes.data.size() - (type == gguf_type::string ? sizeof(uint64_t) : 0));

    std::vector<gguf_value> & all_values = set.contents.front().values;
    const auto [place, is_new]           = value_index.emplace(value.key, all_values.size());
    if (is_new) {
        all_values.push_back(value);
    } else {
        all_values[place->second] = value;
    }
}

} // namespace pds
