// GGUF files: what a good one says, and what is said about wrong ones.
#include "check-error.h"
#include "gguf-bytes.h"
#include "gguf/gguf-file.h"

#include <sys/stat.h>

using pds::gguf_file;
using pds::gguf_type;
using pds_test::gguf_bytes;
using pds_test::good_gguf;

namespace {

const pds_test::temp_dir & folder() {
    static const pds_test::temp_dir dir;
    return dir;
}

std::shared_ptr<gguf_file> open_bytes(std::string_view bytes) {
    return gguf_file::open(folder().write("model.gguf", bytes));
}

// A file with one value and no tensors.
std::shared_ptr<gguf_file> open_value(const gguf_bytes & value) {
    return open_bytes(gguf_bytes().header(0, 1).bytes + value.bytes);
}

// A file with one tensor, and n bytes of data.
std::shared_ptr<gguf_file> open_tensor(const gguf_bytes & tensor, size_t n = 4096) {
    gguf_bytes file;
    file.header(1, 0).bytes += tensor.bytes;
    return open_bytes(file.data(n).bytes);
}

void test_good_file() {
    const auto file = open_bytes(good_gguf());
    CHECK(file->architecture() == "llama" && file->version() == 3 && file->alignment() == 32);
    CHECK(file->values().size() == 17 && file->files().size() == 1);
    CHECK(file->files()[0].path() == folder().path("model.gguf") && file->files()[0].size() == good_gguf().size());
    CHECK(file->has("t.u8") && !file->has("t.u9") && file->find_value("t.u9") == nullptr);

    CHECK(file->tensors().size() == 3 && file->find("output.weight") == nullptr);
    const pds::gguf_tensor * tensor = file->find("blk.0.attn_q.weight");
    CHECK(tensor != nullptr && tensor->type == GGML_TYPE_Q8_0 && tensor->n_dims == 2 && tensor->n_bytes == 4 * 34);
    CHECK(tensor->ne[0] == 64 && tensor->ne[1] == 2 && tensor->ne[2] == 1 && tensor->ne[3] == 1);
    const uint64_t data_begin = good_gguf().size() - 576;
    CHECK(tensor->offset == data_begin + 384 && tensor->data == file->files()[0].data() + tensor->offset);
    CHECK(*tensor->data == static_cast<uint8_t>(384 * 7 + 1));
}

void test_getters() {
    const auto file = open_bytes(good_gguf());
    CHECK(file->get_int("t.u8") == 200 && file->get_int("t.i8") == -3 && file->get_int("t.u16") == 65000);
    CHECK(file->get_int("t.i16") == -300 && file->get_int("t.u32") == 4000000000 && file->get_int("t.i32") == -70000);
    CHECK(file->get_int("t.i64") == -5000000000 && file->get_int("t.absent", 7) == 7);
    CHECK(file->get_float("t.f32") == 1.5 && file->get_float("t.f64") == 2.25 &&
          file->get_float("t.absent", 0.5) == 0.5);
    CHECK(file->get_bool("t.bool") && !file->get_bool("t.absent", false));
    CHECK(file->get_string("t.empty").empty() && file->get_string("t.absent", "x") == "x");
    CHECK((file->get_ints("t.i32s") == std::vector<int64_t>{ 11, -10, 0 }));
    CHECK((file->get_ints("t.u8") == std::vector<int64_t>{ 200 }));
    CHECK((file->get_floats("t.f32s") == std::vector<double>{ 0.5, -4.0 }));
    CHECK((file->get_bools("t.bools") == std::vector<bool>{ true, false }));
    CHECK((file->get_strings("tokenizer.ggml.tokens") == std::vector<std::string_view>{ "a", "",
                                                                                        "\xC4\xA0"
                                                                                        "b" }));
    CHECK(file->array_size("tokenizer.ggml.tokens") == 3);
}

void test_wrong_kind_of_value() {
    const auto file = open_bytes(good_gguf());
    CHECK_ERROR(PDS_ERR_FORMAT, "model.gguf: key 'general.architecture' is string 'llama', wanted an integer",
                file->get_int("general.architecture"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is f32 1.5, wanted an integer", file->get_int("t.f32", 1));
    CHECK_ERROR(PDS_ERR_FORMAT, "is bool true, wanted an integer", file->get_int("t.bool"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is u64 9223372036854775808, wanted an integer of at most 63 bits",
                file->get_int("t.u64"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is an array of 3 i32, wanted an integer", file->get_int("t.i32s"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is i8 -3, wanted a float", file->get_float("t.i8"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is u8 200, wanted a bool", file->get_bool("t.u8"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is u8 200, wanted a string", file->get_string("t.u8"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is an array of 2 f32, wanted integers", file->get_ints("t.f32s"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is an array of 3 i32, wanted floats", file->get_floats("t.i32s"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is an array of 3 i32, wanted bools", file->get_bools("t.i32s"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is an array of 2 bool, wanted strings", file->get_strings("t.bools"));
    CHECK_ERROR(PDS_ERR_FORMAT, "is u8 200, wanted an array", file->array_size("t.u8"));
    CHECK_ERROR(PDS_ERR_FORMAT, "key 't.absent' is missing, wanted an integer", file->get_int("t.absent"));
    CHECK_ERROR(PDS_ERR_FORMAT, "general.architecture", open_bytes(gguf_bytes().header(0, 0).bytes)->architecture());
    CHECK_ERROR(PDS_ERR_FORMAT, "is empty", open_value(gguf_bytes().value("general.architecture", ""))->architecture());
}

void test_overrides() {
    const auto             file   = open_bytes(good_gguf());
    const std::string_view before = file->get_string("general.architecture");
    file->override_string("general.architecture", "qwen3");
    file->override_int("t.u8", -9);
    file->override_float("t.f32", 0.1);
    file->override_bool("t.bool", false);
    file->override_int("t.added", 5);
    CHECK(file->architecture() == "qwen3" && file->get_int("t.u8") == -9 && file->get_float("t.f32") == 0.1);
    CHECK(!file->get_bool("t.bool") && file->get_int("t.added") == 5 && file->values().size() == 18);
    CHECK(before == "llama");
    file->override_string("t.u8", "text");
    CHECK_ERROR(PDS_ERR_FORMAT, "is string 'text', wanted an integer", file->get_int("t.u8"));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "cannot be overridden", file->override_int("", 1));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "cannot be overridden", file->override_int("\xFF", 1));
}

void test_paths() {
    CHECK_ERROR(PDS_ERR_FILE, "there is no such file", gguf_file::open(folder().path("absent.gguf")));
    CHECK_ERROR(PDS_ERR_FILE, "is a directory", gguf_file::open(folder().path(".")));
    CHECK_ERROR(PDS_ERR_FILE, "there is no such file", gguf_file::open(""));
    const std::string pipe = folder().path("pipe");
    CHECK(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_ERROR(PDS_ERR_FILE, "is not a regular file", gguf_file::open(pipe));
}

void test_other_files() {
    using namespace std::string_view_literals;
    CHECK_ERROR(PDS_ERR_FORMAT, "is empty", open_bytes(""));
    CHECK_ERROR(PDS_ERR_FORMAT, "has only 3 bytes", open_bytes("GGU"));
    CHECK_ERROR(PDS_ERR_FORMAT, "web page", open_bytes("\n <!DOCTYPE html><html>"));
    CHECK_ERROR(PDS_ERR_FORMAT, "git-lfs pointer", open_bytes("version https://git-lfs.github.com/spec/v1\n"));
    CHECK_ERROR(PDS_ERR_FORMAT, "ZIP archive", open_bytes("PK\x03\x04stored"));
    CHECK_ERROR(PDS_ERR_FORMAT, "pickle", open_bytes("\x80\x02}q"));
    CHECK_ERROR(PDS_ERR_FORMAT, "safetensors", open_bytes("\x10\0\0\0\0\0\0\0{\"a\":{},\"b\":{}}"sv));
    CHECK_ERROR(PDS_ERR_FORMAT, "before GGUF", open_bytes("lmgg\1\0\0\0"sv));
    CHECK_ERROR(PDS_ERR_FORMAT, "before GGUF", open_bytes("tjgg\3\0\0\0"sv));
    CHECK_ERROR(PDS_ERR_FORMAT, "starts with zeros", open_bytes(std::string(64, '\0')));
    CHECK_ERROR(PDS_ERR_FORMAT, "JSON", open_bytes("{\"error\":\"not found\"}"));
    CHECK_ERROR(PDS_ERR_FORMAT, "bytes 4d 5a 90 00", open_bytes("MZ\x90\0\3"sv));
}

void test_versions() {
    const std::string good = good_gguf();
    for (const uint32_t version : { 2U, 3U }) {
        std::string bytes = good;
        std::memcpy(bytes.data() + 4, &version, sizeof(version));
        CHECK(open_bytes(bytes)->version() == version);
    }
    const auto with_version = [&](uint32_t version) { return open_bytes(gguf_bytes().header(0, 0, version).bytes); };
    CHECK_ERROR(PDS_ERR_FORMAT, "the version is 0", with_version(0));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "version 1 is not supported", with_version(1));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "version 4 is not supported", with_version(4));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "big-endian", with_version(50331648));
}

// Wherever a download stops, the file is refused as damaged.
void test_every_cut() {
    const std::string good = good_gguf();
    const size_t      end  = good.size() - 16; // the last tensor has 16 bytes, then there is padding
    CHECK(open_bytes(good.substr(0, end))->tensors().size() == 3);
    for (size_t size = 0; size < end; size++) {
        CHECK_THROWS(PDS_ERR_FORMAT, open_bytes(good.substr(0, size)));
    }
    CHECK_ERROR(PDS_ERR_FORMAT,
                "tensor 'output_norm.weight' needs 16 bytes at offset 544 of the data, but the file ends "
                "after 557: 3 of the tensor's bytes are missing",
                open_bytes(good.substr(0, end - 3)));
    CHECK_ERROR(PDS_ERR_FORMAT, "384 of the tensor's bytes are missing", open_bytes(good.substr(0, good.size() - 576)));
}

void test_absurd_counts() {
    const std::string room(64, '\1');
    for (const uint64_t count : { uint64_t{ 1 } << 40, uint64_t{ 1 } << 63, ~uint64_t{ 0 } }) {
        CHECK_ERROR(PDS_ERR_FORMAT, "the number of tensors is", open_bytes(gguf_bytes().header(count, 0).bytes + room));
        CHECK_ERROR(PDS_ERR_FORMAT, "the number of metadata keys is",
                    open_bytes(gguf_bytes().header(0, count).bytes + room));
        CHECK_ERROR(PDS_ERR_FORMAT, "the number of items is",
                    open_value(gguf_bytes().array("a", gguf_type::u8, count)));
    }
    for (const uint64_t count : { (uint64_t{ 1 } << 30) - 1, uint64_t{ 1 } << 61, ~uint64_t{ 0 } }) {
        CHECK_ERROR(PDS_ERR_FORMAT, "the number of items is",
                    open_value(gguf_bytes().array("a", gguf_type::string, count).put(uint64_t{ 0 })));
        CHECK_ERROR(PDS_ERR_FORMAT, "the number of items is",
                    open_value(gguf_bytes().array("a", gguf_type::u64, count).put(uint64_t{ 0 })));
        CHECK_ERROR(PDS_ERR_FORMAT, "but the file has only",
                    open_value(gguf_bytes().key("a", gguf_type::string).put(count).put(uint64_t{ 0 })));
    }
    const uint64_t too_many = (1 << 16) + 1;
    CHECK_ERROR(PDS_ERR_FORMAT, "wanted at most 65536",
                open_bytes(gguf_bytes().header(0, too_many).bytes + std::string(too_many * 14, '\1')));
}

void test_wrong_values() {
    CHECK_ERROR(PDS_ERR_FORMAT, "the name is empty", open_value(gguf_bytes().value("", "text")));
    CHECK_ERROR(PDS_ERR_FORMAT, "not text in UTF-8", open_value(gguf_bytes().value("a\xFF", "text")));
    CHECK_ERROR(PDS_ERR_FORMAT, "not text in UTF-8",
                open_value(gguf_bytes().value(std::string_view("a\0b", 3), "text")));
    CHECK_ERROR(PDS_ERR_FORMAT, "wanted at most 65535",
                open_value(gguf_bytes().value(std::string(65536, 'k'), "text")));
    CHECK_ERROR(PDS_ERR_FORMAT, "key 0 ('a'): the value type is 13",
                open_value(gguf_bytes().value("a", static_cast<gguf_type>(13), 0)));
    CHECK_ERROR(PDS_ERR_FORMAT, "the item type is 4294967295",
                open_value(gguf_bytes().array("a", static_cast<gguf_type>(-1), 0)));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "arrays of arrays", open_value(gguf_bytes().array("a", gguf_type::array, 1)));
    CHECK_ERROR(PDS_ERR_FORMAT, "a bool is stored as 2", open_value(gguf_bytes().value("a", gguf_type::bool_, '\2')));
    CHECK_ERROR(PDS_ERR_FORMAT, "a bool is stored as 255",
                open_value(gguf_bytes().array("a", gguf_type::bool_, 2).put('\1').put('\xFF')));
    const std::string twice = gguf_bytes().value("same", "x").bytes;
    CHECK_ERROR(PDS_ERR_FORMAT, "'same' is there twice", open_bytes(gguf_bytes().header(0, 2).bytes + twice + twice));
}

void test_alignment() {
    const auto with_alignment = [](uint32_t alignment, size_t used) {
        gguf_bytes file;
        file.header(1, 1).value("general.alignment", gguf_type::u32, alignment);
        return open_bytes(file.tensor("t", { 4 }, GGML_TYPE_F32, 0).data(16, used).bytes);
    };
    CHECK(with_alignment(64, 64)->find("t")->offset % 64 == 0);
    for (const uint32_t wrong : { 0U, 3U, 48U, 1U << 31 }) {
        CHECK_ERROR(PDS_ERR_FORMAT, "wanted a power of two", with_alignment(wrong, 32));
    }
    CHECK_ERROR(PDS_ERR_FORMAT, "wanted an integer", open_value(gguf_bytes().value("general.alignment", "32")));
    CHECK_ERROR(PDS_ERR_FORMAT, "not a multiple of the alignment 32",
                open_tensor(gguf_bytes().tensor("t", { 4 }, GGML_TYPE_F32, 16)));
}

void test_wrong_shapes() {
    const auto shape = [](std::initializer_list<uint64_t> ne, uint32_t type) {
        return open_tensor(gguf_bytes().tensor("t", ne, type, 0));
    };
    CHECK_ERROR(PDS_ERR_FORMAT, "0 dimensions", shape({}, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "5 dimensions", shape({ 1, 1, 1, 1, 1 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "[4, 0]", shape({ 4, 0 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "[-9223372036854775808]", shape({ uint64_t{ 1 } << 63 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "larger than any file", shape({ uint64_t{ 1 } << 62, 8 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "larger than any file", shape({ 1U << 31, 1U << 31, 4 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "larger than any file", shape({ 1U << 31, 1U << 30 }, GGML_TYPE_F64));
    CHECK_ERROR(PDS_ERR_FORMAT, "tensor 't' needs", shape({ 1024, (uint64_t{ 1 } << 42) + 1 }, GGML_TYPE_F32));
    CHECK_ERROR(PDS_ERR_FORMAT, "rows of 31 elements", shape({ 31 }, GGML_TYPE_Q4_0));
    CHECK_ERROR(PDS_ERR_FORMAT, "beyond the end of any file",
                open_tensor(gguf_bytes().tensor("t", { 4 }, GGML_TYPE_F32, uint64_t{ 1 } << 63)));
    CHECK_ERROR(PDS_ERR_FORMAT, "16 of the tensor's bytes are missing",
                open_tensor(gguf_bytes().tensor("t", { 4 }, GGML_TYPE_F32, uint64_t{ 1 } << 62)));
}

void test_tensor_types() {
    const auto type = [](uint32_t number) { return open_tensor(gguf_bytes().tensor("t", { 256 }, number, 0)); };
    CHECK(type(GGML_TYPE_MXFP4)->find("t")->n_bytes == 8 * 17);
    CHECK(type(GGML_TYPE_NVFP4)->find("t")->n_bytes == 4 * 36);
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "tensor 0 ('t'): it has type 4 (Q4_2), which was removed", type(4));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "type 31 (Q4_0_4_4)", type(31));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "type 38 (IQ4_NL_8_8)", type(38));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "needs a newer ggml", type(GGML_TYPE_COUNT));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "type 99, which is unknown to ggml. Supported types: f32, f16", type(99));
    CHECK_ERROR(PDS_ERR_UNSUPPORTED, "type 2147483647, which is unknown", type(0x7FFFFFFF));
}

void test_tensor_names_and_places() {
    CHECK(open_tensor(gguf_bytes().tensor(std::string(63, 't'), { 4 }, GGML_TYPE_F32, 0))->tensors().size() == 1);
    CHECK_ERROR(PDS_ERR_FORMAT, "has 64 bytes, wanted at most 63",
                open_tensor(gguf_bytes().tensor(std::string(64, 't'), { 4 }, GGML_TYPE_F32, 0)));
    const auto two = [](const char * second, uint64_t offset) {
        gguf_bytes file;
        file.header(2, 0).tensor("a", { 16 }, GGML_TYPE_F32, 32).tensor(second, { 4 }, GGML_TYPE_F32, offset);
        return open_bytes(file.data(256).bytes);
    };
    CHECK(two("b", 0)->find("b")->offset < two("b", 0)->find("a")->offset);
    CHECK(two("b", 96)->tensors().size() == 2);
    CHECK_ERROR(PDS_ERR_FORMAT, "tensors 'a' and 'b' overlap", two("b", 64));
    CHECK_ERROR(PDS_ERR_FORMAT, "overlap", two("b", 32));
    CHECK_ERROR(PDS_ERR_FORMAT, "tensor 'a' is there twice", two("a", 96));
}

} // namespace

int main() {
    test_good_file();
    test_getters();
    test_wrong_kind_of_value();
    test_overrides();
    test_paths();
    test_other_files();
    test_versions();
    test_every_cut();
    test_absurd_counts();
    test_wrong_values();
    test_alignment();
    test_wrong_shapes();
    test_tensor_types();
    test_tensor_names_and_places();
    return pds_test::check_result();
}
