// Stage timers on the steady clock, in milliseconds.
#pragma once

#include <chrono>

namespace pds {

class stopwatch {
  public:
    double elapsed_ms() const { return std::chrono::duration<double, std::milli>(clock::now() - start_).count(); }

    void restart() { start_ = clock::now(); }

  private:
    using clock = std::chrono::steady_clock;

    clock::time_point start_ = clock::now();
};

// CPU time of the calling thread: waiting does not count.
class cpu_stopwatch {
  public:
    double elapsed_ms() const { return now_ms() - begin_; }

  private:
    static double now_ms() {
        timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
    }

    double begin_ = now_ms();
};

// Adds the lifetime of the object to a total, also when the stage ends by an exception.
class stage_timer {
  public:
    explicit stage_timer(double & total_ms) : total_ms_(total_ms) {}

    ~stage_timer() { total_ms_ += watch_.elapsed_ms(); }

    stage_timer(const stage_timer &)             = delete;
    stage_timer & operator=(const stage_timer &) = delete;

  private:
    double &  total_ms_;
    stopwatch watch_;
};

} // namespace pds
