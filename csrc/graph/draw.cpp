#include "graph/draw.h"

#include <algorithm>
#include <utility>

namespace pds {

namespace {

std::span<const float> values_of(const ggml_tensor * row) {
    return { static_cast<const float *>(row->data), static_cast<size_t>(row->ne[0]) };
}

// An exception cannot pass through ggml: it is kept, and nothing more is drawn.
template <typename call_t> void guarded(row_drawer & drawer, call_t && call) {
    if (drawer.failure != nullptr) {
        return;
    }
    try {
        call();
    } catch (...) {
        drawer.failure = std::current_exception();
    }
}

void run_draw(ggml_tensor * dst, int ith, int /*nth*/, void * user) {
    if (ith != 0) {
        return;
    }
    const auto * draw = static_cast<const slot_draw *>(user);
    auto *       id   = static_cast<int32_t *>(dst->data);
    *id               = 0; // a token that exists, should the draw fail
    guarded(*draw->drawer, [&] { *id = draw->drawer->draw(values_of(dst->src[0]), draw->slot); });
}

void run_choose(ggml_tensor * dst, int ith, int /*nth*/, void * user) {
    if (ith != 0) {
        return;
    }
    const auto *             draw = static_cast<const slot_draw *>(user);
    const std::span<int32_t> out  = { static_cast<int32_t *>(dst->data), static_cast<size_t>(ggml_nelements(dst)) };
    const size_t             n    = out.size() / 2;
    std::fill(out.begin(), out.end(), 0); // rows that exist
    guarded(*draw->drawer,
            [&] { draw->drawer->choose(values_of(dst->src[0]), draw->slot, out.first(n), out.last(n)); });
}

} // namespace

void row_drawer::rethrow() {
    if (failure != nullptr) {
        std::rethrow_exception(std::exchange(failure, nullptr));
    }
}

ggml_tensor * draw_token(graph_context & g, ggml_tensor * logits, slot_draw * draw) {
    return ggml_custom_4d(g.ctx, GGML_TYPE_I32, 1, 1, 1, 1, &logits, 1, run_draw, 1, draw);
}

ggml_tensor * choose_candidates(graph_context & g, ggml_tensor * base, int64_t n, slot_draw * draw) {
    return ggml_custom_4d(g.ctx, GGML_TYPE_I32, n, 2, 1, 1, &base, 1, run_choose, 1, draw);
}

} // namespace pds
