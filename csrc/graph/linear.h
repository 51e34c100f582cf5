// Linear layers: a weight, perhaps with a factor and a bias.
#pragma once

#include "graph/graph-context.h"

namespace pds {

// y = (weight x) * scale + bias
struct linear_weight {
    ggml_tensor * weight = nullptr; // [n_in, n_out]
    float         scale  = 1;       // of the products: what a file keeps beside a weight of few bits
    ggml_tensor * bias   = nullptr; // [n_out], or null
};

// x [n_in, n_tokens] -> [n_out, n_tokens]
ggml_tensor * apply(graph_context & g, const linear_weight & linear, ggml_tensor * x);
// Some values of the result alone. rows: I32 [n] -> [n, n_tokens]. The weight must lie in rows, not rearranged.
ggml_tensor * apply_rows(graph_context & g, const linear_weight & linear, ggml_tensor * rows, ggml_tensor * x);
// The values of a column matrix [n, 1] in some places. rows: I32 [n_rows] -> [n_rows, 1]
ggml_tensor * pick(graph_context & g, ggml_tensor * column, ggml_tensor * rows);

} // namespace pds
