// Where the time of a graph goes, by the kind of work. Only for measuring: the graph is run in pieces.
#pragma once

#include "graph/backends.h"
#include "graph/graph-context.h"

#include <array>

namespace pds {

// In milliseconds of CPU time of the calling thread, by PDS_STAGE_*.
using stage_times = std::array<double, PDS_N_STAGES>;

class stage_timed_graph {
  public:
    stage_timed_graph(backends & backends, std::unique_ptr<graph_context> description);

    const graph_context & description() const { return *desc_; }

    // Inputs must be set. Adds the times of one run; what follows the logits counts as a drafter's features.
    void run(int32_t n_threads, stage_times & times);

  private:
    std::unique_ptr<graph_context> desc_;
    backends &                     backends_;
    ggml_backend_buffer_ptr        input_buffer_;
    ggml_backend_sched_ptr         scheduler_;
};

} // namespace pds
