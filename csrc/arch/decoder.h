// What all decoders share: embedding, a residual stream through the layers, and the head.
#pragma once

#include "arch/arch.h"

#include <functional>

namespace pds {

// The parts of a layer. x [n_embd, n_tokens] is normalised.
struct decoder_layer {
    // Attention, or what takes its place. -> [n_embd, n_tokens]
    std::function<ggml_tensor *(ggml_tensor * x, int32_t il)> mix;
    // -> what is added to the residual stream, with the stream itself
    std::function<ggml_tensor *(ggml_tensor * x, ggml_tensor * residual, int32_t il)> feed_forward;
};

// Everything but the layers.
target_tensors list_decoder_ends(weights & w, const target_hparams & hp);

void build_decoder(graph_context & g, const target_hparams & hp, const target_tensors & t, const decoder_layer & layer);

void list_dense_feed_forward(linear_reader & read, const target_hparams & hp, int32_t il, target_layer & layer);

// Gated by SiLU, with the residual added.
ggml_tensor * dense_feed_forward(graph_context & g, const target_layer & layer, ggml_tensor * x, ggml_tensor * residual,
                                 int32_t il);

// Throws error(PDS_ERR_FORMAT) unless each layer has a dense feed-forward part.
void require_dense_feed_forward(const target_hparams & hp);

} // namespace pds
