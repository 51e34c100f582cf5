// Drawing a token inside a graph, so that what follows it in the graph can depend on it.
#pragma once

#include "graph/graph-context.h"

#include <exception>
#include <span>

namespace pds {

// Chooses a token from a row of logits.
//
// Called while the graph runs, in the order of the graph. slot: which draw of the graph it is.
class row_drawer {
  public:
    row_drawer()                               = default;
    row_drawer(const row_drawer &)             = delete;
    row_drawer & operator=(const row_drawer &) = delete;
    virtual ~row_drawer()                      = default;

    // The id of the token.
    virtual int32_t draw(std::span<const float> logits, int32_t slot) = 0;
    // Fills rows with those that may be drawn, before their logits are complete; draw() then gets the logits of these
    // rows alone, in this order. table_rows: where each of them is found in tables that have other rows than the
    // logits.
    virtual void choose(std::span<const float> base, int32_t slot, std::span<int32_t> rows,
                        std::span<int32_t> table_rows) = 0;

    // Throws what a draw threw while the graph ran: an exception cannot pass through ggml.
    void rethrow();

    std::exception_ptr failure;
};

// What one draw of a graph needs; it must live as long as the graph.
struct slot_draw {
    row_drawer * drawer = nullptr;
    int32_t      slot   = 0;
};

// logits F32 [n] -> I32 [1]. Runs on the CPU.
ggml_tensor * draw_token(graph_context & g, ggml_tensor * logits, slot_draw * draw);
// base F32 [n_rows] -> I32 [n, 2]: rows, and table rows. Runs on the CPU.
ggml_tensor * choose_candidates(graph_context & g, ggml_tensor * base, int64_t n, slot_draw * draw);

} // namespace pds
