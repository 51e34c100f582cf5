// A finished graph with its memory: allocated once, run many times.
#pragma once

#include "graph/backends.h"
#include "graph/graph-context.h"

#include <memory>

namespace pds {

class graph_runner {
  public:
    // Allocates the inputs and the intermediate results.
    graph_runner(backends & backends, std::unique_ptr<graph_context> description);

    // Bytes per backend that a graph would take, in the order of backends.all(). Nothing is allocated.
    static std::vector<size_t> measure(const backends & backends, const graph_context & description);

    // Throws error(PDS_ERR_CANCELLED) when progress says stop, before or while the graph runs.
    void run(int32_t n_threads, progress & progress);

    const graph_context & description() const { return *desc_; }

    // Copies n floats from the start of a result.
    static void read(const ggml_tensor * tensor, float * out, size_t n);
    // The logits of all output rows, valid until the next run.
    const float * logits();

  private:
    std::unique_ptr<graph_context> desc_;
    backends &                     backends_;
    ggml_backend_buffer_ptr        input_buffer_;
    ggml_gallocr_ptr               allocator_; // only the CPU works
    ggml_backend_sched_ptr         scheduler_; // several backends work
    std::vector<float>             copied_;    // logits that came from another device
};

} // namespace pds
