// The DSpark drafter: what it injects into its own cache from the target's features, its block, its Markov chain and
// its confidence head. A DFlash drafter is one without Markov head.
#pragma once

#include "arch/arch.h"
#include "graph/draw.h"
#include "model/draft-hparams.h"

#include <vector>

namespace pds {

struct draft_layer {
    ggml_tensor * attn_norm = nullptr; // [n_embd]
    linear_weight q;
    linear_weight k;
    linear_weight v;
    linear_weight attn_output;
    ggml_tensor * q_norm   = nullptr; // [head_dim]
    ggml_tensor * k_norm   = nullptr; // [head_dim]
    ggml_tensor * ffn_norm = nullptr; // [n_embd]
    linear_weight ffn_gate;
    linear_weight ffn_up;
    linear_weight ffn_down;
};

struct draft_tensors {
    linear_weight            fc;                      // [n_features, n_embd]
    ggml_tensor *            features_norm = nullptr; // [n_embd] norm after fc
    ggml_tensor *            output_norm   = nullptr; // [n_embd]
    std::vector<draft_layer> layers;
    ggml_tensor *            token_embd = nullptr; // the target's where the file has none
    linear_weight            output;               // the target's where the file has none: [n_embd, n_draft_rows]
    ggml_tensor *            markov_w1 = nullptr;  // [rank, n_vocab] embedding of the previous token, or null
    linear_weight            markov_w2;            // [rank, n_draft_rows]
    linear_weight            confidence;           // [n_embd (+ rank), 1], or null
    bool                     confidence_with_markov = false;

    // Small tensors that do not lie in the file as they are needed.
    ggml_tensor * mask_embd    = nullptr; // [n_embd, 1] or null: the target's row
    ggml_tensor * draft_to_ids = nullptr; // I32 [1, n_draft_rows] target id of each row of output, or null: the same
};

// Borrows the target's embedding and head where the file has none of its own.
draft_tensors list_draft_tensors(weights & w, const gguf_file & gguf, const draft_hparams & hp,
                                 const target_tensors & target);

// Adds to a target graph with features: keys and values of its tokens for the drafter's cache.
void build_injection(graph_context & g, const draft_hparams & hp, const draft_tensors & t, const kv_cache & cache);

struct draft_slot_outputs {
    ggml_tensor * id;         // I32 [1] row of the head that was drawn
    ggml_tensor * confidence; // F32 [1] logit, or null
};

// The whole block; the chain goes over the first g.shape.n_outputs slots. windowed_mask: F16 [n_kv, block_size] for
// layers with a window, or null. draws: one per slot of the chain.
std::vector<draft_slot_outputs> build_block(graph_context & g, const draft_hparams & hp, const draft_tensors & t,
                                            const kv_cache & cache, ggml_tensor * windowed_mask, slot_draw * draws,
                                            attention_form form);

} // namespace pds
