// Attention of a target over its cache.
#pragma once

#include "graph/graph-context.h"
#include "memory/kv-cache.h"

namespace pds {

struct attention_params {
    int64_t n_head;
    int64_t n_head_kv;
    int64_t head_dim_k;
    int64_t head_dim_v;
    float   scale; // of the scores
    bool    fused; // one flash-attention operation; its plain twin otherwise
};

// Writes k and v to the cache rows of this batch, then reads the cache.
// q [head_dim_k, n_head, n_tokens], k [head_dim_k, n_head_kv, n_tokens], v [head_dim_v * n_head_kv, n_tokens]
// -> [head_dim_v * n_head, n_tokens]
ggml_tensor * attention(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
                        const attention_params & params, int32_t il);

} // namespace pds
