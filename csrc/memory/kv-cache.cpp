#include "memory/kv-cache.h"

#include "base/error.h"
#include "model/memory-report.h"

#include <algorithm>

namespace pds {

namespace {

int64_t round_up(int64_t n) {
    constexpr int64_t step = kv_cache::row_step;
    return (n + step - 1) / step * step;
}

// Attention reads single heads, so each must begin with a block.
void check_type(const char * name, ggml_type type, int64_t head_dim) {
    PDS_REQUIRE(head_dim % ggml_blck_size(type) == 0, PDS_ERR_ARGUMENT,
                "%s: %s works in blocks of %lld, but this model's heads have %lld values; use f16", name,
                ggml_type_name(type), static_cast<long long>(ggml_blck_size(type)), static_cast<long long>(head_dim));
}

} // namespace

kv_cache::kv_cache(const std::vector<kv_layer_shape> & shapes, int32_t n_ctx, const kv_types & types) {
    const int64_t n_rows = round_up(n_ctx);
    for (const kv_layer_shape & shape : shapes) {
        if (shape.n_head_kv == 0) {
            layers_.push_back({ nullptr, nullptr });
            continue;
        }
        check_type(types.name_k, types.k, shape.head_dim_k);
        check_type(types.name_v, types.v, shape.head_dim_v);
        ggml_context * ctx = group_for(*shape.owner, shapes.size()).ctx.get();
        layers_.push_back({ ggml_new_tensor_2d(ctx, types.k, shape.head_dim_k * shape.n_head_kv, n_rows),
                            ggml_new_tensor_2d(ctx, types.v, shape.head_dim_v * shape.n_head_kv, n_rows) });
        ggml_format_name(layers_.back().k, "cache_k-%zu", layers_.size() - 1);
        ggml_format_name(layers_.back().v, "cache_v-%zu", layers_.size() - 1);
    }
}

kv_cache::device_group & kv_cache::group_for(const device & owner, size_t n_layer) {
    for (device_group & group : groups_) {
        if (group.owner == &owner) {
            return group;
        }
    }
    const ggml_init_params init = { 2 * n_layer * ggml_tensor_overhead(), nullptr, true };
    groups_.push_back({ &owner, ggml_context_ptr(ggml_init(init)), nullptr });
    return groups_.back();
}

void kv_cache::allocate() {
    set_addresses(nullptr);
    for (device_group & group : groups_) {
        ggml_backend_buffer_type_t type    = ggml_backend_dev_buffer_type(group.owner->dev);
        const size_t               n_bytes = ggml_backend_alloc_ctx_tensors_from_buft_size(group.ctx.get(), type);
        group.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(group.ctx.get(), type));
        if (group.buffer == nullptr) {
            throw error(PDS_ERR_MEMORY,
                        format("%s: %.1f MiB for the context could not be allocated; lower n_ctx",
                               group.owner->name.c_str(), static_cast<double>(n_bytes) / (1 << 20)),
                        static_cast<int64_t>(n_bytes), memory_of(*group.owner).free);
        }
    }
    clear();
}

void kv_cache::pretend() {
    static char nowhere[64];
    set_addresses(nowhere);
}

void kv_cache::set_addresses(void * address) {
    for (device_group & group : groups_) {
        for (ggml_tensor * t = ggml_get_first_tensor(group.ctx.get()); t != nullptr;
             t               = ggml_get_next_tensor(group.ctx.get(), t)) {
            t->data = address;
        }
    }
}

// Rows that were never written are read too, masked: they must hold finite numbers.
void kv_cache::clear() {
    for (device_group & group : groups_) {
        ggml_backend_buffer_clear(group.buffer.get(), 0);
    }
}

int64_t kv_cache::cut(int64_t pos) {
    return pos; // later rows are masked until they are written again
}

size_t kv_cache::row_bytes() const {
    size_t n = 0;
    for (const kv_layer & layer : layers_) {
        n += layer.k == nullptr ? 0 : layer.k->nb[1] + layer.v->nb[1];
    }
    return n;
}

// copy(tensor, offset in it, bytes)
template <typename copy_rows> void kv_cache::for_rows(int64_t begin, int64_t end, copy_rows copy) const {
    for (const kv_layer & layer : layers_) {
        for (ggml_tensor * tensor : { layer.k, layer.v }) {
            if (tensor != nullptr && begin < end) {
                copy(tensor, static_cast<size_t>(begin) * tensor->nb[1],
                     static_cast<size_t>(end - begin) * tensor->nb[1]);
            }
        }
    }
}

void kv_cache::save(int64_t begin, int64_t end, uint8_t * out) const {
    for_rows(begin, end, [&](ggml_tensor * tensor, size_t offset, size_t n) {
        ggml_backend_tensor_get(tensor, out, offset, n);
        out += n;
    });
}

void kv_cache::load(int64_t begin, int64_t end, const uint8_t * bytes) {
    for_rows(begin, end, [&](ggml_tensor * tensor, size_t offset, size_t n) {
        ggml_backend_tensor_set(tensor, bytes, offset, n);
        bytes += n;
    });
}

void kv_cache::report(pds_memory_report & out) const {
    for (const device_group & group : groups_) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(group.owner->dev);
        for (ggml_tensor * t = ggml_get_first_tensor(group.ctx.get()); t != nullptr;
             t               = ggml_get_next_tensor(group.ctx.get(), t)) {
            memory_line_of(out, group.owner->name).kv +=
                static_cast<int64_t>(ggml_backend_buft_get_alloc_size(type, t));
        }
    }
}

int32_t kv_cache::visible_rows(int64_t n) const {
    return static_cast<int32_t>(round_up(std::max<int64_t>(n, 1)));
}

} // namespace pds
