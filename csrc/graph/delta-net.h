// The gated delta net: a layer that remembers a matrix per head, which each token decays and corrects.
// Yang et al., "Gated Delta Networks", https://arxiv.org/abs/2412.06464
#pragma once

#include "graph/graph-context.h"
#include "memory/recurrent-state.h"
#include "model/hparams.h"

namespace pds {

struct delta_net_params {
    const delta_net_hparams & hp;
    ggml_tensor *             conv;   // F32 [conv_kernel, n_channels] taps, oldest first
    float                     l2_eps; // added to the squared length of a query or key
};

struct delta_net_inputs {
    ggml_tensor * mixed; // F32 [n_channels, n_tokens] queries, keys and values before the convolution
    ggml_tensor * decay; // F32 [n_head_v, n_tokens] logarithm of what is left of the state, <= 0
    ggml_tensor * beta;  // F32 [n_head_v, n_tokens] how much of the error is corrected, 0..1
};

// Continues from the state of a layer and leaves the new one. -> [head_dim, n_head_v, n_tokens]
ggml_tensor * delta_net(graph_context & g, const recurrent_state & memory, int32_t il, const delta_net_params & params,
                        const delta_net_inputs & inputs);

// Brings the state of a layer to where the first n_tokens of the last batch had led, bit by bit.
void replay_delta_net(graph_context & g, const recurrent_state & memory, int32_t il, const delta_net_params & params);

} // namespace pds
