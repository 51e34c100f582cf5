// Small pieces that every decoder shares.
#pragma once

#include "graph/graph-context.h"

namespace pds {

// x / sqrt(mean(x^2) + eps) * weight over dimension 0
inline ggml_tensor * rms_norm(graph_context & g, ggml_tensor * x, ggml_tensor * weight, float eps) {
    return ggml_mul(g.ctx, ggml_rms_norm(g.ctx, x, eps), weight);
}

} // namespace pds
