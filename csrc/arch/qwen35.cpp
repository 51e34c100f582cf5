// Qwen3.5 and Qwen3.6: most layers are a gated delta net, every fourth or so is gated attention. The feed-forward part
// is dense, or a mixture of experts.
#include "arch/decoder.h"
#include "arch/experts.h"
#include "base/error.h"
#include "gguf/keys.h"
#include "graph/delta-net.h"
#include "graph/layers.h"

#include <cmath>
#include <numeric>

namespace pds {

namespace {

constexpr int64_t max_heads       = 1 << 16;
constexpr int64_t max_head_dim    = 1 << 12;
constexpr int64_t max_conv_kernel = 64;

// ---- hyper-parameters ----

void read_layer_kinds(const gguf_file & gguf, target_hparams & hp) {
    const auto        n_layer = static_cast<size_t>(hp.n_layer);
    const std::string key     = arch_key(hp.architecture, keys::recurrent_layers);
    if (gguf.has(key)) {
        const std::vector<bool> kinds = gguf.get_bools(key);
        PDS_REQUIRE(kinds.size() >= n_layer, PDS_ERR_FORMAT, "%s: '%s' has %zu entries for %zu layers",
                    gguf.path().c_str(), key.c_str(), kinds.size(), n_layer);
        hp.recurrent.assign(kinds.begin(), kinds.begin() + hp.n_layer);
    } else {
        const int64_t interval = hparam_int(gguf, keys::attention_interval, 1, 1 << 16, 4);
        for (size_t il = 0; il < n_layer; il++) {
            hp.recurrent[il] = (static_cast<int64_t>(il) + 1) % interval != 0;
        }
    }
    for (size_t il = 0; il < n_layer; il++) {
        hp.n_head_kv[il] = hp.recurrent[il] ? 0 : hp.n_head_kv[il]; // no cache
    }
}

void read_delta_net(const gguf_file & gguf, target_hparams & hp) {
    delta_net_hparams & dn = hp.delta_net;
    dn.head_dim            = static_cast<int32_t>(hparam_int(gguf, keys::state_size, 1, max_head_dim));
    dn.n_head_k            = static_cast<int32_t>(hparam_int(gguf, keys::n_state_group, 1, max_heads));
    dn.n_head_v            = static_cast<int32_t>(hparam_int(gguf, keys::n_time_step, 1, max_heads));
    dn.conv_kernel         = static_cast<int32_t>(hparam_int(gguf, keys::conv_kernel, 2, max_conv_kernel));
    PDS_REQUIRE(dn.n_head_v % dn.n_head_k == 0, PDS_ERR_FORMAT,
                "%s: recurrent layers have %d value heads, not a multiple of their %d key heads", gguf.path().c_str(),
                dn.n_head_v, dn.n_head_k);
    const int64_t inner = hparam_int(gguf, keys::inner_size, 1, max_heads * max_head_dim);
    PDS_REQUIRE(inner == dn.n_embd_v(), PDS_ERR_FORMAT,
                "%s: '%s.ssm.inner_size' is %lld, but %d value heads of %d make %lld", gguf.path().c_str(),
                hp.architecture.c_str(), static_cast<long long>(inner), dn.n_head_v, dn.head_dim,
                static_cast<long long>(dn.n_embd_v()));
}

// Text has one position per token. Then rotating by sections is rotating as usual, unless some pair belongs to none.
void check_sections(const gguf_file & gguf, const target_hparams & hp) {
    const std::string key = arch_key(hp.architecture, keys::rope_sections);
    PDS_REQUIRE(gguf.has(key), PDS_ERR_FORMAT, "%s: '%s' is missing", gguf.path().c_str(), key.c_str());
    const std::vector<int64_t> sections = gguf.get_ints(key);
    for (const int64_t section : sections) {
        PDS_REQUIRE(section >= 0 && section <= hp.n_rot, PDS_ERR_FORMAT, "%s: '%s' holds %lld", gguf.path().c_str(),
                    key.c_str(), static_cast<long long>(section));
    }
    bool covered = sections.size() >= 3;
    for (int64_t pair = 0; covered && pair < hp.n_rot / 2; pair++) {
        covered = pair < 3 * sections[static_cast<size_t>(pair % 3)];
    }
    PDS_REQUIRE(
        covered, PDS_ERR_UNSUPPORTED,
        "%s: '%s' leaves some of the %d rotated pairs of a head without a text position; supported are sections "
        "that cover all, such as 11,11,10,0 for 32",
        gguf.path().c_str(), key.c_str(), hp.n_rot / 2);
}

void read_hparams(const gguf_file & gguf, target_hparams & hp) {
    PDS_REQUIRE(hp.head_dim_k == hp.head_dim_v, PDS_ERR_FORMAT,
                "%s: attention keys have %d values per head and values %d; gated attention needs equal numbers",
                gguf.path().c_str(), hp.head_dim_k, hp.head_dim_v);
    read_layer_kinds(gguf, hp);
    read_delta_net(gguf, hp);
    check_sections(gguf, hp);
}

void read_moe_hparams(const gguf_file & gguf, target_hparams & hp) {
    read_hparams(gguf, hp);
    read_expert_hparams(gguf, hp);
    read_shared_expert_hparams(gguf, hp);
}

// ---- tensors ----

void list_attention(linear_reader & read, const target_hparams & hp, int32_t il, target_layer & layer) {
    const auto    i        = static_cast<size_t>(il);
    const int64_t n_embd_q = int64_t(hp.n_head[i]) * hp.head_dim_k * 2; // with the gate
    const int64_t n_embd_k = int64_t(hp.n_head_kv[i]) * hp.head_dim_k;
    const int64_t n_embd_v = int64_t(hp.n_head_kv[i]) * hp.head_dim_v;
    layer.qkv              = read.find("attn_qkv", hp.n_embd, n_embd_q + n_embd_k + n_embd_v);
    if (layer.qkv.weight == nullptr) {
        layer.q = read.require("attn_q", hp.n_embd, n_embd_q);
        layer.k = read.require("attn_k", hp.n_embd, n_embd_k);
        layer.v = read.require("attn_v", hp.n_embd, n_embd_v);
    }
    layer.q_norm      = read.norm("attn_q_norm", hp.head_dim_k);
    layer.k_norm      = read.norm("attn_k_norm", hp.head_dim_k);
    layer.attn_output = read.require("attn_output", int64_t(hp.n_head[i]) * hp.head_dim_v, hp.n_embd);
}

void list_delta_net(linear_reader & read, weights & w, const target_hparams & hp, int32_t il, target_layer & layer) {
    const delta_net_hparams & dn     = hp.delta_net;
    const std::string         prefix = format("blk.%d.", il);
    layer.qkv                        = read.require("attn_qkv", hp.n_embd, dn.n_channels());
    layer.output_gate                = read.require("attn_gate", hp.n_embd, dn.n_embd_v());
    layer.ssm_alpha                  = read.require("ssm_alpha", hp.n_embd, dn.n_head_v);
    layer.ssm_beta                   = read.require("ssm_beta", hp.n_embd, dn.n_head_v);
    layer.attn_output                = read.require("ssm_out", dn.n_embd_v(), hp.n_embd);
    layer.ssm_norm                   = read.norm("ssm_norm", dn.head_dim);
    layer.ssm_conv =
        w.require(prefix + "ssm_conv1d.weight", { dn.conv_kernel, dn.n_channels() }, weight_use::element_wise, il);
    layer.ssm_dt = w.require(prefix + "ssm_dt.bias", { dn.n_head_v }, weight_use::element_wise, il);
    layer.ssm_a  = w.require(prefix + "ssm_a", { dn.n_head_v }, weight_use::element_wise, il);
}

target_tensors list_tensors(weights & w, const target_hparams & hp) {
    const bool dense = hp.experts.n_expert == 0;
    if (dense) {
        require_dense_feed_forward(hp);
    }
    target_tensors t = list_decoder_ends(w, hp);
    for (int32_t il = 0; il < hp.n_layer; il++) {
        linear_reader read(w, format("blk.%d.", il), il, false);
        target_layer  layer;
        layer.attn_norm = read.norm("attn_norm", hp.n_embd);
        layer.ffn_norm  = read.norm("post_attention_norm", hp.n_embd);
        if (hp.recurrent[static_cast<size_t>(il)]) {
            list_delta_net(read, w, hp, il, layer);
        } else {
            list_attention(read, hp, il, layer);
        }
        if (dense) {
            list_dense_feed_forward(read, hp, il, layer);
        } else {
            layer.experts = list_experts(w, read, hp, il);
        }
        t.layers.push_back(layer);
    }
    return t;
}

// ---- gated attention ----

struct projections {
    ggml_tensor * q;    // [head_dim_k, n_head, n_tokens]
    ggml_tensor * gate; // [head_dim_k, n_head, n_tokens]
    ggml_tensor * k;    // [head_dim_k, n_head_kv, n_tokens]
    ggml_tensor * v;    // [head_dim_v * n_head_kv, n_tokens]
};

// Each head has its query's rows, then its gate's.
projections project(graph_context & g, const target_layer & layer, ggml_tensor * x, const attention_params & a) {
    const int64_t n_tokens = x->ne[1];
    const size_t  head     = static_cast<size_t>(a.head_dim_k) * sizeof(float);
    const auto    n_head   = static_cast<size_t>(a.n_head);
    const auto    n_kv     = static_cast<size_t>(a.n_head_kv);
    const auto    heads    = [&](ggml_tensor * rows, int64_t n, size_t step, size_t offset) {
        return ggml_view_3d(g.ctx, rows, a.head_dim_k, n, n_tokens, step, rows->nb[1], offset);
    };
    if (layer.qkv.weight == nullptr) {
        ggml_tensor * qg = apply(g, layer.q, x);
        ggml_tensor * k  = apply(g, layer.k, x);
        ggml_tensor * v  = apply(g, layer.v, x);
        return { heads(qg, a.n_head, 2 * head, 0), heads(qg, a.n_head, 2 * head, head), heads(k, a.n_head_kv, head, 0),
                 v };
    }
    ggml_tensor * all      = apply(g, layer.qkv, x); // rows: queries with gates, keys, values
    const size_t  offset_k = 2 * head * n_head;
    return { heads(all, a.n_head, 2 * head, 0), heads(all, a.n_head, 2 * head, head),
             heads(all, a.n_head_kv, head, offset_k),
             ggml_view_2d(g.ctx, all, a.head_dim_v * a.n_head_kv, n_tokens, all->nb[1], offset_k + head * n_kv) };
}

ggml_tensor * gated_attention(graph_context & g, const target_hparams & hp, const target_layer & layer, ggml_tensor * x,
                              const build_options & options, int32_t il) {
    const auto             i      = static_cast<size_t>(il);
    const attention_params params = { hp.n_head[i],
                                      hp.n_head_kv[i],
                                      hp.head_dim_k,
                                      hp.head_dim_v,
                                      1.0f / std::sqrt(static_cast<float>(hp.head_dim_k)),
                                      options.attention };
    auto [q, gate, k, v]          = project(g, layer, x, params);
    const auto rotate             = [&](ggml_tensor * heads) {
        return ggml_rope_ext(g.ctx, heads, g.inputs.pos, nullptr, hp.n_rot, GGML_ROPE_TYPE_NEOX, hp.n_ctx_train,
                             hp.rope_freq_base, hp.rope_freq_scale, 0.0f, 1.0f, 32.0f, 1.0f);
    };
    q = g.name(rotate(rms_norm(g, q, layer.q_norm, hp.rms_eps)), "Qcur", il);
    k = g.name(rotate(rms_norm(g, k, layer.k_norm, hp.rms_eps)), "Kcur", il);
    g.expand(q);
    store_kv(g, options.cache.layer(il), k, g.name(v, "Vcur", il));
    ggml_tensor * heads = g.name(attend(g, options.cache.layer(il), q, g.inputs.mask, params), "kqv_out", il);
    gate                = ggml_cont_2d(g.ctx, gate, heads->ne[0], heads->ne[1]);
    heads               = ggml_mul(g.ctx, heads, ggml_sigmoid(g.ctx, gate));
    return g.name(apply(g, layer.attn_output, heads), "attn_out", il);
}

// ---- gated delta net ----

delta_net_params params_of(const target_hparams & hp, const target_layer & layer) {
    return { hp.delta_net, layer.ssm_conv, hp.rms_eps };
}

ggml_tensor * gated_delta_net(graph_context & g, const target_hparams & hp, const target_layer & layer, ggml_tensor * x,
                              const build_options & options, int32_t il) {
    const delta_net_hparams & dn       = hp.delta_net;
    const int64_t             n_tokens = x->ne[1];
    ggml_tensor *             mixed    = g.name(apply(g, layer.qkv, x), "linear_attn_qkv_mixed", il);
    ggml_tensor *             gate     = g.name(apply(g, layer.output_gate, x), "z", il);
    ggml_tensor *             beta     = g.name(ggml_sigmoid(g.ctx, apply(g, layer.ssm_beta, x)), "beta", il);
    ggml_tensor *             alpha    = ggml_add(g.ctx, apply(g, layer.ssm_alpha, x), layer.ssm_dt);
    ggml_tensor *             decay    = g.name(ggml_mul(g.ctx, ggml_softplus(g.ctx, alpha), layer.ssm_a), "gate", il);

    ggml_tensor * heads = delta_net(g, options.recurrent, il, params_of(hp, layer), { mixed, decay, beta });
    heads               = rms_norm(g, heads, layer.ssm_norm, hp.rms_eps);
    gate                = ggml_reshape_3d(g.ctx, gate, dn.head_dim, dn.n_head_v, n_tokens);
    heads               = ggml_mul(g.ctx, heads, ggml_silu(g.ctx, gate));
    heads               = g.name(ggml_reshape_2d(g.ctx, heads, dn.n_embd_v(), n_tokens), "final_output", il);
    return g.name(apply(g, layer.attn_output, heads), "linear_attn_out", il);
}

void build(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options) {
    decoder_layer layer;
    layer.mix = [&](ggml_tensor * x, int32_t il) {
        const auto i = static_cast<size_t>(il);
        return hp.recurrent[i] ? gated_delta_net(g, hp, t.layers[i], x, options, il)
                               : gated_attention(g, hp, t.layers[i], x, options, il);
    };
    layer.feed_forward = [&](ggml_tensor * x, ggml_tensor * residual, int32_t il) {
        const target_layer & tensors = t.layers[static_cast<size_t>(il)];
        return hp.experts.n_expert == 0 ? dense_feed_forward(g, tensors, x, residual, il)
                                        : expert_feed_forward(g, hp, tensors, x, residual, options, il);
    };
    build_decoder(g, hp, t, layer);
}

void build_replay(graph_context & g, const target_hparams & hp, const target_tensors & t,
                  const build_options & options) {
    for (int32_t il = 0; il < hp.n_layer; il++) {
        if (hp.recurrent[static_cast<size_t>(il)]) {
            replay_delta_net(g, options.recurrent, il, params_of(hp, t.layers[static_cast<size_t>(il)]));
        }
    }
}

} // namespace

const architecture arch_qwen35    = { "qwen35", read_hparams, list_tensors, build, build_replay };
const architecture arch_qwen35moe = { "qwen35moe", read_moe_hparams, list_tensors, build, build_replay };

} // namespace pds
