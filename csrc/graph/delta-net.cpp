#include "graph/delta-net.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

// x [head_dim, n_head, n_tokens] -> each head divided by sqrt(|x|^2 + eps)
ggml_tensor * l2_normalised(graph_context & g, ggml_tensor * x, float eps) {
    const auto n = static_cast<float>(x->ne[0]);
    return ggml_scale(g.ctx, ggml_rms_norm(g.ctx, x, eps / n), 1.0f / std::sqrt(n));
}

struct heads {
    ggml_tensor * q; // [head_dim, n_head_k, n_tokens]
    ggml_tensor * k; // [head_dim, n_head_k, n_tokens]
    ggml_tensor * v; // [head_dim, n_head_v, n_tokens]
};

// series [conv_kernel - 1 + n_tokens, n_channels]
heads convolved_heads(graph_context & g, ggml_tensor * series, int64_t n_tokens, const delta_net_params & params) {
    const delta_net_hparams & hp       = params.hp;
    ggml_tensor *             in_batch = ggml_reshape_3d(g.ctx, series, series->ne[0], series->ne[1], 1);
    ggml_tensor * y    = ggml_silu(g.ctx, ggml_ssm_conv(g.ctx, in_batch, params.conv)); // [n_channels, n_tokens, 1]
    const size_t  head = static_cast<size_t>(hp.head_dim) * sizeof(float);
    const auto    part = [&](int32_t n_head, int64_t first) {
        return ggml_view_3d(g.ctx, y, hp.head_dim, n_head, n_tokens, head, y->nb[1],
                            static_cast<size_t>(first) * sizeof(float));
    };
    return { l2_normalised(g, part(hp.n_head_k, 0), params.l2_eps),
             l2_normalised(g, part(hp.n_head_k, hp.n_embd_k()), params.l2_eps), part(hp.n_head_v, 2 * hp.n_embd_k()) };
}

// decay, beta [n_head_v, n_tokens]. -> [head_dim * n_head_v, n_tokens + n_states * head_dim] outputs, then states
ggml_tensor * recurrence(graph_context & g, const recurrent_layer & layer, const heads & h, ggml_tensor * decay,
                         ggml_tensor * beta, int64_t n_states) {
    const int64_t head_dim = h.v->ne[0], n_head_v = h.v->ne[1], n_tokens = h.v->ne[2];
    ggml_tensor * state = ggml_get_rows(g.ctx, layer.state, g.recurrent.slot);
    return ggml_gated_delta_net(g.ctx, h.q, h.k, h.v, ggml_reshape_4d(g.ctx, decay, 1, n_head_v, n_tokens, 1),
                                ggml_reshape_4d(g.ctx, beta, 1, n_head_v, n_tokens, 1),
                                ggml_reshape_4d(g.ctx, state, head_dim, head_dim, n_head_v, 1), n_states);
}

// The states behind n_tokens outputs, newest first.
void store_states(graph_context & g, const recurrent_layer & layer, ggml_tensor * result, int64_t n_tokens,
                  int64_t n_states) {
    const int64_t n_state = layer.state->ne[0];
    ggml_tensor * states  = ggml_view_2d(g.ctx, result, n_state, n_states, static_cast<size_t>(n_state) * sizeof(float),
                                         static_cast<size_t>(n_tokens) * result->nb[1]);
    g.expand(ggml_set_rows(g.ctx, layer.state, states, g.recurrent.slots_out));
}

// before [n_channels, conv_kernel - 1]: what the convolution needs for the next batch, and a replay for this one.
void store_inputs(graph_context & g, const recurrent_state & memory, const recurrent_layer & layer,
                  ggml_tensor * before, const delta_net_inputs & in) {
    const int64_t n_tokens = in.mixed->ne[1];
    const int64_t n_before = before->ne[1];
    const int64_t n_stored = g.recurrent.rows_out->ne[0] - n_before;
    ggml_tensor * last     = ggml_view_2d(g.ctx, in.mixed, in.mixed->ne[0], n_stored, in.mixed->nb[1],
                                          static_cast<size_t>(n_tokens - n_stored) * in.mixed->nb[1]);
    g.expand(ggml_set_rows(g.ctx, layer.inputs, ggml_concat(g.ctx, before, last, 1), g.recurrent.rows_out));
    if (layer.gates != nullptr && n_tokens > 1 && n_tokens <= memory.n_returnable()) {
        ggml_tensor * kept = ggml_view_2d(g.ctx, layer.gates, layer.gates->ne[0], n_tokens, layer.gates->nb[1], 0);
        g.expand(ggml_cpy(g.ctx, ggml_concat(g.ctx, in.decay, in.beta, 0), kept));
    }
}

} // namespace

ggml_tensor * delta_net(graph_context & g, const recurrent_state & memory, int32_t il, const delta_net_params & params,
                        const delta_net_inputs & in) {
    const recurrent_layer & layer    = memory.layer(il);
    const int64_t           n_tokens = in.mixed->ne[1];
    const int32_t           n_states = memory.n_states_written(static_cast<int32_t>(n_tokens));
    ggml_tensor *           before   = ggml_get_rows(g.ctx, layer.inputs, g.recurrent.rows);
    ggml_tensor * series = ggml_concat(g.ctx, ggml_transpose(g.ctx, before), ggml_transpose(g.ctx, in.mixed), 0);
    const heads   h      = convolved_heads(g, series, n_tokens, params);
    ggml_tensor * result = recurrence(g, layer, h, in.decay, in.beta, n_states);
    store_states(g, layer, result, n_tokens, n_states);
    store_inputs(g, memory, layer, before, in);
    const size_t head = static_cast<size_t>(params.hp.head_dim) * sizeof(float);
    return ggml_view_3d(g.ctx, result, params.hp.head_dim, params.hp.n_head_v, n_tokens, head, result->nb[1], 0);
}

void replay_delta_net(graph_context & g, const recurrent_state & memory, int32_t il, const delta_net_params & params) {
    const recurrent_layer & layer    = memory.layer(il);
    const int64_t           n_tokens = g.shape.n_tokens;
    const int64_t           n_head_v = params.hp.n_head_v;
    ggml_tensor *           rows     = ggml_get_rows(g.ctx, layer.inputs, g.recurrent.rows); // [n_channels, ...]
    const heads             h     = convolved_heads(g, ggml_cont(g.ctx, ggml_transpose(g.ctx, rows)), n_tokens, params);
    const size_t            beta  = static_cast<size_t>(n_head_v) * sizeof(float);
    const auto              gates = [&](size_t offset) {
        return ggml_cont(g.ctx, ggml_view_2d(g.ctx, layer.gates, n_head_v, n_tokens, layer.gates->nb[1], offset));
    };
    ggml_tensor * result = recurrence(g, layer, h, gates(0), gates(beta), 1);
    store_states(g, layer, result, n_tokens, 1);
}

} // namespace pds
