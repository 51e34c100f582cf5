#include "graph/linear.h"

namespace pds {

ggml_tensor * apply(graph_context & g, const linear_weight & linear, ggml_tensor * x) {
    ggml_tensor * y = ggml_mul_mat(g.ctx, linear.weight, x);
    if (linear.scale != 1.0f) {
        y = ggml_scale(g.ctx, y, linear.scale);
    }
    return linear.bias != nullptr ? ggml_add(g.ctx, y, linear.bias) : y;
}

} // namespace pds
