#include "graph/moe-finalize.h"

#include "base/error.h"
#include "model/hparams.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pds {

namespace {

enum source {
    source_experts,
    source_weights,
    source_ids,
    source_residual,
    source_scale,
    source_shared,
    source_shared_gate,
    n_sources
};

constexpr int64_t tile_size = 32; // columns

const float * floats(const ggml_tensor * dst, source which) {
    return dst->src[which] == nullptr ? nullptr : static_cast<const float *>(dst->src[which]->data);
}

// What one token's sum is made of.
struct token_sum {
    const float * experts; // [n_embd, n_used]
    const float * weights; // [n_used] with scales
    int64_t       n_used;
    const float * shared; // [n_embd], or null
    float         shared_weight;
    const float * residual; // [n_embd]
};

// A few columns, whose sums stay in registers. The order of the additions is that of the plain twin.
template <int64_t width> void add_up(const token_sum & token, int64_t n_embd, int64_t first, float * out) {
    float sum[width];
    for (int64_t i = 0; i < width; i++) {
        sum[i] = token.experts[first + i] * token.weights[0];
    }
    for (int64_t expert = 1; expert < token.n_used; expert++) {
        const float * values = token.experts + expert * n_embd + first;
        const float   weight = token.weights[expert];
        for (int64_t i = 0; i < width; i++) {
            sum[i] += values[i] * weight;
        }
    }
    if (token.shared != nullptr) {
        for (int64_t i = 0; i < width; i++) {
            sum[i] += token.shared[first + i] * token.shared_weight;
        }
    }
    for (int64_t i = 0; i < width; i++) {
        out[first + i] = sum[i] + token.residual[first + i];
    }
}

// The part of one token that lies in columns begin..end.
void add_up_columns(const token_sum & token, int64_t n_embd, int64_t begin, int64_t end, float * out) {
    int64_t first = begin;
    for (; first + tile_size <= end; first += tile_size) {
        add_up<tile_size>(token, n_embd, first, out);
    }
    for (; first < end; first++) {
        add_up<1>(token, n_embd, first, out);
    }
}

// Threads share the columns, so that a single token has work for all of them.
void run_finalize(ggml_tensor * dst, int ith, int nth, void * /*user*/) {
    const int64_t n_embd  = dst->ne[0];
    const int64_t n_used  = dst->src[source_experts]->ne[1];
    const int64_t n_tiles = (n_embd + tile_size - 1) / tile_size;
    const int64_t begin   = n_tiles * ith / nth * tile_size;
    const int64_t end     = std::min(n_tiles * (ith + 1) / nth * tile_size, n_embd);
    const float * scale   = floats(dst, source_scale);
    const float * shared  = floats(dst, source_shared);
    float         scaled[max_expert_used];
    for (int64_t row = 0; row < dst->ne[1]; row++) {
        const float *   weights = floats(dst, source_weights) + row * n_used;
        const int32_t * ids     = static_cast<const int32_t *>(dst->src[source_ids]->data) + row * n_used;
        for (int64_t i = 0; i < n_used; i++) {
            scaled[i] = scale != nullptr ? weights[i] * scale[ids[i]] : weights[i];
        }
        token_sum token = {};
        token.experts   = floats(dst, source_experts) + row * n_embd * n_used;
        token.weights   = scaled;
        token.n_used    = n_used;
        token.residual  = floats(dst, source_residual) + row * n_embd;
        if (shared != nullptr) {
            token.shared        = shared + row * n_embd;
            token.shared_weight = 1.0f / (1.0f + std::exp(-floats(dst, source_shared_gate)[row]));
        }
        add_up_columns(token, n_embd, begin, end, static_cast<float *>(dst->data) + row * n_embd);
    }
}

ggml_tensor * fused(graph_context & g, const expert_results & r) {
    ggml_tensor * args[n_sources] = {};
    args[source_experts]          = r.experts;
    args[source_weights]          = r.route.weights;
    args[source_ids]              = r.route.ids;
    args[source_residual]         = r.residual;
    args[source_scale]            = r.scale;
    args[source_shared]           = r.shared;
    args[source_shared_gate]      = r.shared_gate;
    return ggml_custom_4d(g.ctx, GGML_TYPE_F32, r.experts->ne[0], r.experts->ne[2], 1, 1, args, n_sources, run_finalize,
                          GGML_N_TASKS_MAX, nullptr);
}

// Backends of ggml recognise a product, all views of it, and their sum, if nothing else lies between.
ggml_tensor * weighted_sum(graph_context & g, ggml_tensor * experts, ggml_tensor * weights) {
    const int64_t n_used   = experts->ne[1];
    const int64_t n_tokens = experts->ne[2];
    g.expand(weights);
    ggml_tensor * product = ggml_mul(g.ctx, experts, weights);
    g.expand(product);
    std::vector<ggml_tensor *> views;
    for (int64_t i = 0; i < n_used; i++) {
        views.push_back(ggml_view_2d(g.ctx, product, experts->ne[0], n_tokens, product->nb[2],
                                     static_cast<size_t>(i) * product->nb[1]));
        g.expand(views.back());
    }
    ggml_tensor * sum = views[0];
    for (size_t i = 1; i < views.size(); i++) {
        sum = ggml_add(g.ctx, sum, views[i]);
        g.expand(sum);
    }
    return sum;
}

ggml_tensor * plain(graph_context & g, const expert_results & r) {
    ggml_tensor * weights = ggml_reshape_3d(g.ctx, r.route.weights, 1, r.experts->ne[1], r.experts->ne[2]);
    if (r.scale != nullptr) {
        weights = ggml_mul(g.ctx, weights, scale_of_experts(g, r.scale, r.route.ids));
    }
    ggml_tensor * shared = nullptr;
    if (r.shared != nullptr) {
        shared = ggml_mul(g.ctx, r.shared, ggml_sigmoid(g.ctx, r.shared_gate));
        g.expand(shared);
    }
    g.expand(r.experts);
    ggml_tensor * sum = weighted_sum(g, r.experts, weights);
    sum               = shared != nullptr ? ggml_add(g.ctx, sum, shared) : sum;
    return ggml_add(g.ctx, sum, r.residual);
}

} // namespace

ggml_tensor * moe_finalize(graph_context & g, const expert_results & results, expert_form form) {
    PDS_REQUIRE(results.experts->ne[1] <= max_expert_used, PDS_ERR_INTERNAL,
                "%lld experts are added up, %d are possible", static_cast<long long>(results.experts->ne[1]),
                max_expert_used);
    return form == expert_form::fused ? fused(g, results) : plain(g, results);
}

ggml_tensor * scale_of_experts(graph_context & g, ggml_tensor * scale, ggml_tensor * ids) {
    const int64_t n_expert = scale->ne[0];
    ggml_tensor * rows     = ggml_reshape_3d(g.ctx, scale, 1, n_expert, 1);
    return ggml_get_rows(g.ctx, ggml_repeat_4d(g.ctx, rows, 1, n_expert, ids->ne[1], 1), ids);
}

} // namespace pds
