// A re-quantized file opens, holds the same model, and appears whole or not at all.
#include "check-error.h"
#include "gguf-bytes.h"
#include "gguf.h"
#include "gguf/gguf-file.h"
#include "model/quantize.h"

#include <filesystem>
#include <limits>
#include <map>

using pds::gguf_file;

namespace {

const ggml_type all_types[] = { GGML_TYPE_F32,  GGML_TYPE_F16,   GGML_TYPE_BF16,  GGML_TYPE_Q8_0, GGML_TYPE_Q6_K,
                                GGML_TYPE_Q5_K, GGML_TYPE_Q5_1,  GGML_TYPE_Q5_0,  GGML_TYPE_Q4_K, GGML_TYPE_Q4_1,
                                GGML_TYPE_Q4_0, GGML_TYPE_MXFP4, GGML_TYPE_IQ4_NL };

struct shape {
    const char * name;
    uint64_t     n_per_row;
    uint64_t     n_rows;
};

constexpr shape shapes[] = {
    { "token_embd.weight", 256, 4 },  { "output_norm.weight", 32, 1 },      { "blk.0.ffn_up.weight", 256, 3 },
    { "blk.0.attn_q.weight", 96, 5 }, { "blk.0.attn_odd.weight", 40, 2 },   { "blk.0.ffn_gate_inp.weight", 256, 2 },
    { "blk.0.ffn.bias", 32, 2 },      { "blk.0.ssm_conv1d.weight", 4, 32 },
};

float weight_at(size_t i) {
    return static_cast<float>(i * 37 % 101) / 50.0F - 1.0F;
}

// Files of F32 tensors. odd_value, if not 0, replaces the last weight of blk.0.ffn_up.weight.
std::string f32_model(float odd_value = 0, uint32_t alignment = 64) {
    pds_test::gguf_bytes file;
    file.header(std::size(shapes), 7)
        .value("general.architecture", "llama")
        .value("general.file_type", pds::gguf_type::u32, uint32_t{ 0 })
        .value("general.alignment", pds::gguf_type::u32, alignment)
        .value("t.f64", pds::gguf_type::f64, 2.25)
        .value("t.bool", pds::gguf_type::bool_, uint8_t{ 1 });
    file.array("tokenizer.ggml.tokens", pds::gguf_type::string, 3).put_string("a").put_string("").put_string("bc");
    file.array("t.empty", pds::gguf_type::string, 0);
    std::string data;
    for (const shape & s : shapes) {
        if (s.n_rows == 1) {
            file.tensor(s.name, { s.n_per_row }, GGML_TYPE_F32, data.size());
        } else {
            file.tensor(s.name, { s.n_per_row, s.n_rows }, GGML_TYPE_F32, data.size());
        }
        for (size_t i = 0; i < s.n_per_row * s.n_rows; i++) {
            const bool  last = i + 1 == s.n_per_row * s.n_rows;
            const float weight =
                last && odd_value != 0 && s.name == std::string("blk.0.ffn_up.weight") ? odd_value : weight_at(i);
            data.append(reinterpret_cast<const char *>(&weight), sizeof(weight));
        }
        data.resize((data.size() + alignment - 1) / alignment * alignment);
    }
    file.data(0, alignment);
    return file.bytes + data;
}

void quantize(const std::string & from, const std::string & to, int32_t type, bool replace = false) {
    pds::progress unwatched(nullptr, nullptr);
    pds::quantize(*gguf_file::open(from), to, type, replace, unwatched);
}

std::vector<float> read_weights(const pds::gguf_tensor & tensor) {
    std::vector<float> weights(static_cast<size_t>(tensor.ne[0] * tensor.ne[1]));
    if (tensor.type == GGML_TYPE_F32) {
        std::memcpy(weights.data(), tensor.data, weights.size() * sizeof(float));
    } else {
        ggml_get_type_traits(tensor.type)->to_float(tensor.data, weights.data(), static_cast<int64_t>(weights.size()));
    }
    return weights;
}

size_t n_files_in(const pds_test::temp_dir & folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path("")), {}));
}

// Largest error of a weight in [-1, 1] that a type of that many bits may make.
float tolerance(ggml_type type) {
    switch (type) {
    case GGML_TYPE_F32:
        return 0;
    case GGML_TYPE_F16:
    case GGML_TYPE_BF16:
    case GGML_TYPE_Q8_0:
        return 0.01F;
    case GGML_TYPE_MXFP4:
        return 0.3F;
    default:
        return 0.2F;
    }
}

// ggml's own reader, which also reads the data, finds the tensors where they should be.
void check_opens_in_ggml(const std::string & path) {
    ggml_context *         tensors = nullptr;
    const gguf_init_params params  = { .no_alloc = false, .ctx = &tensors };
    gguf_context *         theirs  = gguf_init_from_file(path.c_str(), params);
    CHECK(theirs != nullptr);
    if (theirs == nullptr) {
        return;
    }
    const auto ours = gguf_file::open(path);
    CHECK(gguf_get_n_tensors(theirs) == static_cast<int64_t>(std::size(shapes)));
    for (const pds::gguf_tensor & tensor : ours->tensors()) {
        const ggml_tensor * other = ggml_get_tensor(tensors, tensor.name.c_str());
        CHECK(other != nullptr && other->type == tensor.type);
        CHECK(other != nullptr && std::memcmp(other->data, tensor.data, static_cast<size_t>(tensor.n_bytes)) == 0);
    }
    ggml_free(tensors);
    gguf_free(theirs);
}

void test_every_type_is_written(const pds_test::temp_dir & folder) {
    const std::string from = folder.write("from.gguf", f32_model());
    for (const ggml_type type : all_types) {
        const std::string to = folder.path(std::string("to-") + ggml_type_name(type) + ".gguf");
        quantize(from, to, type);
        check_opens_in_ggml(to);
        const auto file = gguf_file::open(to);
        CHECK(file->find("blk.0.ffn_up.weight")->type == type);
        for (size_t i = 0; i < std::size(shapes); i++) {
            CHECK(file->tensors()[i].name == shapes[i].name);
            const std::vector<float> weights = read_weights(file->tensors()[i]);
            for (size_t k = 0; k < weights.size(); k++) {
                CHECK_NEAR(weights[k], weight_at(k), tolerance(file->tensors()[i].type));
            }
        }
    }
}

void test_types_by_tensor(const pds_test::temp_dir & folder) {
    const std::string                      from   = folder.write("from.gguf", f32_model());
    const std::string                      to     = folder.path("types.gguf");
    const std::map<std::string, ggml_type> wanted = {
        { "token_embd.weight", GGML_TYPE_Q8_0 },    { "output_norm.weight", GGML_TYPE_F32 },
        { "blk.0.ffn_up.weight", GGML_TYPE_Q4_K },  { "blk.0.attn_q.weight", GGML_TYPE_Q8_0 },
        { "blk.0.attn_odd.weight", GGML_TYPE_F16 }, { "blk.0.ffn_gate_inp.weight", GGML_TYPE_F32 },
        { "blk.0.ffn.bias", GGML_TYPE_F32 },        { "blk.0.ssm_conv1d.weight", GGML_TYPE_F32 },
    };
    quantize(from, to, GGML_TYPE_Q4_K);
    const auto file = gguf_file::open(to);
    for (const pds::gguf_tensor & tensor : file->tensors()) {
        CHECK(tensor.type == wanted.at(tensor.name));
    }
    quantize(from, to, GGML_TYPE_BF16, true);
    CHECK(gguf_file::open(to)->find("token_embd.weight")->type == GGML_TYPE_BF16);
}

void test_metadata_is_kept(const pds_test::temp_dir & folder) {
    const std::string from   = folder.write("from.gguf", f32_model());
    const std::string to     = folder.path("metadata.gguf");
    const auto        before = gguf_file::open(from);
    quantize(from, to, GGML_TYPE_Q4_0);
    const auto after = gguf_file::open(to);
    CHECK(after->get_int("general.file_type") == 2 &&
          after->get_int("general.quantization_version") == GGML_QNT_VERSION);
    CHECK(after->alignment() == 64);
    CHECK(after->values().size() == before->values().size() + 1);
    for (const pds::gguf_value & value : before->values()) {
        const pds::gguf_value * same = after->find_value(value.key);
        CHECK(same != nullptr && same->type == value.type && same->n == value.n);
        if (same != nullptr && value.key != "general.file_type") {
            const size_t lengths = value.item_type == pds::gguf_type::string ? 8 * static_cast<size_t>(value.n) : 0;
            CHECK(std::memcmp(same->data, value.data, static_cast<size_t>(value.n_bytes) + lengths) == 0);
        }
    }
}

void test_weights_of_the_same_type_are_copied(const pds_test::temp_dir & folder) {
    const std::string first = folder.path("first.gguf");
    quantize(folder.write("from.gguf", f32_model()), first, GGML_TYPE_Q4_0);
    quantize(first, folder.path("second.gguf"), GGML_TYPE_Q4_0);
    const auto a = gguf_file::open(first);
    const auto b = gguf_file::open(folder.path("second.gguf"));
    CHECK(a->files().front().size() == b->files().front().size());
    CHECK(std::memcmp(a->files().front().data(), b->files().front().data(), a->files().front().size()) == 0);
}

// A model of two files with one tensor each.
std::string split_part(uint16_t part) {
    pds_test::gguf_bytes file;
    file.header(1, part == 0 ? 4 : 3);
    if (part == 0) {
        file.value("general.architecture", "llama");
    }
    return file.value("split.no", pds::gguf_type::u16, part)
        .value("split.count", pds::gguf_type::u16, uint16_t{ 2 })
        .value("split.tensors.count", pds::gguf_type::i32, int32_t{ 2 })
        .tensor(part == 0 ? "blk.0.a.weight" : "blk.1.a.weight", { 32, 2 }, GGML_TYPE_Q8_0, 0)
        .data(2 * 34)
        .bytes;
}

void test_split_set_becomes_one_file(const pds_test::temp_dir & folder) {
    const std::string part = folder.write("m-00001-of-00002.gguf", split_part(0));
    folder.write("m-00002-of-00002.gguf", split_part(1));
    const std::string to = folder.path("joined.gguf");
    quantize(part, to, GGML_TYPE_Q8_0);
    const auto file = gguf_file::open(to);
    CHECK(file->files().size() == 1 && file->tensors().size() == 2);
    CHECK(!file->has("split.no") && !file->has("split.count") && !file->has("split.tensors.count"));
    const auto set = gguf_file::open(part);
    for (const pds::gguf_tensor & tensor : set->tensors()) {
        CHECK(std::memcmp(file->find(tensor.name)->data, tensor.data, static_cast<size_t>(tensor.n_bytes)) == 0);
    }
}

void test_refusals_leave_nothing(const pds_test::temp_dir & folder) {
    const std::string from   = folder.write("from.gguf", f32_model());
    const std::string there  = folder.write("there.gguf", "old");
    const std::string to     = folder.path("refused.gguf");
    const size_t      n_here = n_files_in(folder);
    std::filesystem::create_hard_link(from, folder.path("link.gguf"));
    CHECK_ERROR(PDS_ERR_FILE, "exists already", quantize(from, there, GGML_TYPE_Q4_0));
    CHECK_ERROR(PDS_ERR_FILE, "could be replaced", quantize(from, folder.path(""), GGML_TYPE_Q4_0, true));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "file that is read", quantize(from, from, GGML_TYPE_Q4_0, true));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "file that is read", quantize(from, folder.path("link.gguf"), GGML_TYPE_Q4_0, true));
    std::filesystem::remove(folder.path("link.gguf"));
    CHECK_ERROR(PDS_ERR_FILE, "No such file", quantize(from, folder.path("none/to.gguf"), GGML_TYPE_Q4_0));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "importance matrix", quantize(from, to, GGML_TYPE_IQ2_XXS));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "use one of f32", quantize(from, to, GGML_TYPE_I32));
    CHECK_ERROR(PDS_ERR_ARGUMENT, "type number 999", quantize(from, to, 999));
    CHECK(n_files_in(folder) == n_here);
    quantize(from, there, GGML_TYPE_Q4_0, true);
    CHECK(gguf_file::open(there)->tensors().size() == std::size(shapes));
}

void test_bad_weights_leave_nothing(const pds_test::temp_dir & folder) {
    const std::string nan    = folder.write("nan.gguf", f32_model(std::numeric_limits<float>::quiet_NaN()));
    const std::string large  = folder.write("large.gguf", f32_model(70000.0F));
    const std::string to     = folder.path("bad.gguf");
    const size_t      n_here = n_files_in(folder);
    CHECK_ERROR(PDS_ERR_FORMAT, "'blk.0.ffn_up.weight'", quantize(nan, to, GGML_TYPE_Q4_0));
    CHECK_ERROR(PDS_ERR_FORMAT, "Use bf16 or f32", quantize(large, to, GGML_TYPE_F16));
    CHECK(n_files_in(folder) == n_here);
    quantize(large, to, GGML_TYPE_BF16);
}

// 40 MB of zeros: long enough that progress is asked for.
std::string large_model() {
    pds_test::gguf_bytes file;
    file.header(1, 1).value("general.architecture", "llama").tensor("a.weight", { 1024, 10240 }, GGML_TYPE_F32, 0);
    file.data(0);
    file.bytes.resize(file.bytes.size() + size_t{ 4 } * 1024 * 10240);
    return file.bytes;
}

int32_t cancel_at_first_call(void * user, double fraction) {
    *static_cast<double *>(user) = fraction;
    return 1;
}

void test_cancel_leaves_nothing(const pds_test::temp_dir & folder) {
    const auto    source = gguf_file::open(folder.write("large.gguf", large_model()));
    const size_t  n_here = n_files_in(folder);
    double        seen   = -1;
    pds::progress watched(cancel_at_first_call, &seen);
    CHECK_ERROR(PDS_ERR_CANCELLED, "", pds::quantize(*source, folder.path("to.gguf"), GGML_TYPE_Q4_K, false, watched));
    CHECK(seen > 0 && seen <= 1);
    CHECK(n_files_in(folder) == n_here);
}

} // namespace

int main() {
    const pds_test::temp_dir folder;
    test_every_type_is_written(folder);
    test_types_by_tensor(folder);
    test_metadata_is_kept(folder);
    test_weights_of_the_same_type_are_copied(folder);
    test_split_set_becomes_one_file(folder);
    test_refusals_leave_nothing(folder);
    test_bad_weights_leave_nothing(folder);
    test_cancel_leaves_nothing(folder);
    return pds_test::check_result();
}
