// Microseconds of the sum at the end of a mixture of experts, next to its plain twin. Not a test.
#include "graph/moe-finalize.h"

#include "cpu-graph.h"
#include "cpu-time.h"

#include <cstdio>

namespace {

using pds::expert_form;

constexpr int64_t n_embd   = 2048;
constexpr int64_t n_used   = 8;
constexpr int     n_layers = 20; // in one graph, so that its start does not count

double sum_us(int64_t n_tokens, expert_form form) {
    std::mt19937        rng(1);
    pds_test::cpu_graph graph(static_cast<int32_t>(n_tokens));
    const auto          values = [&](std::initializer_list<int64_t> ne) {
        int64_t n = 1;
        for (const int64_t size : ne) {
            n *= size;
        }
        return graph.tensor(ne, pds_test::normal_values(rng, n, 1.0f));
    };
    const std::vector<int32_t> ids(static_cast<size_t>(n_used * n_tokens), 0);
    pds::expert_results        r = {};
    r.experts                    = values({ n_embd, n_used, n_tokens });
    r.route       = { graph.tensor(GGML_TYPE_I32, { n_used, n_tokens }, ids.data()), values({ n_used, n_tokens }) };
    r.shared      = values({ n_embd, n_tokens });
    r.shared_gate = values({ 1, n_tokens });
    r.residual    = values({ n_embd, n_tokens });
    for (int layer = 0; layer < n_layers; layer++) {
        r.residual = pds::moe_finalize(graph.g(), r, form);
    }
    graph.finish({ r.residual });
    return pds_test::best_us(300, [] {}, [&] { graph.compute(); }) / n_layers;
}

} // namespace

int main() {
    std::printf("sum of %d experts, a shared one and the residual, n_embd %d: us per layer\n", int{ n_used },
                int{ n_embd });
    for (int64_t n_tokens = 1; n_tokens <= 9; n_tokens++) {
        const double fused = sum_us(n_tokens, expert_form::fused);
        const double plain = sum_us(n_tokens, expert_form::plain);
        std::printf("  %d rows: fused %6.1f  plain %6.1f  %4.1fx\n", static_cast<int>(n_tokens), fused, plain,
                    plain / fused);
    }
    return 0;
}
