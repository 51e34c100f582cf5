// A feed-forward part that is a mixture of experts: each token goes through the few that a router chooses, and through
// one that all tokens share where the model has that.
#pragma once

#include "graph/linear.h"
#include "graph/moe-router.h"

namespace pds {

struct expert_matrix {
    ggml_tensor * weight = nullptr; // [n_in, n_out, n_expert]
    ggml_tensor * scale  = nullptr; // F32 [n_expert] factors of the products, or null
};

struct expert_weights {
    linear_weight router; // [n_embd, n_expert]
    expert_matrix gate;   // [n_embd, n_ff, n_expert], and up like it; or both in one, gate first:
    expert_matrix up;
    expert_matrix gate_up; // [n_embd, 2 * n_ff, n_expert]
    expert_matrix down;    // [n_ff, n_embd, n_expert]

    bool on_gpu = false; // only operations of ggml run there

    // the shared expert; null without one
    linear_weight shared_router; // [n_embd, 1]
    linear_weight shared_gate;   // [n_embd, n_ff_shared]
    linear_weight shared_up;
    linear_weight shared_down; // [n_ff_shared, n_embd]
};

struct expert_params {
    int32_t     n_used; // experts that a token goes through
    expert_form form;
};

// x [n_embd, n_tokens] is normalised, residual [n_embd, n_tokens] is not. -> residual + experts(x)
ggml_tensor * build_experts(graph_context & g, const expert_weights & w, const expert_params & p, ggml_tensor * x,
                            ggml_tensor * residual, int32_t il);

} // namespace pds
