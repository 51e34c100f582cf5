#include "model/quantize.h"

#include "gguf/gguf-writer.h"
#include "gguf/tensor-type.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

namespace pds {

namespace {

// A type that can be written without an importance matrix, and what general.file_type calls a file of it.
struct wanted_type {
    ggml_type type;
    uint32_t  file_type;
};

constexpr wanted_type wanted_types[] = {
    { GGML_TYPE_F32, 0 },    { GGML_TYPE_F16, 1 },   { GGML_TYPE_BF16, 32 }, { GGML_TYPE_Q8_0, 7 },
    { GGML_TYPE_Q6_K, 18 },  { GGML_TYPE_Q5_K, 16 }, { GGML_TYPE_Q5_1, 9 },  { GGML_TYPE_Q5_0, 8 },
    { GGML_TYPE_Q4_K, 14 },  { GGML_TYPE_Q4_1, 3 },  { GGML_TYPE_Q4_0, 2 },  { GGML_TYPE_IQ4_NL, 25 },
    { GGML_TYPE_MXFP4, 38 },
};

constexpr std::string_view file_type_key            = "general.file_type";
constexpr std::string_view quantization_version_key = "general.quantization_version";
constexpr uint32_t         quantization_version     = GGML_QNT_VERSION;

// Rows of one piece of work together have about this many weights: a few MiB beside the mapped file.
constexpr int64_t piece_size = int64_t{ 1 } << 18;

const wanted_type & require_wanted(int32_t number) {
    std::string names;
    for (const wanted_type & wanted : wanted_types) {
        if (wanted.type == number) {
            return wanted;
        }
        names += (names.empty() ? "" : ", ") + std::string(ggml_type_name(wanted.type));
    }
    std::string problem = format("type number %d", number);
    if (number >= 0 && tensor_type_known(static_cast<uint32_t>(number))) {
        const auto type = static_cast<ggml_type>(number);
        problem         = format("type %s%s", ggml_type_name(type),
                                 ggml_quantize_requires_imatrix(type) ? ", which needs an importance matrix" : "");
    }
    throw error(PDS_ERR_ARGUMENT, "cannot quantize to " + problem + "; use one of " + names);
}

double bits_per_weight(ggml_type type) {
    return 8.0 * static_cast<double>(ggml_type_size(type)) / static_cast<double>(ggml_blck_size(type));
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

bool can_become_float(ggml_type type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
}

bool is_weight(const gguf_tensor & tensor) {
    const std::string_view name      = tensor.name;
    const bool             is_matrix = tensor.ne[1] * tensor.ne[2] * tensor.ne[3] > 1;
    const bool precise = contains(name, "norm") || contains(name, "ffn_gate_inp") || contains(name, "conv1d");
    return is_matrix && name.ends_with(".weight") && !precise && can_become_float(tensor.type);
}

ggml_type new_type(const gguf_tensor & tensor, ggml_type wanted) {
    if (!is_weight(tensor)) {
        return tensor.type;
    }
    const bool is_embedding = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
    if (is_embedding && bits_per_weight(wanted) < bits_per_weight(GGML_TYPE_Q8_0)) {
        wanted = GGML_TYPE_Q8_0;
    }
    for (const ggml_type type : { wanted, GGML_TYPE_Q8_0 }) {
        if (tensor.ne[0] % ggml_blck_size(type) == 0) {
            return type;
        }
    }
    return GGML_TYPE_F16;
}

int64_t n_rows(const gguf_tensor & tensor) {
    return tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
}

std::vector<gguf_new_tensor> plan_tensors(const gguf_file & source, ggml_type type) {
    std::vector<gguf_new_tensor> planned;
    for (const gguf_tensor & tensor : source.tensors()) {
        gguf_new_tensor out{ tensor.name, new_type(tensor, type), tensor.n_dims, {}, tensor.n_bytes };
        std::copy(std::begin(tensor.ne), std::end(tensor.ne), out.ne);
        if (out.type != tensor.type) {
            out.n_bytes = static_cast<int64_t>(ggml_row_size(out.type, tensor.ne[0])) * n_rows(tensor);
        }
        planned.push_back(out);
    }
    return planned;
}

// A u32 value of the new file. number must live as long as the result.
gguf_value u32_value(std::string_view key, const uint32_t & number) {
    return { key, gguf_type::u32, gguf_type::u32, 1, reinterpret_cast<const uint8_t *>(&number), sizeof(number) };
}

std::vector<gguf_value> plan_values(const gguf_file & source, const uint32_t & file_type) {
    const gguf_value        changed[] = { u32_value(file_type_key, file_type),
                                          u32_value(quantization_version_key, quantization_version) };
    std::vector<gguf_value> values;
    for (const gguf_value & value : source.values()) {
        if (!value.key.starts_with("split.") && value.key != changed[0].key && value.key != changed[1].key) {
            values.push_back(value);
        }
    }
    values.insert(values.end(), std::begin(changed), std::end(changed));
    return values;
}

void check_not_source(const gguf_file & source, const std::string & path) {
    for (const mapped_file & file : source.files()) {
        std::error_code missing; // a file that does not exist yet is no file of source
        PDS_REQUIRE(!std::filesystem::equivalent(file.path(), path, missing), PDS_ERR_ARGUMENT,
                    "%s: is the file that is read. Write to another one", path.c_str());
    }
}

void check_numbers(const gguf_file & source, const gguf_tensor & tensor, ggml_type type,
                   const std::vector<float> & weights) {
    constexpr float max_f16 = 65504.0F;
    float           largest = 0;
    bool            finite  = true;
    for (const float weight : weights) {
        finite  = finite && std::isfinite(weight);
        largest = std::max(largest, std::abs(weight));
    }
    const char * file = source.files()[static_cast<size_t>(tensor.file_index)].path().c_str();
    PDS_REQUIRE(finite, PDS_ERR_FORMAT,
                "%s: tensor %s holds a weight that is not a finite number. The file is damaged: get it again", file,
                pds::quoted(tensor.name).c_str());
    PDS_REQUIRE(type != GGML_TYPE_F16 || largest <= max_f16, PDS_ERR_FORMAT,
                "%s: tensor %s holds the weight %g, which F16 cannot hold. Use bf16 or f32", file,
                pds::quoted(tensor.name).c_str(), static_cast<double>(largest));
}

void to_float(const gguf_tensor & tensor, int64_t first_row, std::vector<float> & weights) {
    const uint8_t * data = tensor.data + static_cast<size_t>(first_row) * ggml_row_size(tensor.type, tensor.ne[0]);
    if (tensor.type == GGML_TYPE_F32) {
        std::memcpy(weights.data(), data, weights.size() * sizeof(float));
    } else {
        ggml_get_type_traits(tensor.type)->to_float(data, weights.data(), static_cast<int64_t>(weights.size()));
    }
}

void convert(const gguf_file & source, const gguf_tensor & tensor, ggml_type type, gguf_writer & out,
             progress & progress) {
    const int64_t        n_per_row = tensor.ne[0];
    const int64_t        n_all     = n_rows(tensor);
    const int64_t        n_piece   = std::clamp<int64_t>(piece_size / n_per_row, 1, n_all);
    std::vector<float>   weights;
    std::vector<uint8_t> bytes;
    for (int64_t row = 0; row < n_all; row += n_piece) {
        progress.set_fraction(out.fraction());
        progress.check();
        const int64_t n = std::min(n_piece, n_all - row);
        weights.resize(static_cast<size_t>(n * n_per_row));
        bytes.resize(static_cast<size_t>(n) * ggml_row_size(type, n_per_row));
        to_float(tensor, row, weights);
        check_numbers(source, tensor, type, weights);
        ggml_quantize_chunk(type, weights.data(), bytes.data(), 0, n, n_per_row, nullptr);
        out.write(bytes.data(), bytes.size());
    }
}

void copy(const gguf_tensor & tensor, gguf_writer & out, progress & progress) {
    constexpr int64_t max_size = int64_t{ 4 } << 20;
    for (int64_t at = 0; at < tensor.n_bytes; at += max_size) {
        progress.set_fraction(out.fraction());
        progress.check();
        out.write(tensor.data + at, static_cast<size_t>(std::min(max_size, tensor.n_bytes - at)));
    }
}

} // namespace

void quantize(const gguf_file & source, const std::string & path, int32_t type, bool replace, progress & progress) {
    const wanted_type & wanted = require_wanted(type);
    check_not_source(source, path);
    const std::vector<gguf_new_tensor> planned = plan_tensors(source, wanted.type);
    gguf_writer                        out(path, replace);
    out.write_header(plan_values(source, wanted.file_type), planned, source.alignment());
    for (size_t i = 0; i < planned.size(); i++) {
        const gguf_tensor & tensor = source.tensors()[i];
        if (planned[i].type == tensor.type) {
            copy(tensor, out, progress);
        } else {
            convert(source, tensor, planned[i].type, out, progress);
        }
        out.pad();
    }
    progress.check();
    out.finish();
}

} // namespace pds
