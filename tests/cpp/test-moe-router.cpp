// The router: the fused form equals its plain twin, and names experts that exist whatever it is given.
#include "graph/moe-router.h"

#include "check.h"
#include "cpu-graph.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace {

using pds::expert_form;

struct routed {
    std::vector<int32_t> ids;
    std::vector<float>   weights;
};

routed run_route(const std::vector<float> & logits, int64_t n_expert, int32_t n_used, expert_form form) {
    const int64_t n_tokens = static_cast<int64_t>(logits.size()) / n_expert;
    routed        result;
    for (const bool ids : { true, false }) {
        pds_test::cpu_graph graph(static_cast<int32_t>(n_tokens));
        const pds::routing  r = pds::route(graph.g(), graph.tensor({ n_expert, n_tokens }, logits), n_used, form, 0);
        if (ids) {
            result.ids = graph.run<int32_t>(ggml_cont(graph.g().ctx, r.ids));
        } else {
            result.weights = graph.run(r.weights);
        }
    }
    return result;
}

void test_router_forms_agree() {
    std::mt19937 rng(1);
    for (const int64_t n_expert : { 1, 2, 7, 8, 64, 256, 1000 }) {
        for (const int32_t n_used : { 1, 2, 3, 8, 64 }) {
            for (const int64_t n_tokens : { 1, 2, 9, 40 }) {
                if (n_used > n_expert) {
                    continue;
                }
                const auto   logits = pds_test::normal_values(rng, n_expert * n_tokens, 3.0f);
                const routed fused  = run_route(logits, n_expert, n_used, expert_form::fused);
                const routed plain  = run_route(logits, n_expert, n_used, expert_form::plain);
                CHECK(fused.ids == plain.ids);
                CHECK(fused.weights == plain.weights);
            }
        }
    }
}

void test_equal_experts_are_taken_in_order() {
    const int64_t      n_expert = 64;
    std::vector<float> logits(static_cast<size_t>(n_expert), 0.5f);
    CHECK((run_route(logits, n_expert, 4, expert_form::fused).ids == std::vector<int32_t>{ 0, 1, 2, 3 }));
    logits[60] = logits[40] = 2.0f;
    logits[5]               = -1.0f;
    const routed result     = run_route(logits, n_expert, 6, expert_form::fused);
    CHECK((result.ids == std::vector<int32_t>{ 40, 60, 0, 1, 2, 3 }));
    CHECK(result.weights[0] == result.weights[1] && result.weights[2] == result.weights[5]);
    CHECK_NEAR(std::accumulate(result.weights.begin(), result.weights.end(), 0.0), 1, 1e-6);
}

// What follows reads the matrices of these experts: whatever the router says, they must be different and exist.
void test_experts_exist_whatever_the_logits_are() {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float odd : { std::nanf(""), infinity, -infinity, 1e38f }) {
        for (const size_t n_odd : { size_t{ 1 }, size_t{ 5 }, size_t{ 32 } }) {
            std::vector<float> logits(32, 1.0f);
            std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(32 - n_odd), n_odd, odd);
            const routed            result = run_route(logits, 32, 8, expert_form::fused);
            const std::set<int32_t> different(result.ids.begin(), result.ids.end());
            CHECK(different.size() == 8 && *different.begin() >= 0 && *different.rbegin() < 32);
        }
    }
}

// What backends recognise as one operation.
void test_order_of_the_plain_router() {
    pds_test::cpu_graph      graph(3);
    const std::vector<float> logits(8 * 3, 0.0f);
    pds::route(graph.g(), graph.tensor({ 8, 3 }, logits), 2, expert_form::plain, 0);
    const std::vector<ggml_op> wanted = { GGML_OP_SOFT_MAX, GGML_OP_RESHAPE, GGML_OP_ARGSORT,  GGML_OP_VIEW,
                                          GGML_OP_GET_ROWS, GGML_OP_RESHAPE, GGML_OP_SUM_ROWS, GGML_OP_CLAMP,
                                          GGML_OP_DIV,      GGML_OP_RESHAPE };
    CHECK(ggml_graph_n_nodes(graph.g().graph) == static_cast<int>(wanted.size()));
    for (size_t i = 0; i < wanted.size(); i++) {
        CHECK(ggml_graph_node(graph.g().graph, static_cast<int>(i))->op == wanted[i]);
    }
}

} // namespace

int main() {
    test_router_forms_agree();
    test_equal_experts_are_taken_in_order();
    test_experts_exist_whatever_the_logits_are();
    test_order_of_the_plain_router();
    return pds_test::check_result();
}
