#include "arch/linear.h"

namespace pds {

ggml_tensor * apply(graph_context & g, const linear_weight & linear, ggml_tensor * x) {
    ggml_tensor * y = ggml_mul_mat(g.ctx, linear.weight, x);
    if (linear.scale != nullptr) {
        y = ggml_mul(g.ctx, y, linear.scale);
    }
    return linear.bias != nullptr ? ggml_add(g.ctx, y, linear.bias) : y;
}

linear_reader::linear_reader(weights & w, std::string prefix, int32_t layer, bool biases)
    : w_(w), prefix_(std::move(prefix)), layer_(layer), biases_(biases) {
}

linear_weight linear_reader::find(const char * name, int64_t n_in, int64_t n_out) {
    const std::string base = prefix_ + name;
    linear_weight     result;
    result.weight = w_.find(base + ".weight", { n_in, n_out }, weight_use::mul_mat, layer_);
    if (result.weight != nullptr) {
        result.scale = w_.find(base + ".scale", { 1 }, weight_use::element_wise, layer_);
        result.bias  = biases_ ? w_.find(base + ".bias", { n_out }, weight_use::element_wise, layer_) : nullptr;
    }
    return result;
}

linear_weight linear_reader::require(const char * name, int64_t n_in, int64_t n_out) {
    w_.require(prefix_ + name + ".weight", { n_in, n_out }, weight_use::mul_mat, layer_);
    return find(name, n_in, n_out);
}

ggml_tensor * linear_reader::norm(const char * name, int64_t n) {
    return w_.require(prefix_ + name + ".weight", { n }, weight_use::element_wise, layer_);
}

} // namespace pds
