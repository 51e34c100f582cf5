// Good files read the same as with ggml's own reader. PDS_TEST_GGUF may name a further file, of a single part.
#include "check-error.h"
#include "gguf-bytes.h"
#include "gguf.h"
#include "gguf/gguf-file.h"

#include <cstdlib>

using pds::gguf_file;

namespace {

bool same_strings(const gguf_context * theirs, int64_t id, const pds::gguf_value & ours) {
    const bool is_array = ours.type == pds::gguf_type::array;
    size_t     i        = 0;
    bool       same     = true;
    pds::gguf_for_each_string(ours, [&](std::string_view text) {
        same = same && text == (is_array ? gguf_get_arr_str(theirs, id, i) : gguf_get_val_str(theirs, id));
        i++;
    });
    return same && i == (is_array ? gguf_get_arr_n(theirs, id) : 1);
}

bool same_value(const gguf_context * theirs, int64_t id, const pds::gguf_value & ours) {
    const bool is_array = ours.type == pds::gguf_type::array;
    if (ours.key != gguf_get_key(theirs, id) || static_cast<int>(ours.type) != gguf_get_kv_type(theirs, id)) {
        return false;
    }
    if (is_array && (static_cast<int>(ours.item_type) != gguf_get_arr_type(theirs, id) ||
                     ours.n != static_cast<int64_t>(gguf_get_arr_n(theirs, id)))) {
        return false;
    }
    if (ours.item_type == pds::gguf_type::string) {
        return same_strings(theirs, id, ours);
    }
    const void * data = is_array ? gguf_get_arr_data(theirs, id) : gguf_get_val_data(theirs, id);
    return std::memcmp(data, ours.data, static_cast<size_t>(ours.n_bytes)) == 0;
}

void check_same(const std::string & path) {
    ggml_context *         shapes = nullptr;
    const gguf_init_params params = { .no_alloc = true, .ctx = &shapes };
    gguf_context *         theirs = gguf_init_from_file(path.c_str(), params);
    CHECK(theirs != nullptr);
    if (theirs == nullptr) {
        return;
    }
    const auto ours = gguf_file::open(path);
    CHECK(ours->version() == gguf_get_version(theirs) && ours->alignment() == gguf_get_alignment(theirs));
    CHECK(static_cast<int64_t>(ours->values().size()) == gguf_get_n_kv(theirs));
    for (size_t i = 0; i < ours->values().size(); i++) {
        CHECK(same_value(theirs, static_cast<int64_t>(i), ours->values()[i]));
    }
    CHECK(static_cast<int64_t>(ours->tensors().size()) == gguf_get_n_tensors(theirs));
    for (size_t i = 0; i < ours->tensors().size(); i++) {
        const pds::gguf_tensor & tensor = ours->tensors()[i];
        const auto               id     = static_cast<int64_t>(i);
        const ggml_tensor *      shape  = ggml_get_tensor(shapes, tensor.name.c_str());
        CHECK(tensor.name == gguf_get_tensor_name(theirs, id) && tensor.type == gguf_get_tensor_type(theirs, id));
        CHECK(tensor.offset == gguf_get_data_offset(theirs) + gguf_get_tensor_offset(theirs, id));
        CHECK(static_cast<size_t>(tensor.n_bytes) == gguf_get_tensor_size(theirs, id));
        CHECK(shape != nullptr && std::equal(std::begin(tensor.ne), std::end(tensor.ne), shape->ne));
        CHECK(shape != nullptr && tensor.n_dims >= ggml_n_dims(shape));
    }
    ggml_free(shapes);
    gguf_free(theirs);
}

} // namespace

int main() {
    const pds_test::temp_dir folder;
    check_same(folder.write("good.gguf", pds_test::good_gguf()));
    check_same(folder.write("empty.gguf", pds_test::gguf_bytes().header(0, 0).bytes));
    if (const char * path = std::getenv("PDS_TEST_GGUF")) {
        check_same(path);
    }
    return pds_test::check_result();
}
