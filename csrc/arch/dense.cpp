#include "arch/dense.h"

#include "arch/decoder.h"
#include "base/error.h"
#include "graph/attention.h"
#include "graph/layers.h"

#include <cmath>

namespace pds {

namespace {

struct projections {
    ggml_tensor * q; // [head_dim_k, n_head, n_tokens]
    ggml_tensor * k; // [head_dim_k, n_head_kv, n_tokens]
    ggml_tensor * v; // [head_dim_v * n_head_kv, n_tokens]
};

projections project(graph_context & g, const target_layer & layer, ggml_tensor * x, const attention_params & a) {
    const int64_t n_tokens = g.shape.n_tokens;
    if (layer.qkv.weight == nullptr) {
        ggml_tensor * q = apply(g, layer.q, x);
        ggml_tensor * k = apply(g, layer.k, x);
        ggml_tensor * v = apply(g, layer.v, x);
        return { ggml_reshape_3d(g.ctx, q, a.head_dim_k, a.n_head, n_tokens),
                 ggml_reshape_3d(g.ctx, k, a.head_dim_k, a.n_head_kv, n_tokens), v };
    }
    ggml_tensor * qkv      = apply(g, layer.qkv, x); // rows: q, k, v
    const size_t  head     = static_cast<size_t>(a.head_dim_k) * sizeof(float);
    const size_t  offset_k = head * static_cast<size_t>(a.n_head);
    const size_t  offset_v = offset_k + head * static_cast<size_t>(a.n_head_kv);
    return { ggml_view_3d(g.ctx, qkv, a.head_dim_k, a.n_head, n_tokens, head, qkv->nb[1], 0),
             ggml_view_3d(g.ctx, qkv, a.head_dim_k, a.n_head_kv, n_tokens, head, qkv->nb[1], offset_k),
             ggml_view_2d(g.ctx, qkv, a.head_dim_v * a.n_head_kv, n_tokens, qkv->nb[1], offset_v) };
}

} // namespace

target_layer list_attention(linear_reader & read, const target_hparams & hp, const dense_options & dense, int32_t il) {
    const auto    i        = static_cast<size_t>(il);
    const int64_t n_embd   = hp.n_embd;
    const int64_t n_embd_q = int64_t(hp.n_head[i]) * hp.head_dim_k;
    const int64_t n_embd_k = int64_t(hp.n_head_kv[i]) * hp.head_dim_k;
    const int64_t n_embd_v = int64_t(hp.n_head_kv[i]) * hp.head_dim_v;
    const int64_t n_embd_o = int64_t(hp.n_head[i]) * hp.head_dim_v;

    target_layer layer;
    layer.attn_norm = read.norm("attn_norm", n_embd);
    layer.qkv       = read.find("attn_qkv", n_embd, n_embd_q + n_embd_k + n_embd_v);
    if (layer.qkv.weight == nullptr) {
        layer.q = read.require("attn_q", n_embd, n_embd_q);
        layer.k = read.require("attn_k", n_embd, n_embd_k);
        layer.v = read.require("attn_v", n_embd, n_embd_v);
    }
    if (dense.qk_norm) {
        layer.q_norm = read.norm("attn_q_norm", hp.head_dim_k);
        layer.k_norm = read.norm("attn_k_norm", hp.head_dim_k);
    }
    layer.attn_output = read.require("attn_output", n_embd_o, n_embd);
    layer.ffn_norm    = read.norm("ffn_norm", n_embd);
    return layer;
}

ggml_tensor * attend_layer(graph_context & g, const target_hparams & hp, const target_tensors & t, ggml_tensor * x,
                           const build_options & options, const dense_options & dense, int32_t il) {
    const auto             i      = static_cast<size_t>(il);
    const target_layer &   layer  = t.layers[i];
    const attention_params params = { hp.n_head[i],
                                      hp.n_head_kv[i],
                                      hp.head_dim_k,
                                      hp.head_dim_v,
                                      1.0f / std::sqrt(static_cast<float>(hp.head_dim_k)),
                                      options.attention };
    auto [q, k, v]                = project(g, layer, x, params);
    if (dense.qk_norm) {
        q = g.name(rms_norm(g, q, layer.q_norm, hp.rms_eps), "Qcur_normed", il);
        k = g.name(rms_norm(g, k, layer.k_norm, hp.rms_eps), "Kcur_normed", il);
    }
    const auto rotate = [&](ggml_tensor * heads) {
        return ggml_rope_ext(g.ctx, heads, g.inputs.pos, t.rope_freqs, hp.n_rot, dense.rope_mode, hp.n_ctx_train,
                             hp.rope_freq_base, hp.rope_freq_scale, 0.0f, 1.0f, 32.0f, 1.0f);
    };
    q = g.name(rotate(q), "Qcur", il);
    k = g.name(rotate(k), "Kcur", il);
    v = g.name(v, "Vcur", il);
    g.expand(q);
    store_kv(g, options.cache.layer(il), k, v);
    ggml_tensor * heads = g.name(attend(g, options.cache.layer(il), q, g.inputs.mask, params), "kqv_out", il);
    return g.name(apply(g, layer.attn_output, heads), "attn_out", il);
}

target_tensors list_dense_tensors(weights & w, const target_hparams & hp, const dense_options & dense) {
    require_dense_feed_forward(hp);
    target_tensors t = list_decoder_ends(w, hp);
    for (int32_t il = 0; il < hp.n_layer; il++) {
        linear_reader read(w, format("blk.%d.", il), il, dense.biases);
        target_layer  layer = list_attention(read, hp, dense, il);
        list_dense_feed_forward(read, hp, il, layer);
        t.layers.push_back(layer);
    }
    return t;
}

void build_dense(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options,
                 const dense_options & dense) {
    decoder_layer layer;
    layer.mix          = [&](ggml_tensor * x, int32_t il) { return attend_layer(g, hp, t, x, options, dense, il); };
    layer.feed_forward = [&](ggml_tensor * x, ggml_tensor * residual, int32_t il) {
        return dense_feed_forward(g, t.layers[static_cast<size_t>(il)], x, residual, il);
    };
    build_decoder(g, hp, t, layer);
}

} // namespace pds
