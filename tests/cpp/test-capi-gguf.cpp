// The C API of GGUF files, and how errors come out of it.
#include "capi-guard.h"
#include "check.h"
#include "gguf-bytes.h"
#include "pydspark.h"

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace std::string_view_literals;

std::string as_message(std::string_view text, size_t out_size) {
    std::string out(out_size, 'x');
    pds::copy_message(out.data(), out_size, text);
    return out.c_str();
}

void test_messages_are_cut_between_characters() {
    CHECK(as_message("abc", 8) == "abc");
    CHECK(as_message("abcdef", 4) == "abc");
    CHECK(as_message("ab\xC3\xA9", 5) == "ab\xC3\xA9");
    CHECK(as_message("ab\xC3\xA9", 4) == "ab");
    CHECK(as_message("\xF0\x9F\xA6\x99\xF0\x9F\xA6\x99", 8) == "\xF0\x9F\xA6\x99");
    CHECK(as_message("a\xFF\0\xE2\x82z"sv, 16) == "a????z");
    CHECK(as_message("abc", 1).empty());
}

void test_guard() {
    pds_error error = {};
    CHECK(pds::guard(&error, [] {}) == PDS_OK && error.code == PDS_OK && error.message[0] == '\0');
    CHECK(pds::guard(&error, [] { throw pds::error(PDS_ERR_CONTEXT_FULL, "full", 70, 64); }) == PDS_ERR_CONTEXT_FULL);
    CHECK(error.code == PDS_ERR_CONTEXT_FULL && error.message == "full"sv);
    CHECK(error.values[0] == 70 && error.values[1] == 64);
    CHECK(pds::guard(&error, [] { throw std::bad_alloc(); }) == PDS_ERR_MEMORY && error.values[0] == 0);
    CHECK(pds::guard(&error, [] { throw std::runtime_error("odd"); }) == PDS_ERR_INTERNAL && error.message == "odd"sv);
    CHECK(pds::guard(&error, [] { throw 5; }) == PDS_ERR_INTERNAL);
    CHECK(pds::guard(nullptr, [] { throw pds::error(PDS_ERR_FILE, "gone"); }) == PDS_ERR_FILE);
    CHECK(pds::guard(&error, [] { throw pds::error(PDS_ERR_FILE, std::string(9000, 'm')); }) == PDS_ERR_FILE);
    CHECK(std::string_view(error.message).size() == sizeof(error.message) - 1);
}

int64_t find_kv(const pds_gguf * gguf, std::string_view key, pds_gguf_kv & kv) {
    for (int64_t i = 0; i < pds_gguf_n_kv(gguf); i++) {
        if (pds_gguf_kv_get(gguf, i, &kv, nullptr) == PDS_OK &&
            std::string_view(kv.key, static_cast<size_t>(kv.key_size)) == key) {
            return i;
        }
    }
    return -1;
}

void test_reading(const pds_gguf * gguf, const std::string & path) {
    CHECK(pds_gguf_version(gguf) == 3 && pds_gguf_n_files(gguf) == 1 && pds_gguf_file_path(gguf, 0) == path);
    CHECK(pds_gguf_n_kv(gguf) == 17 && pds_gguf_n_tensors(gguf) == 3);

    pds_gguf_kv kv;
    CHECK(find_kv(gguf, "t.i32s", kv) >= 0 && kv.type == 9 && kv.item_type == 5 && kv.n == 3 && kv.n_bytes == 12);
    CHECK(find_kv(gguf, "t.u8", kv) >= 0 && kv.type == 0 && kv.n == 1 && *static_cast<const uint8_t *>(kv.data) == 200);

    const int64_t tokens = find_kv(gguf, "tokenizer.ggml.tokens", kv);
    CHECK(kv.n == 3 && kv.n_bytes == 4);
    std::vector<int64_t> offsets(4, -1);
    std::string          text(4, '\0');
    CHECK(pds_gguf_kv_strings(gguf, tokens, offsets.data(), text.data(), nullptr) == PDS_OK);
    CHECK((offsets == std::vector<int64_t>{ 0, 1, 1, 4 }) && text == "a\xC4\xA0"
                                                                     "b");

    pds_gguf_tensor tensor;
    CHECK(pds_gguf_tensor_get(gguf, 1, &tensor, nullptr) == PDS_OK);
    CHECK(tensor.name == "blk.0.attn_q.weight"sv && tensor.type_name == "q8_0"sv && tensor.type == GGML_TYPE_Q8_0);
    CHECK(tensor.n_dims == 2 && tensor.ne[0] == 64 && tensor.ne[3] == 1 && tensor.n_bytes == 136);
    CHECK(tensor.file_index == 0);
}

void test_overriding(pds_gguf * gguf) {
    pds_gguf_kv kv;
    CHECK(pds_gguf_override_int(gguf, "t.new", 1 << 20, nullptr) == PDS_OK && pds_gguf_n_kv(gguf) == 18);
    CHECK(pds_gguf_override_float(gguf, "t.f32", 0.5, nullptr) == PDS_OK);
    CHECK(pds_gguf_override_bool(gguf, "t.bool", 0, nullptr) == PDS_OK);
    CHECK(pds_gguf_override_string(gguf, "t.empty", "full", nullptr) == PDS_OK && pds_gguf_n_kv(gguf) == 18);
    CHECK(find_kv(gguf, "t.new", kv) == 17 && kv.type == 11 && kv.n_bytes == 8);
    CHECK(find_kv(gguf, "t.empty", kv) >= 0 && kv.type == 8 && kv.n_bytes == 4);
}

void test_wrong_arguments(pds_gguf * gguf) {
    pds_error       error = {};
    pds_gguf *      opened;
    pds_gguf_kv     kv;
    pds_gguf_tensor tensor;
    int64_t         offset;
    char            byte;
    CHECK(pds_gguf_open(nullptr, &opened, &error) == PDS_ERR_ARGUMENT &&
          error.message == "the argument 'path' is null"sv);
    CHECK(pds_gguf_open("x", nullptr, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_open("x.gguf", &opened, &error) == PDS_ERR_FILE && error.code == PDS_ERR_FILE);
    CHECK(pds_gguf_kv_get(gguf, -1, &kv, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_kv_get(gguf, pds_gguf_n_kv(gguf), &kv, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_kv_get(nullptr, 0, &kv, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_kv_get(gguf, 0, nullptr, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_kv_strings(gguf, find_kv(gguf, "t.i32s", kv), &offset, &byte, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_kv_strings(gguf, 0, nullptr, &byte, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_tensor_get(gguf, 3, &tensor, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_override_string(gguf, "key", nullptr, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_override_int(gguf, nullptr, 1, &error) == PDS_ERR_ARGUMENT);
    CHECK(pds_gguf_file_path(gguf, 1) == nullptr && pds_gguf_file_path(gguf, -1) == nullptr);
    CHECK(pds_gguf_n_kv(nullptr) == 0 && pds_gguf_n_tensors(nullptr) == 0 && pds_gguf_n_files(nullptr) == 0);
    CHECK(pds_gguf_version(nullptr) == 0);
    pds_gguf_free(nullptr);
}

} // namespace

int main() {
    test_messages_are_cut_between_characters();
    test_guard();
    const pds_test::temp_dir folder;
    const std::string        path  = folder.write("good.gguf", pds_test::good_gguf());
    pds_gguf *               gguf  = nullptr;
    pds_error                error = {};
    CHECK(pds_gguf_open(path.c_str(), &gguf, &error) == PDS_OK && gguf != nullptr);
    test_reading(gguf, path);
    test_wrong_arguments(gguf);
    test_overriding(gguf);
    pds_gguf_free(gguf);
    return pds_test::check_result();
}
