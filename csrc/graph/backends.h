// The running side of ggml for one session: its backends, its threads and the question whether to go on.
#pragma once

#include "base/progress.h"
#include "ggml-cpp.h"
#include "model/device.h"

#include <vector>

namespace pds {

class backends {
  public:
    // used: devices that hold weights; the CPU is always among the backends.
    backends(const std::vector<const device *> & used, int32_t n_threads_max);
    ~backends();
    backends(const backends &)             = delete;
    backends & operator=(const backends &) = delete;

    void set_threads(int32_t n_threads_);
    // While set, a running graph asks it between operations.
    void set_progress(progress * progress);

    const std::vector<ggml_backend_t> & all() const { return list_; } // GPU first, CPU last
    ggml_backend_t                      cpu() const { return list_.back(); }

  private:
    void start_pool(int32_t n_threads_);

    std::vector<ggml_backend_ptr> owned_;
    std::vector<ggml_backend_t>   list_;
    ggml_threadpool *             pool_      = nullptr;
    int32_t                       n_threads_ = 0;
};

} // namespace pds
