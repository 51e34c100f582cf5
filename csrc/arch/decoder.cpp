#include "arch/decoder.h"

#include "base/error.h"
#include "graph/layers.h"

namespace pds {

target_tensors list_decoder_ends(weights & w, const target_hparams & hp) {
    target_tensors t;
    t.token_embd  = w.require("token_embd.weight", { hp.n_embd, hp.n_vocab_rows }, weight_use::get_rows, -1);
    t.output_norm = w.require("output_norm.weight", { hp.n_embd }, weight_use::element_wise, hp.n_layer);
    linear_reader read(w, "", hp.n_layer, false);
    t.output = read.find("output", hp.n_embd, hp.n_vocab_rows);
    if (t.output.weight == nullptr) {
        t.output.weight =
            w.require("token_embd.weight", { hp.n_embd, hp.n_vocab_rows }, weight_use::mul_mat, hp.n_layer);
    }
    return t;
}

void build_decoder(graph_context & g, const target_hparams & hp, const target_tensors & t,
                   const decoder_layer & layer) {
    ggml_tensor * x = g.name(ggml_get_rows(g.ctx, t.token_embd, g.inputs.tokens), "inp_embd"); // [n_embd, n_tokens]
    for (int32_t il = 0; il < hp.n_layer; il++) {
        const target_layer & tensors = t.layers[static_cast<size_t>(il)];
        g.offer_feature(x, il);
        ggml_tensor * cur = layer.mix(g.name(rms_norm(g, x, tensors.attn_norm, hp.rms_eps), "attn_norm", il), il);
        if (il == hp.n_layer - 1 && g.shape.n_outputs < g.shape.n_tokens) { // the rest is needed for these rows only
            cur = ggml_get_rows(g.ctx, cur, g.inputs.out_ids);
            x   = ggml_get_rows(g.ctx, x, g.inputs.out_ids);
        }
        x   = g.name(ggml_add(g.ctx, cur, x), "ffn_inp", il);
        cur = g.name(rms_norm(g, x, tensors.ffn_norm, hp.rms_eps), "ffn_norm", il);
        x   = g.name(layer.feed_forward(cur, x, il), "l_out", il);
    }
    x = g.name(rms_norm(g, x, t.output_norm, hp.rms_eps), "result_norm");
    g.set_output(g.name(apply(g, t.output, x), "result_output")); // [n_vocab_rows, n_outputs]
}

void list_dense_feed_forward(linear_reader & read, const target_hparams & hp, int32_t il, target_layer & layer) {
    const int64_t n_ff = hp.n_ff[static_cast<size_t>(il)];
    layer.ffn_gate     = read.require("ffn_gate", hp.n_embd, n_ff);
    layer.ffn_up       = read.require("ffn_up", hp.n_embd, n_ff);
    layer.ffn_down     = read.require("ffn_down", n_ff, hp.n_embd);
}

ggml_tensor * dense_feed_forward(graph_context & g, const target_layer & layer, ggml_tensor * x, ggml_tensor * residual,
                                 int32_t il) {
    ggml_tensor * gate = apply(g, layer.ffn_gate, x);
    ggml_tensor * up   = apply(g, layer.ffn_up, x);
    ggml_tensor * out  = g.name(apply(g, layer.ffn_down, ggml_swiglu_split(g.ctx, gate, up)), "ffn_out", il);
    return ggml_add(g.ctx, out, residual);
}

void require_dense_feed_forward(const target_hparams & hp) {
    for (const int32_t n_ff : hp.n_ff) {
        PDS_REQUIRE(n_ff > 0, PDS_ERR_FORMAT, "'%s.feed_forward_length' is missing or 0", hp.architecture.c_str());
    }
}

} // namespace pds
