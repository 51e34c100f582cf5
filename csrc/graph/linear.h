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

} // namespace pds
