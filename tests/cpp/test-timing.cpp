#include "base/timing.h"

#include "check.h"

#include <stdexcept>
#include <thread>

int main() {
    using namespace std::chrono_literals;

    const pds::stopwatch whole;
    pds::stopwatch       restarted;
    std::this_thread::sleep_for(5ms);
    CHECK(whole.elapsed_ms() >= 5);
    restarted.restart();
    const double since_restart_ms = restarted.elapsed_ms();
    CHECK(since_restart_ms >= 0 && since_restart_ms <= whole.elapsed_ms() - 5);

    double total_ms = 100;
    {
        const pds::stage_timer timer(total_ms);
        std::this_thread::sleep_for(2ms);
    }
    CHECK(total_ms >= 102);

    double failed_ms = 0;
    try {
        const pds::stage_timer timer(failed_ms);
        std::this_thread::sleep_for(1ms);
        throw std::runtime_error("a stage that fails");
    } catch (const std::runtime_error &) {
        CHECK(failed_ms >= 1);
    }

    return pds_test::check_result();
}
