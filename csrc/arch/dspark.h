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

// Rows of the head beside those of a short list: of tokens that the text at hand has used.
struct spare_rows {
    linear_weight output;           // [n_embd, n]
    linear_weight markov_w2;        // [rank, n], or null
    ggml_tensor * offset = nullptr; // F32 [n] added to the logits: 0, or -inf for rows without token
};

// What a block needs besides the model.
struct block_options {
    slot_draw *        draws;                   // one for each slot of the chain
    ggml_tensor *      windowed_mask = nullptr; // F16 [n_kv, block_size] for layers with a window, or null
    const spare_rows * spare         = nullptr;
    attention_form     attention;
};

struct draft_tensors {
    linear_weight            fc;                      // [n_features, n_embd]
    ggml_tensor *            features_norm = nullptr; // [n_embd] norm after fc
    ggml_tensor *            output_norm   = nullptr; // [n_embd]
    std::vector<draft_layer> layers;
    ggml_tensor *            token_embd = nullptr; // the target's where the file has none
    linear_weight            output;               // the target's where the file has none: [n_embd, n_rows]
    ggml_tensor *            markov_w1 = nullptr;  // [rank, n_vocab] embedding of the previous token, or null
    linear_weight            markov_w2;            // [rank, n_rows], or with candidates [rank, rows of the whole head]
    int32_t                  n_candidates = 0;     // rows of a slot that the Markov head looks at; 0 = all
    linear_weight            confidence;           // [n_embd (+ rank), 1], or null
    bool                     confidence_with_markov = false;

    ggml_tensor * mask_embd = nullptr; // [n_embd, 1], or null: the target's row
};

// Borrows the target's embedding and head where the file has none of its own. n_candidates: as above.
draft_tensors list_draft_tensors(weights & w, const gguf_file & gguf, const draft_hparams & hp,
                                 const target_tensors & target, int32_t n_candidates);

// Adds to a target graph with features: keys and values of its tokens for the drafter's cache.
void build_injection(graph_context & g, const draft_hparams & hp, const draft_tensors & t, const kv_cache & cache);

struct draft_slot_outputs {
    ggml_tensor * id;         // I32 [1] the token that was drawn
    ggml_tensor * confidence; // F32 [1] logit, or null
};

// The whole block; the chain goes over the first g.shape.n_outputs slots.
std::vector<draft_slot_outputs> build_block(graph_context & g, const draft_hparams & hp, const draft_tensors & t,
                                            const kv_cache & cache, const block_options & options);

} // namespace pds
