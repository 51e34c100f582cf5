// Long work asks here, now and then, whether to go on.
#pragma once

#include "base/error.h"

#include <atomic>
#include <chrono>

namespace pds {

class progress {
  public:
    progress() = default; // never asks to stop
    progress(pds_progress_fn fn, void * user, const std::atomic<bool> * cancelled = nullptr)
        : fn_(fn), user_(user), cancelled_(cancelled) {}

    void set_fraction(double value) { fraction_ = value; }

    // True when the work should end. Calls the caller's function at most every 30 ms.
    bool should_stop() {
        if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
            return true;
        }
        const auto now = std::chrono::steady_clock::now();
        if (fn_ == nullptr || now - last_ < std::chrono::milliseconds(30)) {
            return stopped_;
        }
        last_    = now;
        stopped_ = stopped_ || fn_(user_, fraction_) != 0;
        return stopped_;
    }

    void check() { PDS_REQUIRE(!should_stop(), PDS_ERR_CANCELLED, "cancelled"); }

  private:
    pds_progress_fn                       fn_        = nullptr;
    void *                                user_      = nullptr;
    const std::atomic<bool> *             cancelled_ = nullptr;
    double                                fraction_  = 0;
    bool                                  stopped_   = false;
    std::chrono::steady_clock::time_point last_      = std::chrono::steady_clock::now();
};

} // namespace pds
