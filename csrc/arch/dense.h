// The dense decoder that several architectures are variations of: attention, then a gated feed-forward, each on a
// normalised copy of the residual stream.
#pragma once

#include "arch/arch.h"

namespace pds {

struct dense_options {
    int  rope_mode; // GGML_ROPE_TYPE_*
    bool qk_norm;   // q and k heads are normalised before rotation
    bool biases;    // linear layers may have biases
};

target_tensors list_dense_tensors(weights & w, const target_hparams & hp, const dense_options & dense);
void build_dense(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options,
                 const dense_options & dense);

// The part that architectures with another feed-forward part have in common with it: attention, and both norms.
target_layer list_attention(linear_reader & read, const target_hparams & hp, const dense_options & dense, int32_t il);
// x [n_embd, n_tokens] is normalised. -> [n_embd, n_tokens]
ggml_tensor * attend_layer(graph_context & g, const target_hparams & hp, const target_tensors & t, ggml_tensor * x,
                           const build_options & options, const dense_options & dense, int32_t il);

} // namespace pds
