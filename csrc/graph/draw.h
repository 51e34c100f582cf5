// Drawing a token inside a graph, so that what follows it in the graph can depend on it.
#pragma once

#include "graph/graph-context.h"

#include <exception>
#include <span>

namespace pds {

// Chooses a token from a row of logits.
class row_drawer {
  public:
    row_drawer()                               = default;
    row_drawer(const row_drawer &)             = delete;
    row_drawer & operator=(const row_drawer &) = delete;
    virtual ~row_drawer()                      = default;

    // slot: which draw of the graph it is. Called while the graph runs, in the order of the graph.
    virtual int32_t draw(std::span<const float> logits, int32_t slot) = 0;

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

} // namespace pds
