// Attention over a cache.
#pragma once

#include "graph/graph-context.h"
#include "memory/kv-cache.h"

namespace pds {

enum class attention_form {
    fused,        // one flash-attention operation for the batch
    fused_by_row, // one for each row, so that a row is computed just as if it were decoded alone
    plain,        // the twin of both from plain operations
};

struct attention_params {
    int64_t        n_head;
    int64_t        n_head_kv;
    int64_t        head_dim_k;
    int64_t        head_dim_v;
    float          scale; // of the scores
    attention_form form;
};

// Writes k [head_dim_k, n_head_kv, n_tokens] and v [head_dim_v * n_head_kv, n_tokens] to the cache rows of this batch.
void store_kv(graph_context & g, const kv_layer & cache, ggml_tensor * k, ggml_tensor * v);

// q [head_dim_k, n_head, n_tokens] over what the mask [n_kv, n_tokens] shows of the cache
// -> [head_dim_v * n_head, n_tokens]
ggml_tensor * attend(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * mask,
                     const attention_params & params);

} // namespace pds
