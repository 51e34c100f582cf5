// The router of a mixture of experts: which experts a token goes to, and how much each of them counts.
#pragma once

#include "graph/graph-context.h"

namespace pds {

// How the parts of a mixture of experts that are not matrix products are computed.
enum class expert_form {
    fused, // by operations of our own, on the CPU
    plain, // by their twins from operations that every device has
};

struct routing {
    ggml_tensor * ids;     // I32 [n_used, n_tokens] experts of a token, likeliest first
    ggml_tensor * weights; // F32 [n_used, n_tokens] how much each counts, 1 together
};

// logits F32 [n_expert, n_tokens]. Among experts that are equally likely the fused form takes the first ones, the plain
// form any.
routing route(graph_context & g, ggml_tensor * logits, int32_t n_used, expert_form form, int32_t il);

} // namespace pds
