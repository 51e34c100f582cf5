// Hyper-parameters of a DSpark or DFlash drafter, read and range-checked once.
#pragma once

#include "gguf/gguf-file.h"

#include <cstdint>
#include <vector>

namespace pds {

struct draft_hparams {
    int32_t n_vocab   = 0; // target ids that it knows
    int32_t n_embd    = 0;
    int32_t n_layer   = 0;
    int32_t n_head    = 0;
    int32_t n_head_kv = 0;
    int32_t head_dim  = 0;
    int32_t n_ff      = 0;
    float   rms_eps   = 0;

    float rope_freq_base = 0; // half-split rotation of whole heads, whatever the target does

    int32_t block_size    = 0; // tokens that one pass evaluates: the anchor and masks
    int32_t mask_token_id = 0;
    bool    anchor_first  = true; // slot i predicts position n_past + i + 1 (DSpark); false: n_past + i (DFlash)

    // Layers of the target whose inputs are the features, in the order in which they are concatenated.
    std::vector<int32_t> target_layers;
    int32_t              n_features = 0; // values per token: target's n_embd times the number of layers

    int32_t            window = 0; // positions that windowed layers look back; 0 = no windows
    std::vector<bool>  windowed;   // per layer
    std::vector<float> mask_embd;  // [n_embd] embedding of the mask where it is not the target's row; or empty

    std::vector<int32_t> short_list; // ids to choose drafts from, those of most use first; or empty

    // Slots of a block that propose a token.
    int32_t first_slot() const { return anchor_first ? 0 : 1; }
    int32_t n_slots() const { return block_size - first_slot(); }
};

draft_hparams read_draft_hparams(const gguf_file & gguf);

} // namespace pds
