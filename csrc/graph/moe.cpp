#include "graph/moe.h"

#include "graph/moe-finalize.h"

namespace pds {

namespace {

// products [n_out, n_used, n_tokens]. The scale of up could wait for the sum, too, but products without it are large:
// the 8-bit form in which the next matrix reads them would lose digits, or overflow.
ggml_tensor * scaled(graph_context & g, const expert_matrix & matrix, ggml_tensor * products, ggml_tensor * ids) {
    return matrix.scale == nullptr ? products : ggml_mul(g.ctx, products, scale_of_experts(g, matrix.scale, ids));
}

// Gated by SiLU. x [n_embd, 1, n_tokens] -> [n_ff, n_used, n_tokens]
ggml_tensor * gated(graph_context & g, const expert_weights & w, ggml_tensor * x, ggml_tensor * ids, int32_t il) {
    if (w.gate_up.weight != nullptr) {
        return ggml_swiglu(g.ctx, g.name(ggml_mul_mat_id(g.ctx, w.gate_up.weight, x, ids), "ffn_moe_gate_up", il));
    }
    ggml_tensor * gate =
        g.name(scaled(g, w.gate, ggml_mul_mat_id(g.ctx, w.gate.weight, x, ids), ids), "ffn_moe_gate", il);
    ggml_tensor * up = g.name(scaled(g, w.up, ggml_mul_mat_id(g.ctx, w.up.weight, x, ids), ids), "ffn_moe_up", il);
    return ggml_swiglu_split(g.ctx, gate, up);
}

ggml_tensor * shared_expert(graph_context & g, const expert_weights & w, ggml_tensor * x, int32_t il) {
    ggml_tensor * gate = apply(g, w.shared_gate, x);
    ggml_tensor * up   = apply(g, w.shared_up, x);
    return g.name(apply(g, w.shared_down, ggml_swiglu_split(g.ctx, gate, up)), "ffn_shexp", il);
}

} // namespace

ggml_tensor * build_experts(graph_context & g, const expert_weights & w, const expert_params & p, ggml_tensor * x,
                            ggml_tensor * residual, int32_t il) {
    ggml_tensor * logits = g.name(apply(g, w.router, x), "ffn_moe_logits", il);
    const routing routed = route(g, logits, p.n_used, p.form, il);

    ggml_tensor *  x_3d    = ggml_reshape_3d(g.ctx, x, x->ne[0], 1, x->ne[1]);
    ggml_tensor *  hidden  = g.name(gated(g, w, x_3d, routed.ids, il), "ffn_moe_swiglu", il);
    expert_results results = {};
    results.experts        = g.name(ggml_mul_mat_id(g.ctx, w.down.weight, hidden, routed.ids), "ffn_moe_down", il);
    results.route          = routed;
    results.scale          = w.down.scale;
    results.residual       = residual;
    if (w.shared_down.weight != nullptr) {
        results.shared      = shared_expert(g, w, x, il);
        results.shared_gate = g.name(apply(g, w.shared_router, x), "shared_expert_gate", il);
    }
    return moe_finalize(g, results, p.form);
}

} // namespace pds
