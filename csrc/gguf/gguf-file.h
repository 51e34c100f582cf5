// A GGUF model file, or the files of a split one: checked metadata and tensor directory over mapped memory.
#pragma once

#include "gguf/gguf-split.h"
#include "gguf/gguf-types.h"
#include "gguf/mapped-file.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pds {

// Getters throw PDS_ERR_FORMAT, naming file and key, if a key is missing (unless a fallback is given) or of another
// kind than wanted. Any integer type serves as an integer if the number fits; floats, bools, strings and arrays are not
// mixed. Views and pointers stay valid as long as the object. Overrides must not run beside other calls.
class gguf_file {
  public:
    // path: any file of a split set opens the whole set. Throws PDS_ERR_FILE, PDS_ERR_FORMAT or PDS_ERR_UNSUPPORTED.
    static std::shared_ptr<gguf_file> open(const std::string & path);

    gguf_file(const gguf_file &)             = delete;
    gguf_file & operator=(const gguf_file &) = delete;

    const std::string &              path() const { return files().front().path(); }
    const std::vector<mapped_file> & files() const { return set.files; }
    uint32_t                         version() const { return set.contents.front().version; }
    uint64_t                         alignment() const { return set.contents.front().alignment; } // bytes

    // Of the first file, with overrides.
    const std::vector<gguf_value> & values() const { return set.contents.front().values; }
    // nullptr if there is no such key.
    const gguf_value * find_value(std::string_view key) const;

    bool             has(std::string_view key) const { return find_value(key) != nullptr; }
    std::string_view architecture() const; // not empty

    int64_t          get_int(std::string_view key) const;
    int64_t          get_int(std::string_view key, int64_t fallback) const;
    double           get_float(std::string_view key) const;
    double           get_float(std::string_view key, double fallback) const;
    bool             get_bool(std::string_view key) const;
    bool             get_bool(std::string_view key, bool fallback) const;
    std::string_view get_string(std::string_view key) const;
    std::string_view get_string(std::string_view key, std::string_view fallback) const;

    // Of an array; a scalar counts as an array of one.
    std::vector<int64_t>          get_ints(std::string_view key) const;
    std::vector<double>           get_floats(std::string_view key) const;
    std::vector<bool>             get_bools(std::string_view key) const;
    std::vector<std::string_view> get_strings(std::string_view key) const;
    // Items of an array of any type.
    int64_t array_size(std::string_view key) const;

    // Replaces or adds a value; the file is not touched. Throws PDS_ERR_ARGUMENT for a key that no file could hold.
    void override_int(std::string_view key, int64_t value);
    void override_float(std::string_view key, double value);
    void override_bool(std::string_view key, bool value);
    void override_string(std::string_view key, std::string_view value);

    // Of all files.
    const std::vector<gguf_tensor> & tensors() const { return all_tensors; }
    // nullptr if there is no such tensor.
    const gguf_tensor * find(std::string_view name) const;

  private:
    explicit gguf_file(gguf_set && opened);

    void index_values();
    void index_tensors();
    void override_value(std::string_view key, gguf_type type, std::string_view item);

    const gguf_value & require_value(std::string_view key, const char * wanted) const;
    int64_t            to_int(const gguf_value & value) const;
    double             to_float(const gguf_value & value) const;
    bool               to_bool(const gguf_value & value) const;
    std::string_view   to_string(const gguf_value & value) const;

    // The bytes of an overriding value, laid out as in a file.
    struct owned_value {
        std::string key;
        std::string data;
    };

    gguf_set                                        set;
    std::vector<gguf_tensor>                        all_tensors;
    std::vector<std::unique_ptr<const owned_value>> owned; // replaced ones stay: views of them may be in use
    std::unordered_map<std::string_view, size_t>    value_index;
    std::unordered_map<std::string_view, size_t>    tensor_index;
};

} // namespace pds
