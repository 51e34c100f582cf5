// Qwen3 with a mixture of experts: the attention of Qwen3, another feed-forward part.
#include "arch/decoder.h"
#include "arch/dense.h"
#include "arch/experts.h"
#include "base/error.h"

namespace pds {

namespace {

constexpr dense_options attention = { GGML_ROPE_TYPE_NEOX, true, false };

void read_hparams(const gguf_file & gguf, target_hparams & hp) {
    PDS_REQUIRE(hp.n_rot == hp.head_dim_k, PDS_ERR_FORMAT,
                "%s: rope.dimension_count is %d, but heads have %d dimensions", gguf.path().c_str(), hp.n_rot,
                hp.head_dim_k);
    read_expert_hparams(gguf, hp);
}

target_tensors list_tensors(weights & w, const target_hparams & hp) {
    target_tensors t = list_decoder_ends(w, hp);
    for (int32_t il = 0; il < hp.n_layer; il++) {
        linear_reader read(w, format("blk.%d.", il), il, attention.biases);
        target_layer  layer = list_attention(read, hp, attention, il);
        layer.experts       = list_experts(w, read, hp, il);
        t.layers.push_back(layer);
    }
    return t;
}

void build(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options) {
    decoder_layer layer;
    layer.mix          = [&](ggml_tensor * x, int32_t il) { return attend_layer(g, hp, t, x, options, attention, il); };
    layer.feed_forward = [&](ggml_tensor * x, ggml_tensor * residual, int32_t il) {
        return expert_feed_forward(g, hp, t.layers[static_cast<size_t>(il)], x, residual, options, il);
    };
    build_decoder(g, hp, t, layer);
}

} // namespace

const architecture arch_qwen3moe = { "qwen3moe", read_hparams, list_tensors, build, nullptr };

} // namespace pds
