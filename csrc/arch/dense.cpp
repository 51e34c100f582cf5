#include "arch/dense.h"

#include "base/error.h"
#include "graph/attention.h"
#include "graph/layers.h"

#include <cmath>

namespace pds {

namespace {

target_layer list_layer(weights & w, const target_hparams & hp, const dense_options & dense, int32_t il) {
    const auto    i        = static_cast<size_t>(il);
    const int64_t n_embd   = hp.n_embd;
    const int64_t n_embd_q = int64_t(hp.n_head[i]) * hp.head_dim_k;
    const int64_t n_embd_k = int64_t(hp.n_head_kv[i]) * hp.head_dim_k;
    const int64_t n_embd_v = int64_t(hp.n_head_kv[i]) * hp.head_dim_v;
    const int64_t n_embd_o = int64_t(hp.n_head[i]) * hp.head_dim_v;
    const int64_t n_ff     = hp.n_ff[i];
    linear_reader read(w, format("blk.%d.", il), il, dense.biases);

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
    layer.ffn_gate    = read.require("ffn_gate", n_embd, n_ff);
    layer.ffn_up      = read.require("ffn_up", n_embd, n_ff);
    layer.ffn_down    = read.require("ffn_down", n_ff, n_embd);
    return layer;
}

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

ggml_tensor * attention_block(graph_context & g, const target_hparams & hp, const target_tensors & t, ggml_tensor * x,
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

ggml_tensor * feed_forward(graph_context & g, const target_layer & layer, ggml_tensor * x, int32_t il) {
    ggml_tensor * gate = apply(g, layer.ffn_gate, x);
    ggml_tensor * up   = apply(g, layer.ffn_up, x);
    return g.name(apply(g, layer.ffn_down, ggml_swiglu_split(g.ctx, gate, up)), "ffn_out", il);
}

} // namespace

target_tensors list_dense_tensors(weights & w, const target_hparams & hp, const dense_options & dense) {
    for (size_t il = 0; il < hp.n_ff.size(); il++) {
        PDS_REQUIRE(hp.n_ff[il] > 0, PDS_ERR_FORMAT, "'%s.feed_forward_length' is missing", hp.architecture.c_str());
    }
    target_tensors t;
    t.token_embd  = w.require("token_embd.weight", { hp.n_embd, hp.n_vocab_rows }, weight_use::get_rows, -1);
    t.output_norm = w.require("output_norm.weight", { hp.n_embd }, weight_use::element_wise, hp.n_layer);
    linear_reader read(w, "", hp.n_layer, false);
    t.output = read.find("output", hp.n_embd, hp.n_vocab_rows);
    if (t.output.weight == nullptr) {
        t.output = read.require("token_embd", hp.n_embd, hp.n_vocab_rows);
    }
    for (int32_t il = 0; il < hp.n_layer; il++) {
        t.layers.push_back(list_layer(w, hp, dense, il));
    }
    return t;
}

void build_dense(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options,
                 const dense_options & dense) {
    ggml_tensor * x = g.name(ggml_get_rows(g.ctx, t.token_embd, g.inputs.tokens), "inp_embd"); // [n_embd, n_tokens]
    for (int32_t il = 0; il < hp.n_layer; il++) {
        const target_layer & layer = t.layers[static_cast<size_t>(il)];
        g.offer_feature(x, il);
        ggml_tensor * cur = g.name(rms_norm(g, x, layer.attn_norm, hp.rms_eps), "attn_norm", il);
        cur               = attention_block(g, hp, t, cur, options, dense, il);
        if (il == hp.n_layer - 1 && g.shape.n_outputs < g.shape.n_tokens) { // the rest is needed for these rows only
            cur = ggml_get_rows(g.ctx, cur, g.inputs.out_ids);
            x   = ggml_get_rows(g.ctx, x, g.inputs.out_ids);
        }
        x   = g.name(ggml_add(g.ctx, cur, x), "ffn_inp", il);
        cur = g.name(rms_norm(g, x, layer.ffn_norm, hp.rms_eps), "ffn_norm", il);
        cur = feed_forward(g, layer, cur, il);
        x   = g.name(ggml_add(g.ctx, cur, x), "l_out", il);
    }
    x = g.name(rms_norm(g, x, t.output_norm, hp.rms_eps), "result_norm");
    g.set_output(g.name(apply(g, t.output, x), "result_output")); // [n_vocab_rows, n_outputs]
}

} // namespace pds
