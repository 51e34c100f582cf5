#include "arch/linear.h"

namespace pds {

linear_reader::linear_reader(weights & w, std::string prefix, int32_t layer, bool biases)
    : w_(w), prefix_(std::move(prefix)), layer_(layer), biases_(biases) {
}

linear_weight linear_reader::find(const char * name, int64_t n_in, int64_t n_out, weight_use use) {
    const std::string base = prefix_ + name;
    linear_weight     result;
    result.weight = w_.find(base + ".weight", { n_in, n_out }, use, layer_);
    if (result.weight != nullptr) {
        result.scale = w_.find_number(base + ".scale").value_or(w_.find_number(base + ".weight.scale").value_or(1.0f));
        result.bias  = biases_ ? w_.find(base + ".bias", { n_out }, weight_use::element_wise, layer_) : nullptr;
    }
    return result;
}

linear_weight linear_reader::require(const char * name, int64_t n_in, int64_t n_out, weight_use use) {
    w_.require(prefix_ + name + ".weight", { n_in, n_out }, use, layer_);
    return find(name, n_in, n_out, use);
}

expert_matrix linear_reader::find_experts(const char * name, int64_t n_in, int64_t n_out, int64_t n_expert) {
    const std::string base = prefix_ + name;
    expert_matrix     result;
    result.weight = w_.find(base + ".weight", { n_in, n_out, n_expert }, weight_use::mul_mat_id, layer_);
    if (result.weight != nullptr) {
        result.scale = w_.find(base + ".scale", { n_expert }, weight_use::element_wise, layer_);
        if (result.scale == nullptr) {
            result.scale = w_.find(base + ".weight.scale", { n_expert }, weight_use::element_wise, layer_);
        }
    }
    return result;
}

expert_matrix linear_reader::require_experts(const char * name, int64_t n_in, int64_t n_out, int64_t n_expert) {
    w_.require(prefix_ + name + ".weight", { n_in, n_out, n_expert }, weight_use::mul_mat_id, layer_);
    return find_experts(name, n_in, n_out, n_expert);
}

ggml_tensor * linear_reader::norm(const char * name, int64_t n) {
    return w_.require(prefix_ + name + ".weight", { n }, weight_use::element_wise, layer_);
}

} // namespace pds
