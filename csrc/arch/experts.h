// The feed-forward part of architectures with a mixture of experts.
#pragma once

#include "arch/arch.h"

namespace pds {

// Of layer il, with the shared expert if the model has one.
expert_weights list_experts(weights & w, linear_reader & read, const target_hparams & hp, int32_t il);

// What build_decoder wants of a feed-forward part.
ggml_tensor * expert_feed_forward(graph_context & g, const target_hparams & hp, const target_layer & layer,
                                  ggml_tensor * x, ggml_tensor * residual, const build_options & options, int32_t il);

} // namespace pds
