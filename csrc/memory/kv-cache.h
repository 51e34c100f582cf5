// Keys and values of all attention layers for one sequence. Row = position, so nothing has to be looked up.
#pragma once

#include "ggml-cpp.h"
#include "memory/memory.h"
#include "model/device.h"

#include <vector>

namespace pds {

struct kv_layer {
    ggml_tensor * k; // [head_dim_k * n_head_kv, n_rows]
    ggml_tensor * v; // [head_dim_v * n_head_kv, n_rows]
};

struct kv_layer_shape {
    const device * owner;
    int64_t        n_head_kv; // 0 = the layer does not attend and has no tensors
    int64_t        head_dim_k;
    int64_t        head_dim_v;
};

// How a cache holds numbers, with the names that its user knows the types by.
struct kv_types {
    ggml_type    k;
    ggml_type    v;
    const char * name_k;
    const char * name_v;
};

class kv_cache : public memory {
  public:
    // n_ctx: positions that can be held. Nothing is allocated yet. Throws PDS_ERR_ARGUMENT for a type whose blocks do
    // not divide the heads.
    kv_cache(const std::vector<kv_layer_shape> & shapes, int32_t n_ctx, const kv_types & types);

    void allocate();
    // Gives the tensors an address that is never read, so that graphs can be measured without allocating.
    void pretend();

    void    clear() override;
    int64_t cut(int64_t pos) override;
    void    report(pds_memory_report & out) const override;

    // Bytes of one position in all layers.
    size_t row_bytes() const;
    // Copies rows begin .. end - 1 of all layers: row_bytes() each.
    void save(int64_t begin, int64_t end, uint8_t * out) const;
    void load(int64_t begin, int64_t end, const uint8_t * bytes);

    const kv_layer & layer(int32_t il) const { return layers_[static_cast<size_t>(il)]; }

    // Graphs read a multiple of this many rows, so that they can be reused.
    static constexpr int32_t row_step = 256;
    // Rows that a graph reads when n positions are in use.
    int32_t visible_rows(int64_t n) const;

  private:
    struct device_group {
        const device *          owner;
        ggml_context_ptr        ctx;
        ggml_backend_buffer_ptr buffer;
    };

    template <typename copy_rows> void for_rows(int64_t begin, int64_t end, copy_rows copy) const;

    device_group & group_for(const device & owner, size_t n_layer);
    void           set_addresses(void * address);

    std::vector<kv_layer>     layers_;
    std::vector<device_group> groups_;
};

} // namespace pds
