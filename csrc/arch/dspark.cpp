#include "arch/dspark.h"

#include "base/error.h"
#include "graph/layers.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

draft_layer list_layer(weights & w, const draft_hparams & hp, int32_t il) {
    const int64_t n_embd   = hp.n_embd;
    const int64_t n_embd_q = int64_t(hp.n_head) * hp.head_dim;
    const int64_t n_embd_k = int64_t(hp.n_head_kv) * hp.head_dim;
    linear_reader read(w, format("blk.%d.", il), il, false);
    draft_layer   layer;
    layer.attn_norm   = read.norm("attn_norm", n_embd);
    layer.q           = read.require("attn_q", n_embd, n_embd_q);
    layer.k           = read.require("attn_k", n_embd, n_embd_k);
    layer.v           = read.require("attn_v", n_embd, n_embd_k);
    layer.q_norm      = read.norm("attn_q_norm", hp.head_dim);
    layer.k_norm      = read.norm("attn_k_norm", hp.head_dim);
    layer.attn_output = read.require("attn_output", n_embd_q, n_embd);
    layer.ffn_norm    = read.norm("ffn_norm", n_embd);
    layer.ffn_gate    = read.require("ffn_gate", n_embd, hp.n_ff);
    layer.ffn_up      = read.require("ffn_up", n_embd, hp.n_ff);
    layer.ffn_down    = read.require("ffn_down", hp.n_ff, n_embd);
    return layer;
}

// Rows of the draft head: its own, those of the map to target ids, or all that the target's head has.
int64_t head_rows(const gguf_file & gguf, const target_tensors & target) {
    const gguf_tensor * own = gguf.find("output.weight");
    const gguf_tensor * map = gguf.find("d2t");
    return own != nullptr ? own->ne[1] : map != nullptr ? map->ne[0] : target.output.weight->ne[1];
}

void list_heads(weights & w, const gguf_file & gguf, const draft_hparams & hp, const target_tensors & target,
                int32_t n_candidates, draft_tensors & t) {
    const int64_t n_rows = head_rows(gguf, target);
    linear_reader read(w, "", hp.n_layer, true);
    t.output = read.find("output", hp.n_embd, n_rows);
    if (t.output.weight == nullptr) { // even beside an embedding of its own: heads are trained frozen
        t.output = target.output;
    }
    const gguf_tensor * w1 = gguf.find("markov_w1.weight");
    if (w1 != nullptr) {
        const int64_t rank = w1->ne[0];
        t.markov_w1        = w.require("markov_w1.weight", { rank, hp.n_vocab }, weight_use::get_rows, hp.n_layer);
        t.markov_w2 =
            read.require("markov_w2", rank, n_rows, n_candidates > 0 ? weight_use::get_rows : weight_use::mul_mat);
        t.n_candidates = n_candidates;
    }
    const gguf_tensor * conf = gguf.find("conf_proj.weight");
    if (conf != nullptr) {
        t.confidence_with_markov = conf->ne[0] != hp.n_embd;
        const int64_t n_in       = t.confidence_with_markov && w1 != nullptr ? hp.n_embd + w1->ne[0] : hp.n_embd;
        t.confidence             = read.require("conf_proj", n_in, 1);
    }
}

// [n_tokens] features side by side: [n_features, n_tokens]
ggml_tensor * join_features(graph_context & g) {
    ggml_tensor * joined = nullptr;
    for (ggml_tensor * feature : g.features) {
        PDS_REQUIRE(feature != nullptr, PDS_ERR_INTERNAL, "the target graph does not offer a feature layer");
        joined = joined == nullptr ? feature : ggml_concat(g.ctx, joined, feature, 0);
    }
    return joined;
}

ggml_tensor * rotate(graph_context & g, const draft_hparams & hp, ggml_tensor * heads) {
    return ggml_rope_ext(g.ctx, heads, g.inputs.pos, nullptr, hp.head_dim, GGML_ROPE_TYPE_NEOX, 0, hp.rope_freq_base,
                         1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
}

// x [n_embd, n_tokens] -> normalised and rotated heads [head_dim, n_head, n_tokens]
ggml_tensor * heads_of(graph_context & g, const draft_hparams & hp, const linear_weight & projection,
                       ggml_tensor * norm, int64_t n_head, ggml_tensor * x) {
    ggml_tensor * heads = ggml_reshape_3d(g.ctx, apply(g, projection, x), hp.head_dim, n_head, g.shape.n_tokens);
    return rotate(g, hp, rms_norm(g, heads, norm, hp.rms_eps));
}

void inject_layer(graph_context & g, const draft_hparams & hp, const draft_layer & layer, const kv_layer & cache,
                  ggml_tensor * x) {
    ggml_tensor * k = heads_of(g, hp, layer.k, layer.k_norm, hp.n_head_kv, x);
    store_kv(g, cache, k, apply(g, layer.v, x));
}

// The anchor's embedding, then masks: [n_embd, block_size]
ggml_tensor * block_embedding(graph_context & g, const draft_hparams & hp, const draft_tensors & t) {
    if (t.mask_embd == nullptr) {
        return ggml_get_rows(g.ctx, t.token_embd, g.inputs.tokens);
    }
    ggml_tensor * anchor = ggml_get_rows(g.ctx, t.token_embd, ggml_view_1d(g.ctx, g.inputs.tokens, 1, 0));
    ggml_tensor * masks  = ggml_repeat_4d(g.ctx, t.mask_embd, hp.n_embd, hp.block_size - 1, 1, 1);
    return ggml_concat(g.ctx, anchor, masks, 1);
}

ggml_tensor * block_layer(graph_context & g, const draft_hparams & hp, const draft_layer & layer,
                          const kv_layer & cache, ggml_tensor * x, ggml_tensor * mask, attention_form form) {
    const attention_params params = {
        hp.n_head, hp.n_head_kv, hp.head_dim, hp.head_dim, 1.0f / std::sqrt(static_cast<float>(hp.head_dim)), form
    };
    ggml_tensor * a = rms_norm(g, x, layer.attn_norm, hp.rms_eps);
    ggml_tensor * q = heads_of(g, hp, layer.q, layer.q_norm, hp.n_head, a);
    g.expand(q);
    inject_layer(g, hp, layer, cache, a); // the block's own keys and values, until the next injection overwrites them
    x               = ggml_add(g.ctx, x, apply(g, layer.attn_output, attend(g, cache, q, mask, params)));
    ggml_tensor * b = rms_norm(g, x, layer.ffn_norm, hp.rms_eps);
    ggml_tensor * y = ggml_swiglu_split(g.ctx, apply(g, layer.ffn_gate, b), apply(g, layer.ffn_up, b));
    return ggml_add(g.ctx, x, apply(g, layer.ffn_down, y));
}

ggml_tensor * column(graph_context & g, ggml_tensor * matrix, int64_t i) {
    return ggml_view_2d(g.ctx, matrix, matrix->ne[0], 1, matrix->nb[1], static_cast<size_t>(i) * matrix->nb[1]);
}

// hidden [n_embd, n] -> logits before the Markov head [n_rows, n]
ggml_tensor * base_logits(graph_context & g, const draft_tensors & t, const spare_rows * spare, ggml_tensor * hidden) {
    ggml_tensor * base = apply(g, t.output, hidden);
    if (spare != nullptr) {
        ggml_tensor * more = ggml_add(g.ctx, apply(g, spare->output, hidden), spare->offset);
        base               = ggml_concat(g.ctx, base, more, 0);
    }
    return g.name(base, "draft_base");
}

// base [n_rows, 1] and the embedding of the token before it [rank, 1] -> the logits to draw from: of all rows, or with
// candidates [n_candidates, 1]
ggml_tensor * with_markov(graph_context & g, const draft_tensors & t, const spare_rows * spare, ggml_tensor * base,
                          ggml_tensor * embedding, slot_draw * draw) {
    if (t.n_candidates > 0) {
        const int64_t n      = std::min<int64_t>(t.n_candidates, base->ne[0]);
        ggml_tensor * chosen = choose_candidates(g, base, n, draw);
        ggml_tensor * rows   = ggml_view_1d(g.ctx, chosen, n, 0);
        ggml_tensor * table  = ggml_view_1d(g.ctx, chosen, n, chosen->nb[1]);
        return ggml_add(g.ctx, pick(g, base, rows), apply_rows(g, t.markov_w2, table, embedding));
    }
    ggml_tensor * bias = apply(g, t.markov_w2, embedding);
    if (spare != nullptr) {
        bias = ggml_concat(g.ctx, bias, apply(g, spare->markov_w2, embedding), 0);
    }
    return ggml_add(g.ctx, base, bias);
}

// hidden [n_embd, n_chain]. Slot by slot, each with the token that the slot before it drew.
std::vector<draft_slot_outputs> markov_chain(graph_context & g, const draft_tensors & t, ggml_tensor * hidden,
                                             const block_options & options) {
    ggml_tensor *                   base     = base_logits(g, t, options.spare, hidden);   // [n_rows, n_chain]
    ggml_tensor *                   previous = ggml_view_1d(g.ctx, g.inputs.tokens, 1, 0); // the anchor
    std::vector<draft_slot_outputs> outputs;
    for (int32_t i = 0; i < g.shape.n_outputs; i++) {
        ggml_tensor *      row       = column(g, base, i);
        ggml_tensor *      embedding = nullptr; // [rank, 1]
        draft_slot_outputs slot      = { nullptr, nullptr };
        if (t.markov_w1 != nullptr) {
            embedding = ggml_get_rows(g.ctx, t.markov_w1, previous);
            row       = with_markov(g, t, options.spare, row, embedding, options.draws + i);
        }
        row = g.name(row, "draft_logits", i);
        if (t.confidence.weight != nullptr) {
            ggml_tensor * x = column(g, hidden, i);
            x               = t.confidence_with_markov ? ggml_concat(g.ctx, x, embedding, 0) : x;
            slot.confidence = g.name(apply(g, t.confidence, x), "draft_confidence", i);
            g.keep(slot.confidence);
        }
        slot.id = draw_token(g, row, options.draws + i);
        g.keep(slot.id);
        previous = slot.id;
        outputs.push_back(slot);
    }
    return outputs;
}

} // namespace

draft_tensors list_draft_tensors(weights & w, const gguf_file & gguf, const draft_hparams & hp,
                                 const target_tensors & target, int32_t n_candidates) {
    draft_tensors t;
    linear_reader read(w, "", 0, false);
    t.fc            = read.require("fc", hp.n_features, hp.n_embd);
    t.features_norm = read.norm("enc.output_norm", hp.n_embd);
    t.output_norm   = read.norm("output_norm", hp.n_embd);
    t.token_embd    = w.find("token_embd.weight", { hp.n_embd, hp.n_vocab }, weight_use::get_rows, -1);
    if (t.token_embd == nullptr) {
        t.token_embd = target.token_embd;
    }
    list_heads(w, gguf, hp, target, n_candidates, t);
    for (int32_t il = 0; il < hp.n_layer; il++) {
        t.layers.push_back(list_layer(w, hp, il));
    }
    return t;
}

void build_injection(graph_context & g, const draft_hparams & hp, const draft_tensors & t, const kv_cache & cache) {
    ggml_tensor * x = rms_norm(g, apply(g, t.fc, join_features(g)), t.features_norm, hp.rms_eps); // [n_embd, n_tokens]
    g.name(x, "draft_features");
    for (int32_t il = 0; il < hp.n_layer; il++) {
        inject_layer(g, hp, t.layers[static_cast<size_t>(il)], cache.layer(il), x);
    }
}

std::vector<draft_slot_outputs> build_block(graph_context & g, const draft_hparams & hp, const draft_tensors & t,
                                            const kv_cache & cache, const block_options & options) {
    ggml_tensor * x = block_embedding(g, hp, t); // [n_embd, block_size]
    for (int32_t il = 0; il < hp.n_layer; il++) {
        ggml_tensor * mask = hp.windowed[static_cast<size_t>(il)] ? options.windowed_mask : g.inputs.mask;
        x = block_layer(g, hp, t.layers[static_cast<size_t>(il)], cache.layer(il), x, mask, options.attention);
    }
    x = rms_norm(g, x, t.output_norm, hp.rms_eps);
    ggml_tensor * hidden =
        ggml_view_2d(g.ctx, x, hp.n_embd, g.shape.n_outputs, x->nb[1], static_cast<size_t>(hp.first_slot()) * x->nb[1]);
    return markov_chain(g, t, g.name(hidden, "draft_hidden"), options);
}

} // namespace pds
