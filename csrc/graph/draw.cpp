#include "graph/draw.h"

#include <utility>

namespace pds {

namespace {

void run_draw(ggml_tensor * dst, int ith, int /*nth*/, void * user) {
    if (ith != 0) {
        return;
    }
    const auto *        draw   = static_cast<const slot_draw *>(user);
    const ggml_tensor * logits = dst->src[0];
    auto *              id     = static_cast<int32_t *>(dst->data);
    *id                        = 0; // a row that exists, should the draw fail
    if (draw->drawer->failure != nullptr) {
        return;
    }
    try {
        *id = draw->drawer->draw({ static_cast<const float *>(logits->data), static_cast<size_t>(logits->ne[0]) },
                                 draw->slot);
    } catch (...) {
        draw->drawer->failure = std::current_exception();
    }
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

} // namespace pds
