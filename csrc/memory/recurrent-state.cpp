#include "memory/recurrent-state.h"

#include "base/error.h"
#include "model/memory-report.h"

#include <algorithm>

namespace pds {

namespace {

constexpr int32_t n_banks = 2; // of inputs: what the last batch read, and what it wrote

size_t row_bytes(const ggml_tensor * tensor) {
    return ggml_row_size(tensor->type, tensor->ne[0]);
}

} // namespace

recurrent_state::recurrent_state(const std::vector<const device *> & owners, const delta_net_hparams & hp,
                                 int32_t n_returnable, rollback_form form)
    : hp_(hp), form_(form), n_returnable_(n_returnable), n_slots_(form == rollback_form::replay ? 2 : n_returnable + 1),
      layers_(owners.size()) {
    for (size_t il = 0; il < owners.size(); il++) {
        if (owners[il] == nullptr) {
            continue;
        }
        n_layer_++;
        ggml_context *    ctx   = group_for(*owners[il]).ctx.get();
        recurrent_layer & layer = layers_[il];
        layer.state             = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, hp.n_state(), n_slots_);
        layer.inputs = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, hp.n_channels(), int64_t(n_banks) * bank_rows());
        layer.gates  = form == rollback_form::replay
                           ? ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 2 * int64_t(hp.n_head_v), n_returnable)
                           : nullptr;
        ggml_format_name(layer.state, "recurrent_state-%zu", il);
        ggml_format_name(layer.inputs, "recurrent_inputs-%zu", il);
    }
}

recurrent_state::device_group & recurrent_state::group_for(const device & owner) {
    for (device_group & group : groups_) {
        if (group.owner == &owner) {
            return group;
        }
    }
    const ggml_init_params init = { 3 * layers_.size() * ggml_tensor_overhead(), nullptr, true };
    groups_.push_back({ &owner, ggml_context_ptr(ggml_init(init)), nullptr });
    return groups_.back();
}

void recurrent_state::allocate() {
    set_addresses(nullptr);
    for (device_group & group : groups_) {
        ggml_backend_buffer_type_t type    = ggml_backend_dev_buffer_type(group.owner->dev);
        const size_t               n_bytes = ggml_backend_alloc_ctx_tensors_from_buft_size(group.ctx.get(), type);
        group.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(group.ctx.get(), type));
        if (group.buffer == nullptr) {
            throw error(PDS_ERR_MEMORY,
                        format("%s: %.1f MiB for the state of recurrent layers could not be allocated",
                               group.owner->name.c_str(), static_cast<double>(n_bytes) / (1 << 20)),
                        static_cast<int64_t>(n_bytes), memory_of(*group.owner).free);
        }
    }
    clear();
}

void recurrent_state::pretend() {
    static char nowhere[64];
    set_addresses(nowhere);
}

void recurrent_state::set_addresses(void * address) {
    for (device_group & group : groups_) {
        for (ggml_tensor * t = ggml_get_first_tensor(group.ctx.get()); t != nullptr;
             t               = ggml_get_next_tensor(group.ctx.get(), t)) {
            t->data = address;
        }
    }
}

// A sequence starts from a state of zeros, and so do the inputs before its first token.
void recurrent_state::clear() {
    for (device_group & group : groups_) {
        ggml_backend_buffer_clear(group.buffer.get(), 0);
    }
    start_   = { 0, 0 };
    pos_     = 0;
    n_batch_ = 0;
    n_kept_  = 0;
}

int64_t recurrent_state::reach(int64_t pos) const {
    if (empty() || pos >= pos_ + n_kept_) {
        return empty() ? pos : pos_ + n_kept_;
    }
    if (pos <= pos_) {
        return pos == pos_ ? pos_ : 0;
    }
    const int64_t n_lost    = pos_ + n_batch_ - pos;
    const bool    reachable = form_ == rollback_form::replay ? n_batch_ <= n_returnable_ : n_lost < n_returnable_;
    return reachable ? pos : pos_;
}

int64_t recurrent_state::cut(int64_t pos) {
    const int64_t kept = reach(pos);
    if (kept < pos_) {
        clear();
    } else if (!empty()) {
        n_kept_ = static_cast<int32_t>(kept - pos_);
    }
    return kept;
}

void recurrent_state::report(pds_memory_report & out) const {
    for (const device_group & group : groups_) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(group.owner->dev);
        for (ggml_tensor * t = ggml_get_first_tensor(group.ctx.get()); t != nullptr;
             t               = ggml_get_next_tensor(group.ctx.get(), t)) {
            memory_line_of(out, group.owner->name).state +=
                static_cast<int64_t>(ggml_backend_buft_get_alloc_size(type, t));
        }
    }
}

int32_t recurrent_state::n_states_written(int32_t n_tokens) const {
    return form_ == rollback_form::replay ? 1 : std::min(n_tokens, n_returnable_);
}

int32_t recurrent_state::n_inputs_written(int32_t n_tokens) const {
    return n_before() + std::min(n_tokens, n_before() + n_returnable_);
}

std::vector<int64_t> recurrent_state::slots_to_write(int32_t n_tokens) const {
    const int32_t        n = n_states_written(n_tokens);
    std::vector<int64_t> slots;
    for (int32_t i = 0; i < n; i++) {
        slots.push_back((start_.slot + n - i) % n_slots_);
    }
    return slots;
}

std::vector<int32_t> recurrent_state::inputs_to_read() const {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < n_before(); i++) {
        rows.push_back(start_.row + i);
    }
    return rows;
}

int32_t recurrent_state::bank_to_write() const {
    return start_.row < bank_rows() ? 1 : 0;
}

std::vector<int64_t> recurrent_state::inputs_to_write(int32_t n_tokens) const {
    std::vector<int64_t> rows;
    for (int32_t i = 0; i < n_inputs_written(n_tokens); i++) {
        rows.push_back(bank_to_write() * bank_rows() + i);
    }
    return rows;
}

void recurrent_state::advance(int32_t n_tokens) {
    n_batch_ = n_tokens;
    n_kept_  = n_tokens;
}

int32_t recurrent_state::n_to_replay() const {
    return form_ == rollback_form::replay && n_kept_ < n_batch_ ? n_kept_ : 0;
}

std::vector<int32_t> recurrent_state::inputs_to_replay(int32_t n) const {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < n_before() + n; i++) {
        rows.push_back(bank_to_write() * bank_rows() + i);
    }
    return rows;
}

// A batch of n_batch_ tokens wrote the inputs before it and the last n_stored of its own, in this order.
recurrent_state::cursor recurrent_state::after(int32_t n_kept) const {
    if (n_kept == 0) {
        return start_;
    }
    const int32_t n_stored = n_inputs_written(n_batch_) - n_before();
    const int32_t row      = bank_to_write() * bank_rows() + n_kept - (n_batch_ - n_stored);
    const int32_t n_newer  = form_ == rollback_form::replay ? 0 : n_batch_ - n_kept;
    return { (start_.slot + n_states_written(n_batch_) - n_newer) % n_slots_, row };
}

void recurrent_state::settle() {
    start_ = after(n_kept_);
    pos_ += n_kept_;
    n_batch_ = 0;
    n_kept_  = 0;
}

size_t recurrent_state::n_bytes() const {
    const auto per_layer = static_cast<size_t>(hp_.n_state() + n_before() * hp_.n_channels()) * sizeof(float);
    return per_layer * static_cast<size_t>(n_layer_);
}

void recurrent_state::save(std::vector<uint8_t> & out) const {
    PDS_REQUIRE(n_to_replay() == 0, PDS_ERR_INTERNAL, "a state cannot be saved while a replay is pending");
    const cursor from = after(n_kept_);
    out.resize(n_bytes());
    uint8_t * to = out.data();
    for (const recurrent_layer & layer : layers_) {
        if (layer.state == nullptr) {
            continue;
        }
        const size_t n_state  = row_bytes(layer.state);
        const size_t n_inputs = static_cast<size_t>(n_before()) * row_bytes(layer.inputs);
        ggml_backend_tensor_get(layer.state, to, static_cast<size_t>(from.slot) * n_state, n_state);
        to += n_state;
        ggml_backend_tensor_get(layer.inputs, to, static_cast<size_t>(from.row) * row_bytes(layer.inputs), n_inputs);
        to += n_inputs;
    }
}

void recurrent_state::load(const std::vector<uint8_t> & bytes, int64_t n_tokens) {
    PDS_REQUIRE(bytes.size() == n_bytes(), PDS_ERR_INTERNAL, "a saved state of %zu bytes is not one of %zu",
                bytes.size(), n_bytes());
    const uint8_t * from = bytes.data();
    for (const recurrent_layer & layer : layers_) {
        if (layer.state == nullptr) {
            continue;
        }
        const size_t n_inputs = static_cast<size_t>(n_before()) * row_bytes(layer.inputs);
        ggml_backend_tensor_set(layer.state, from, 0, row_bytes(layer.state));
        from += row_bytes(layer.state);
        ggml_backend_tensor_set(layer.inputs, from, 0, n_inputs);
        from += n_inputs;
    }
    start_   = { 0, 0 };
    pos_     = n_tokens;
    n_batch_ = 0;
    n_kept_  = 0;
}

} // namespace pds
