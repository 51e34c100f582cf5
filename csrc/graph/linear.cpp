#include "graph/linear.h"

namespace pds {

ggml_tensor * apply(graph_context & g, const linear_weight & linear, ggml_tensor * x) {
    ggml_tensor * y = ggml_mul_mat(g.ctx, linear.weight, x);
    if (linear.scale != 1.0f) {
        y = ggml_scale(g.ctx, y, linear.scale);
    }
    return linear.bias != nullptr ? ggml_add(g.ctx, y, linear.bias) : y;
}

ggml_tensor * pick(graph_context & g, ggml_tensor * column, ggml_tensor * rows) {
    ggml_tensor * items = ggml_reshape_2d(g.ctx, column, 1, ggml_nelements(column));
    return ggml_reshape_2d(g.ctx, ggml_get_rows(g.ctx, items, rows), rows->ne[0], 1);
}

ggml_tensor * apply_rows(graph_context & g, const linear_weight & linear, ggml_tensor * rows, ggml_tensor * x) {
    linear_weight some = linear;
    some.weight        = ggml_get_rows(g.ctx, linear.weight, rows);
    some.bias          = linear.bias != nullptr ? pick(g, linear.bias, rows) : nullptr;
    return apply(g, some, x);
}

} // namespace pds
