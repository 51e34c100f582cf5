#include "graph/attention.h"

namespace pds {

namespace {

// the visible rows of a cache tensor: [head_dim, n_kv, n_head_kv]
ggml_tensor * visible(graph_context & g, ggml_tensor * cache, int64_t head_dim, int64_t n_head_kv) {
    ggml_tensor * rows = ggml_view_3d(g.ctx, cache, head_dim, n_head_kv, g.shape.n_kv,
                                      ggml_row_size(cache->type, head_dim), cache->nb[1], 0);
    return ggml_permute(g.ctx, rows, 0, 2, 1, 3);
}

ggml_tensor * fused_attention(graph_context & g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v, float scale) {
    ggml_tensor * out = ggml_flash_attn_ext(g.ctx, q, k, v, g.inputs.mask, scale, 0.0f, 0.0f);
    ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
    return out; // [head_dim_v, n_head, n_tokens]
}

ggml_tensor * plain_attention(graph_context & g, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v, float scale) {
    ggml_tensor * scores = ggml_mul_mat(g.ctx, k, q); // [n_kv, n_tokens, n_head]
    ggml_mul_mat_set_prec(scores, GGML_PREC_F32);
    scores            = ggml_soft_max_ext(g.ctx, scores, g.inputs.mask, scale, 0.0f);
    ggml_tensor * v_t = ggml_cont(g.ctx, ggml_transpose(g.ctx, v)); // [n_kv, head_dim_v, n_head_kv]
    ggml_tensor * out = ggml_mul_mat(g.ctx, v_t, scores);           // [head_dim_v, n_tokens, n_head]
    return ggml_cont(g.ctx, ggml_permute(g.ctx, out, 0, 2, 1, 3));
}

} // namespace

ggml_tensor * attention(graph_context & g, const kv_layer & cache, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
                        const attention_params & params, int32_t il) {
    const int64_t n_tokens = g.shape.n_tokens;
    // written before anything reads the cache: the order of execution is the order of expansion
    g.expand(q);
    g.expand(ggml_set_rows(g.ctx, cache.k, ggml_reshape_2d(g.ctx, k, params.head_dim_k * params.n_head_kv, n_tokens),
                           g.inputs.kv_rows));
    g.expand(ggml_set_rows(g.ctx, cache.v, v, g.inputs.kv_rows));

    q                   = ggml_permute(g.ctx, q, 0, 2, 1, 3); // [head_dim_k, n_tokens, n_head]
    ggml_tensor * k_all = visible(g, cache.k, params.head_dim_k, params.n_head_kv);
    ggml_tensor * v_all = visible(g, cache.v, params.head_dim_v, params.n_head_kv);
    ggml_tensor * out   = params.fused ? fused_attention(g, q, k_all, v_all, params.scale)
                                       : plain_attention(g, q, k_all, v_all, params.scale);
    out                 = ggml_reshape_2d(g.ctx, out, params.head_dim_v * params.n_head, n_tokens);
    return g.name(out, "kqv_out", il);
}

} // namespace pds
