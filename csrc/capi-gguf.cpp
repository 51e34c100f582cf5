// C API: GGUF files.
#include "capi-guard.h"
#include "capi-handles.h"
#include "ggml.h"
#include "pydspark.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace {

// Throws PDS_ERR_ARGUMENT for an index outside of items.
template <typename item_t> const item_t & item_at(const std::vector<item_t> & items, int64_t index) {
    PDS_REQUIRE(index >= 0 && index < static_cast<int64_t>(items.size()), PDS_ERR_ARGUMENT,
                "the index is %" PRId64 ", wanted 0 to %" PRId64, index, static_cast<int64_t>(items.size()) - 1);
    return items[static_cast<size_t>(index)];
}

} // namespace

int32_t pds_gguf_open(const char * path, pds_gguf ** out, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(path, "path");
        pds::require_argument(out, "out");
        *out = new pds_gguf{ pds::gguf_file::open(path) };
    });
}

void pds_gguf_free(pds_gguf * gguf) {
    delete gguf;
}

int64_t pds_gguf_n_kv(const pds_gguf * gguf) {
    return gguf == nullptr ? 0 : static_cast<int64_t>(gguf->file->values().size());
}

int32_t pds_gguf_kv_get(const pds_gguf * gguf, int64_t index, pds_gguf_kv * out, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(out, "out");
        const pds::gguf_value & value = item_at(gguf->file->values(), index);
        out->key                      = value.key.data();
        out->key_size                 = static_cast<int64_t>(value.key.size());
        out->type                     = static_cast<int32_t>(value.type);
        out->item_type                = static_cast<int32_t>(value.item_type);
        out->n                        = value.n;
        out->data                     = value.data;
        out->n_bytes                  = value.n_bytes;
    });
}

int32_t pds_gguf_kv_strings(const pds_gguf * gguf, int64_t index, int64_t * offsets, char * bytes, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(offsets, "offsets");
        pds::require_argument(bytes, "bytes");
        const pds::gguf_value & value = item_at(gguf->file->values(), index);
        PDS_REQUIRE(value.item_type == pds::gguf_type::string, PDS_ERR_ARGUMENT, "the value %s is %s, wanted strings",
                    pds::quoted(value.key).c_str(), pds::gguf_describe(value).c_str());
        int64_t offset = 0;
        pds::gguf_for_each_string(value, [&](std::string_view text) {
            *offsets++ = offset;
            std::copy(text.begin(), text.end(), bytes + offset);
            offset += static_cast<int64_t>(text.size());
        });
        *offsets = offset;
    });
}

int64_t pds_gguf_n_tensors(const pds_gguf * gguf) {
    return gguf == nullptr ? 0 : static_cast<int64_t>(gguf->file->tensors().size());
}

int32_t pds_gguf_tensor_get(const pds_gguf * gguf, int64_t index, pds_gguf_tensor * out, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(out, "out");
        const pds::gguf_tensor & tensor = item_at(gguf->file->tensors(), index);
        out->name                       = tensor.name.c_str();
        out->type_name                  = ggml_type_name(tensor.type);
        out->type                       = static_cast<int32_t>(tensor.type);
        out->n_dims                     = tensor.n_dims;
        std::copy(std::begin(tensor.ne), std::end(tensor.ne), out->ne);
        out->n_bytes    = tensor.n_bytes;
        out->file_index = tensor.file_index;
    });
}

int32_t pds_gguf_n_files(const pds_gguf * gguf) {
    return gguf == nullptr ? 0 : static_cast<int32_t>(gguf->file->files().size());
}

const char * pds_gguf_file_path(const pds_gguf * gguf, int32_t file_index) {
    if (file_index < 0 || file_index >= pds_gguf_n_files(gguf)) {
        return nullptr;
    }
    return gguf->file->files()[static_cast<size_t>(file_index)].path().c_str();
}

int32_t pds_gguf_version(const pds_gguf * gguf) {
    return gguf == nullptr ? 0 : static_cast<int32_t>(gguf->file->version());
}

int32_t pds_gguf_override_int(pds_gguf * gguf, const char * key, int64_t value, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(key, "key");
        gguf->file->override_int(key, value);
    });
}

int32_t pds_gguf_override_float(pds_gguf * gguf, const char * key, double value, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(key, "key");
        gguf->file->override_float(key, value);
    });
}

int32_t pds_gguf_override_bool(pds_gguf * gguf, const char * key, int32_t value, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(key, "key");
        gguf->file->override_bool(key, value != 0);
    });
}

int32_t pds_gguf_override_string(pds_gguf * gguf, const char * key, const char * value, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(key, "key");
        pds::require_argument(value, "value");
        gguf->file->override_string(key, value);
    });
}
