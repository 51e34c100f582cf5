// Target architectures: what each one reads from a file, which tensors it has, and how its graph is built.
#pragma once

#include "arch/linear.h"
#include "graph/attention.h"
#include "graph/graph-context.h"
#include "memory/kv-cache.h"
#include "model/hparams.h"
#include "model/weights.h"

#include <string>
#include <vector>

namespace pds {

struct target_layer {
    ggml_tensor * attn_norm = nullptr; // [n_embd]
    linear_weight q;                   // or q, k and v in one:
    linear_weight k;
    linear_weight v;
    linear_weight qkv;
    linear_weight attn_output;
    ggml_tensor * q_norm   = nullptr; // [head_dim_k] or null
    ggml_tensor * k_norm   = nullptr; // [head_dim_k] or null
    ggml_tensor * ffn_norm = nullptr; // [n_embd]
    linear_weight ffn_gate;
    linear_weight ffn_up;
    linear_weight ffn_down;
};

struct target_tensors {
    ggml_tensor *             token_embd  = nullptr; // [n_embd, n_vocab_rows]
    ggml_tensor *             output_norm = nullptr; // [n_embd]
    linear_weight             output;                // the token embedding again where the file has no head
    ggml_tensor *             rope_freqs = nullptr;  // [n_rot / 2] divisors of the rotation angles, or null
    std::vector<target_layer> layers;
};

struct build_options {
    const kv_cache & cache;
    attention_form   attention;
};

struct architecture {
    const char * name; // general.architecture
    // Reads and checks what only this architecture has.
    void (*check_hparams)(const gguf_file & gguf, const target_hparams & hp);
    target_tensors (*list_tensors)(weights & w, const target_hparams & hp);
    void (*build)(graph_context & g, const target_hparams & hp, const target_tensors & t,
                  const build_options & options);
};

extern const architecture arch_llama;
extern const architecture arch_qwen3;

// Throws error(PDS_ERR_UNSUPPORTED) naming what the file holds and what is supported.
const architecture & find_architecture(const gguf_file & gguf);

} // namespace pds
