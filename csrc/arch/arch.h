// Target architectures: what each one reads from a file, which tensors it has, and how its graph is built.
#pragma once

#include "arch/linear.h"
#include "graph/attention.h"
#include "graph/graph-context.h"
#include "memory/kv-cache.h"
#include "memory/recurrent-state.h"
#include "model/hparams.h"
#include "model/weights.h"

#include <string>
#include <vector>

namespace pds {

struct target_layer {
    ggml_tensor *  attn_norm = nullptr; // [n_embd]
    linear_weight  q;                   // or q, k and v in one:
    linear_weight  k;
    linear_weight  v;
    linear_weight  qkv;
    linear_weight  attn_output;
    ggml_tensor *  q_norm   = nullptr; // [head_dim_k] or null
    ggml_tensor *  k_norm   = nullptr; // [head_dim_k] or null
    ggml_tensor *  ffn_norm = nullptr; // [n_embd]
    linear_weight  ffn_gate;
    linear_weight  ffn_up;
    linear_weight  ffn_down;
    expert_weights experts; // instead of these three

    // of recurrent layers; their qkv and attn_output are as above
    linear_weight output_gate;
    linear_weight ssm_alpha;          // how fast the state decays
    linear_weight ssm_beta;           // how much of an error is corrected
    ggml_tensor * ssm_conv = nullptr; // [conv_kernel, n_channels]
    ggml_tensor * ssm_dt   = nullptr; // [n_head_v] added to alpha
    ggml_tensor * ssm_a    = nullptr; // [n_head_v] factor of the decay, < 0
    ggml_tensor * ssm_norm = nullptr; // [head_dim]
};

struct target_tensors {
    ggml_tensor *             token_embd  = nullptr; // [n_embd, n_vocab_rows]
    ggml_tensor *             output_norm = nullptr; // [n_embd]
    linear_weight             output;                // the token embedding again where the file has no head
    ggml_tensor *             rope_freqs = nullptr;  // [n_rot / 2] divisors of the rotation angles, or null
    std::vector<target_layer> layers;
};

struct build_options {
    const kv_cache &        cache;
    const recurrent_state & recurrent;
    attention_form          attention;
    expert_form             experts;
};

struct architecture {
    const char * name; // general.architecture
    // Reads and checks what only this architecture has.
    void (*read_hparams)(const gguf_file & gguf, target_hparams & hp);
    target_tensors (*list_tensors)(weights & w, const target_hparams & hp);
    void (*build)(graph_context & g, const target_hparams & hp, const target_tensors & t,
                  const build_options & options);
    // Brings recurrent layers to where the first g.shape.n_tokens of the last batch had led. Null without such layers.
    void (*build_replay)(graph_context & g, const target_hparams & hp, const target_tensors & t,
                         const build_options & options);
};

extern const architecture arch_llama;
extern const architecture arch_qwen3;
extern const architecture arch_qwen3moe;
extern const architecture arch_qwen35;
extern const architecture arch_qwen35moe;

// Throws error(PDS_ERR_UNSUPPORTED) naming what the file holds and what is supported.
const architecture & find_architecture(const gguf_file & gguf);

} // namespace pds
