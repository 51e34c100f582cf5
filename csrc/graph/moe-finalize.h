// The end of a mixture of experts: what its experts gave becomes what is added to the residual stream.
#pragma once

#include "graph/moe-router.h"

namespace pds {

// y = sum of experts[i] * weight[i] * scale[id] + shared * sigmoid(shared_gate) + residual
struct expert_results {
    ggml_tensor * experts; // F32 [n_embd, n_used, n_tokens]
    routing       route;
    ggml_tensor * scale;       // F32 [n_expert] of what each expert gave, or null
    ggml_tensor * shared;      // F32 [n_embd, n_tokens], or null
    ggml_tensor * shared_gate; // F32 [1, n_tokens], null without shared
    ggml_tensor * residual;    // F32 [n_embd, n_tokens]
};

// -> F32 [n_embd, n_tokens]
ggml_tensor * moe_finalize(graph_context & g, const expert_results & results, expert_form form);

// Of each token's experts: scale [n_expert] -> F32 [1, n_used, n_tokens]
ggml_tensor * scale_of_experts(graph_context & g, ggml_tensor * scale, ggml_tensor * ids);

} // namespace pds
