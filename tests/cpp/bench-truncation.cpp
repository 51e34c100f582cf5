// Microseconds per row of the sampler, next to one pass over the row and to the plain twin. Not a test.
#include "base/timing.h"
#include "spec/sampler.h"

#include "plain-truncation.h"
#include "sample.h"

#include <cstdio>
#include <random>

namespace {

constexpr size_t n_vocab_rows = 248320;

// Best of several repetitions: what the work takes when nothing else runs.
template <typename work> double best_us(int n_repeats, work && run) {
    double best = 1e30;
    for (int i = 0; i < n_repeats; ++i) {
        const pds::stopwatch watch;
        run();
        best = std::min(best, watch.elapsed_ms() * 1000);
    }
    return best;
}

double read_once(const std::vector<float> & row) {
    float lanes[64]{};
    for (size_t i = 0; i + 64 <= row.size(); i += 64) {
        for (size_t lane = 0; lane < 64; ++lane) {
            lanes[lane] += row[i + lane];
        }
    }
    return static_cast<double>(std::accumulate(lanes, lanes + 64, 0.0f));
}

void bench_row(const char * row_name, const std::vector<float> & row) {
    struct setting {
        const char *         name;
        pds::sampling_params params;
    };
    std::vector<std::pair<int32_t, float>> bias;
    for (int32_t i = 0; i < 64; ++i) {
        bias.push_back({ i * 3800 + 7, 0.5f });
    }
    const setting settings[] = {
        { "greedy", { .temperature = 0 } },
        { "top-k 20, top-p, min-p", { .temperature = 0.7f, .top_p = 0.95f, .min_p = 0.02f, .top_k = 20 } },
        { "same with 64 biases", { .temperature = 0.7f, .top_p = 0.95f, .min_p = 0.02f, .top_k = 20, .bias = bias } },
        { "top-k 1000", { .temperature = 0.7f, .top_k = 1000 } },
        { "min-p 0.05", { .temperature = 0.7f, .min_p = 0.05f } },
        { "top-p 0.95", { .temperature = 0.7f, .top_p = 0.95f } },
        { "temperature alone", { .temperature = 0.7f } },
    };
    volatile double sink    = 0;
    const double    read_us = best_us(50, [&] { sink = sink + read_once(row); });
    std::printf("%s: one pass over the row %.0f us\n", row_name, read_us);
    for (const auto & [name, params] : settings) {
        pds::sampler state(params, static_cast<int32_t>(row.size()), {});
        uint64_t     position = 0;
        const double us       = best_us(50, [&] { sink = sink + pds_test::sample(state, row, 0, position++); });
        const double plain_us = best_us(2, [&] {
            const auto result = pds_test::plain_distribution(pds_test::plain_logits(row, params, {}, {}), params);
            sink              = sink + result.candidates.front().p;
        });
        std::printf("  %-24s %8.0f us  %5.1f passes  plain twin %8.0f us\n", name, us, us / read_us, plain_us);
    }
    float                           own = 0;
    std::vector<pds::token_logprob> top;
    const double                    us = best_us(50, [&] { pds::row_logprobs(row, 5, 20, own, top); });
    std::printf("  %-24s %8.0f us  %5.1f passes\n", "log-probabilities", us, us / read_us);
}

} // namespace

int main() {
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float>              row(n_vocab_rows);
    for (float & x : row) {
        x = normal(rng);
    }
    bench_row("normal logits, sigma 3", row);
    std::vector<float> peaked = row;
    peaked[123456] += 25;
    peaked[654] += 24;
    bench_row("peaked logits", peaked);
    std::sort(row.begin(), row.end());
    bench_row("ascending logits", row);
    return 0;
}
