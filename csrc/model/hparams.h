// Hyper-parameters of a target, read and range-checked once; the rest of the core trusts them.
#pragma once

#include "gguf/gguf-file.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pds {

// Of the layers that remember a matrix per head instead of a cache ("gated delta net").
struct delta_net_hparams {
    int32_t head_dim    = 0; // of keys and values alike; 0 = the model has no such layers
    int32_t n_head_k    = 0;
    int32_t n_head_v    = 0; // a multiple of n_head_k: value head h goes with key head h % n_head_k
    int32_t conv_kernel = 0; // tokens that the convolution sees, with the current one

    int64_t n_embd_k() const { return int64_t(head_dim) * n_head_k; }
    int64_t n_embd_v() const { return int64_t(head_dim) * n_head_v; }
    // inputs of the convolution: queries, keys, values
    int64_t n_channels() const { return 2 * n_embd_k() + n_embd_v(); }
    // values of the state of a layer
    int64_t n_state() const { return n_embd_v() * head_dim; }
};

constexpr int32_t max_expert_used = 64; // more than models have

// Of feed-forward parts that are a mixture of experts.
struct expert_hparams {
    int32_t n_expert    = 0; // 0 = the model has none
    int32_t n_ff_shared = 0; // width of the expert that all tokens share; 0 = there is none

    // one entry per layer
    std::vector<int32_t> n_used; // experts that a token goes through
    std::vector<int32_t> n_ff;   // width of an expert
};

struct target_hparams {
    std::string architecture;
    int32_t     n_vocab      = 0; // named tokens
    int32_t     n_vocab_rows = 0; // rows of the output, >= n_vocab
    int32_t     n_embd       = 0;
    int32_t     n_layer      = 0;
    int32_t     n_extra      = 0; // layers behind them in the file that predict further tokens; they are not used
    int32_t     n_ctx_train  = 0;
    float       rms_eps      = 0;

    // one entry per layer
    std::vector<int32_t> n_head;
    std::vector<int32_t> n_head_kv;
    std::vector<int32_t> n_ff;
    std::vector<bool>    recurrent; // delta net instead of attention

    delta_net_hparams delta_net;
    expert_hparams    experts;

    int32_t head_dim_k = 0;
    int32_t head_dim_v = 0;

    int32_t n_rot           = 0; // rotated dimensions of a head
    float   rope_freq_base  = 0;
    float   rope_freq_scale = 1; // 1 / scaling factor

    // Ids that must never be emitted: padding rows, entries of type "unused" and the mask token.
    std::vector<int32_t> banned;
};

// Layers of a target, and how many more lie behind them in the file that only predict further tokens.
struct target_depth {
    int32_t n_layer = 0;
    int32_t n_extra = 0;
};

target_depth read_target_depth(const gguf_file & gguf);

// What every decoder-only target has in common; an architecture adds and checks its own after this.
target_hparams read_common_hparams(const gguf_file & gguf);
// For architectures with a mixture of experts in each layer.
void read_expert_hparams(const gguf_file & gguf, target_hparams & hp);
// For those whose layers also have an expert that all tokens share.
void read_shared_expert_hparams(const gguf_file & gguf, target_hparams & hp);
// Throws error(PDS_ERR_FORMAT) unless the heads of each attention layer make sense.
void check_heads(const gguf_file & gguf, const target_hparams & hp);

// An integer key below the architecture's prefix ("llama.block_count").
int64_t hparam_int(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max);
int64_t hparam_int(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max, int64_t fallback);
// A key that holds one number for all layers, or one per layer.
std::vector<int32_t> hparam_per_layer(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max,
                                      int64_t n_layer, int64_t fallback);

} // namespace pds
