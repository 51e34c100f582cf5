#include "graph/attention.h"

namespace pds {

namespace {

// the first n_kv rows of a cache tensor: [head_dim, n_kv, n_head_kv]
ggml_tensor * visible(graph_context & g, ggml_tensor * cache, int64_t head_dim, int64_t n_head_kv, int64_t n_kv) {
    ggml_tensor * rows =
        ggml_view_3d(g.ctx, cache, head_dim, n_head_kv, n_kv, ggml_row_size(cache->type, head_dim), cache->nb[1], 0);
    return ggml_permute(g.ctx, rows, 0, 2, 1, 3);
}

// -> [head_dim_v, n_head, rows of q]
ggml_tensor * fused(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * mask,
                    const attention_params & p) {
    const int64_t n_kv = mask->ne[0];
    ggml_tensor * k    = visible(g, cache.k, p.head_dim_k, p.n_head_kv, n_kv);
    ggml_tensor * v    = visible(g, cache.v, p.head_dim_v, p.n_head_kv, n_kv);
    ggml_tensor * out  = ggml_flash_attn_ext(g.ctx, q, k, v, mask, p.scale, 0.0f, 0.0f);
    ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
    return out;
}

// The fused kernel splits the cache for a single row, in a way that depends on how many cache rows it is given.
ggml_tensor * fused_by_row(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * mask,
                           const attention_params & p) {
    ggml_tensor * all = nullptr;
    for (int64_t row = 0; row < g.shape.n_tokens; row++) {
        const int64_t n_kv  = row < g.shape.n_low ? g.shape.n_kv - kv_cache::row_step : g.shape.n_kv;
        const auto    r     = static_cast<size_t>(row);
        ggml_tensor * q_row = ggml_view_3d(g.ctx, q, p.head_dim_k, 1, p.n_head, q->nb[1], q->nb[2], r * q->nb[1]);
        ggml_tensor * m_row = ggml_view_2d(g.ctx, mask, n_kv, 1, mask->nb[1], r * mask->nb[1]);
        ggml_tensor * out   = fused(g, cache, q_row, m_row, p);
        all                 = all == nullptr ? out : ggml_concat(g.ctx, all, out, 2);
    }
    return all;
}

ggml_tensor * plain(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * mask,
                    const attention_params & p) {
    ggml_tensor * k      = visible(g, cache.k, p.head_dim_k, p.n_head_kv, g.shape.n_kv);
    ggml_tensor * v      = visible(g, cache.v, p.head_dim_v, p.n_head_kv, g.shape.n_kv);
    ggml_tensor * scores = ggml_mul_mat(g.ctx, k, q); // [n_kv, n_tokens, n_head]
    ggml_mul_mat_set_prec(scores, GGML_PREC_F32);
    scores            = ggml_soft_max_ext(g.ctx, scores, mask, p.scale, 0.0f);
    ggml_tensor * v_t = ggml_cont(g.ctx, ggml_transpose(g.ctx, v)); // [n_kv, head_dim_v, n_head_kv]
    ggml_tensor * out = ggml_mul_mat(g.ctx, v_t, scores);           // [head_dim_v, n_tokens, n_head]
    return ggml_cont(g.ctx, ggml_permute(g.ctx, out, 0, 2, 1, 3));
}

} // namespace

// What is written must come before what reads it: the order of execution is the order of expansion.
void store_kv(graph_context & g, const kv_layer & cache, ggml_tensor * k, ggml_tensor * v) {
    ggml_tensor * k_rows = ggml_reshape_2d(g.ctx, k, k->ne[0] * k->ne[1], k->ne[2]);
    g.expand(ggml_set_rows(g.ctx, cache.k, k_rows, g.inputs.kv_rows));
    g.expand(ggml_set_rows(g.ctx, cache.v, v, g.inputs.kv_rows));
}

ggml_tensor * attend(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * mask,
                     const attention_params & params) {
    ggml_tensor * heads = ggml_permute(g.ctx, q, 0, 2, 1, 3); // [head_dim_k, n_tokens, n_head]
    ggml_tensor * out   = nullptr;
    switch (params.form) {
    case attention_form::fused:
        out = fused(g, cache, heads, mask, params);
        break;
    case attention_form::fused_by_row:
        out = fused_by_row(g, cache, heads, mask, params);
        break;
    case attention_form::plain:
        out = plain(g, cache, heads, mask, params);
        break;
    }
    return ggml_reshape_2d(g.ctx, out, params.head_dim_v * params.n_head, g.shape.n_tokens);
}

} // namespace pds
