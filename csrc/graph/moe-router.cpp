#include "graph/moe-router.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pds {

namespace {

constexpr float min_sum = 1.0f / (1 << 14); // of probabilities: keeps the division from overflowing

// The ids of the n_used highest of n values, highest first. A number that is none counts as the lowest.
void select_highest(const float * values, int64_t n, int32_t * ids, int64_t n_used) {
    const auto at = [&](int64_t id) {
        return std::isnan(values[id]) ? -std::numeric_limits<float>::infinity() : values[id];
    };
    int64_t n_found = 0;
    for (int64_t id = 0; id < n; id++) {
        const float value = at(id);
        if (n_found == n_used && !(value > at(ids[n_used - 1]))) {
            continue;
        }
        n_found       = std::min(n_found + 1, n_used);
        int64_t place = n_found - 1;
        for (; place > 0 && value > at(ids[place - 1]); place--) {
            ids[place] = ids[place - 1];
        }
        ids[place] = static_cast<int32_t>(id);
    }
}

// src: probabilities [n_expert, n_tokens] -> I32 [n_used, n_tokens]
void run_select(ggml_tensor * dst, int ith, int nth, void * /*user*/) {
    const ggml_tensor * probs    = dst->src[0];
    const int64_t       n_expert = probs->ne[0];
    const int64_t       n_used   = dst->ne[0];
    for (int64_t row = ith; row < dst->ne[1]; row += nth) {
        select_highest(static_cast<const float *>(probs->data) + row * n_expert, n_expert,
                       static_cast<int32_t *>(dst->data) + row * n_used, n_used);
    }
}

// src: probabilities [n_expert, n_tokens], ids [n_used, n_tokens] -> F32 [n_used, n_tokens]
void run_weigh(ggml_tensor * dst, int ith, int nth, void * /*user*/) {
    const int64_t n_expert = dst->src[0]->ne[0];
    const int64_t n_used   = dst->ne[0];
    for (int64_t row = ith; row < dst->ne[1]; row += nth) {
        const float *   probs   = static_cast<const float *>(dst->src[0]->data) + row * n_expert;
        const int32_t * ids     = static_cast<const int32_t *>(dst->src[1]->data) + row * n_used;
        float *         weights = static_cast<float *>(dst->data) + row * n_used;
        double          total   = 0;
        for (int64_t i = 0; i < n_used; i++) {
            total += static_cast<double>(probs[ids[i]]);
        }
        const float sum = std::max(static_cast<float>(total), min_sum);
        for (int64_t i = 0; i < n_used; i++) {
            weights[i] = probs[ids[i]] / sum;
        }
    }
}

routing fused(graph_context & g, ggml_tensor * probs, int32_t n_used) {
    const int64_t n_tokens = probs->ne[1];
    ggml_tensor * ids =
        ggml_custom_4d(g.ctx, GGML_TYPE_I32, n_used, n_tokens, 1, 1, &probs, 1, run_select, GGML_N_TASKS_MAX, nullptr);
    ggml_tensor * args[] = { probs, ids };
    ggml_tensor * weights =
        ggml_custom_4d(g.ctx, GGML_TYPE_F32, n_used, n_tokens, 1, 1, args, 2, run_weigh, GGML_N_TASKS_MAX, nullptr);
    return { ids, weights };
}

// Backends of ggml recognise exactly this chain, and compute it at once.
routing plain(graph_context & g, ggml_tensor * probs, int32_t n_used) {
    const int64_t n_expert = probs->ne[0];
    const int64_t n_tokens = probs->ne[1];
    ggml_tensor * ids      = ggml_argsort_top_k(g.ctx, probs, n_used);
    ggml_tensor * weights  = ggml_get_rows(g.ctx, ggml_reshape_3d(g.ctx, probs, 1, n_expert, n_tokens), ids);
    weights                = ggml_reshape_2d(g.ctx, weights, n_used, n_tokens);
    ggml_tensor * sum =
        ggml_clamp(g.ctx, ggml_sum_rows(g.ctx, weights), min_sum, std::numeric_limits<float>::infinity());
    weights = ggml_div(g.ctx, weights, sum);
    return { ids, ggml_reshape_2d(g.ctx, weights, n_used, n_tokens) };
}

} // namespace

routing route(graph_context & g, ggml_tensor * logits, int32_t n_used, expert_form form, int32_t il) {
    ggml_tensor * probs  = g.name(ggml_soft_max(g.ctx, logits), "ffn_moe_probs", il);
    routing       result = form == expert_form::fused ? fused(g, probs, n_used) : plain(g, probs, n_used);
    g.name(result.ids, "ffn_moe_topk", il);
    g.name(result.weights, "ffn_moe_weights_norm", il);
    g.expand(result.weights);
    return result;
}

} // namespace pds
