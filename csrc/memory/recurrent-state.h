// What recurrent layers remember of one sequence: a matrix per value head, and the inputs that the next convolution
// needs. It sums up all tokens, so it cannot be cut at any position like a cache. A batch leaves the state that it
// started from alone and writes the new one beside it; thereby nothing is lost when it is cancelled, and the last
// tokens of a batch can be taken back, in one of two ways:
// - replay: the inputs of the batch are kept, and those of the tokens that stay are applied to the old state again;
// - snapshots: the batch writes the state after each of its tokens.
#pragma once

#include "ggml-cpp.h"
#include "memory/memory.h"
#include "model/device.h"
#include "model/hparams.h"

#include <array>
#include <vector>

namespace pds {

enum class rollback_form { replay, snapshots };

struct recurrent_layer {
    ggml_tensor * state;  // F32 [head_dim * head_dim * n_head_v, n_slots]; [key, value, head] of each
    ggml_tensor * inputs; // F32 [n_channels, n_banks * bank_rows()] of the convolution
    ggml_tensor * gates;  // F32 [2 * n_head_v, n_returnable] decay and beta of the last batch; null with snapshots
};

class recurrent_state : public memory {
  public:
    // owners: the device of each layer, null for layers that are not recurrent.
    // n_returnable: tokens of a batch that can be taken back, at least 1. Nothing is allocated yet.
    recurrent_state(const std::vector<const device *> & owners, const delta_net_hparams & hp, int32_t n_returnable,
                    rollback_form form);

    void allocate();
    void pretend();

    void    clear() override;
    int64_t cut(int64_t pos) override;
    // What a cut at pos would keep.
    int64_t reach(int64_t pos) const;
    void    report(pds_memory_report & out) const override;

    bool                    empty() const { return n_layer_ == 0; }
    rollback_form           form() const { return form_; }
    int32_t                 n_returnable() const { return n_returnable_; }
    const recurrent_layer & layer(int32_t il) const { return layers_[static_cast<size_t>(il)]; }
    int32_t                 n_layer() const { return static_cast<int32_t>(layers_.size()); }

    // ---- a batch, step by step: what a graph over n tokens reads and writes ----

    // Slots that it writes: one, or one per token that can be taken back.
    int32_t n_states_written(int32_t n_tokens) const;
    // Inputs of the convolution that it keeps, those before the batch included.
    int32_t n_inputs_written(int32_t n_tokens) const;

    int32_t              slot_to_read() const { return start_.slot; }
    std::vector<int64_t> slots_to_write(int32_t n_tokens) const; // of the last tokens, newest first
    std::vector<int32_t> inputs_to_read() const;                 // [conv_kernel - 1] rows, oldest first
    std::vector<int64_t> inputs_to_write(int32_t n_tokens) const;

    // The batch has run: its tokens are part of the sequence.
    void advance(int32_t n_tokens);

    // Tokens of the last batch that stay, if a replay has to bring the state there before the next batch; else 0.
    int32_t n_to_replay() const;
    // Rows of `inputs` that the replay of n tokens reads, those before them included.
    std::vector<int32_t> inputs_to_replay(int32_t n) const;
    // The next batch starts where the tokens that stay have led; after a replay, if one was needed.
    void settle();

    // ---- copies: the state after all tokens, for a checkpoint. A pending replay must have been made. ----

    size_t n_bytes() const;
    void   save(std::vector<uint8_t> & out) const;
    // The state of a sequence of n tokens.
    void load(const std::vector<uint8_t> & bytes, int64_t n_tokens);

  private:
    struct cursor {
        int32_t slot; // of `state`
        int32_t row;  // of `inputs`: first of the conv_kernel - 1 before the next token
    };

    struct device_group {
        const device *          owner;
        ggml_context_ptr        ctx;
        ggml_backend_buffer_ptr buffer;
    };

    device_group & group_for(const device & owner);
    void           set_addresses(void * address);
    int32_t        n_before() const { return hp_.conv_kernel - 1; }
    int32_t        bank_rows() const { return 2 * n_before() + n_returnable_; }
    int32_t        bank_to_write() const;
    cursor         after(int32_t n_kept) const;

    delta_net_hparams            hp_;
    rollback_form                form_;
    int32_t                      n_returnable_;
    int32_t                      n_slots_;
    int32_t                      n_layer_ = 0; // recurrent ones
    std::vector<recurrent_layer> layers_;
    std::vector<device_group>    groups_;

    cursor  start_   = { 0, 0 }; // where the last batch started
    int64_t pos_     = 0;        // tokens before it
    int32_t n_batch_ = 0;        // its tokens
    int32_t n_kept_  = 0;        // of them, those that stay
};

} // namespace pds
