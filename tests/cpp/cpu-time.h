// CPU time of the calling thread, which does all the work of a graph on one thread.
#pragma once

#include <algorithm>
#include <ctime>
#include <functional>

namespace pds_test {

inline double cpu_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Best of several repetitions: what the work takes when nothing else runs. What prepare does is not counted.
inline double best_us(int n_repeats, const std::function<void()> & prepare, const std::function<void()> & work) {
    double best = 1e30;
    for (int i = 0; i < n_repeats; i++) {
        prepare();
        const double begin = cpu_us();
        work();
        best = std::min(best, cpu_us() - begin);
    }
    return best;
}

} // namespace pds_test
