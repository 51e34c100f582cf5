// The sum of what experts gave: the fused operation equals its plain twin, and a row of a batch what it is alone.
#include "graph/moe-finalize.h"

#include "check.h"
#include "cpu-graph.h"

#include <algorithm>
#include <cstring>

namespace {

using pds::expert_form;

struct sum_shape {
    int64_t n_embd;
    int64_t n_expert;
    int64_t n_used;
    int64_t n_tokens;
    bool    scaled;
    bool    shared;
    float   size; // of what the experts gave
};

struct sum_data {
    explicit sum_data(const sum_shape & s) : shape(s) {
        std::mt19937 rng(static_cast<uint32_t>(s.n_embd * 1000 + s.n_used * 10 + s.n_tokens));
        experts  = pds_test::normal_values(rng, s.n_embd * s.n_used * s.n_tokens, s.size);
        weights  = pds_test::normal_values(rng, s.n_used * s.n_tokens, 1.0f);
        scale    = pds_test::normal_values(rng, s.n_expert, 1e-3f);
        shared   = pds_test::normal_values(rng, s.n_embd * s.n_tokens, s.size);
        gate     = pds_test::normal_values(rng, s.n_tokens, 20.0f);
        residual = pds_test::normal_values(rng, s.n_embd * s.n_tokens, 1.0f);
        for (float & weight : weights) {
            weight = std::max(weight, 0.0f); // half of them are 0
        }
        for (int64_t row = 0; row < s.n_tokens; row++) {
            for (int64_t i = 0; i < s.n_used; i++) {
                ids.push_back(static_cast<int32_t>((row * 3 + i) % s.n_expert));
            }
        }
    }

    std::vector<float> run(expert_form form, int64_t first, int64_t n, int32_t n_threads = 1) const {
        const sum_shape &   s = shape;
        pds_test::cpu_graph graph(static_cast<int32_t>(n), n_threads);
        const auto          at = [&](const auto & values, int64_t width) { return values.data() + first * width; };
        pds::expert_results r  = {};
        r.experts = graph.tensor(GGML_TYPE_F32, { s.n_embd, s.n_used, n }, at(experts, s.n_embd * s.n_used));
        r.route   = { graph.tensor(GGML_TYPE_I32, { s.n_used, n }, at(ids, s.n_used)),
                      graph.tensor(GGML_TYPE_F32, { s.n_used, n }, at(weights, s.n_used)) };
        r.scale   = s.scaled ? graph.tensor({ s.n_expert }, scale) : nullptr;
        if (s.shared) {
            r.shared      = graph.tensor(GGML_TYPE_F32, { s.n_embd, n }, at(shared, s.n_embd));
            r.shared_gate = graph.tensor(GGML_TYPE_F32, { 1, n }, at(gate, 1));
        }
        r.residual = graph.tensor(GGML_TYPE_F32, { s.n_embd, n }, at(residual, s.n_embd));
        return graph.run(pds::moe_finalize(graph.g(), r, form));
    }

    sum_shape            shape;
    std::vector<float>   experts;
    std::vector<float>   weights;
    std::vector<float>   scale;
    std::vector<float>   shared;
    std::vector<float>   gate;
    std::vector<float>   residual;
    std::vector<int32_t> ids;
};

void check_near(const std::vector<float> & got, const std::vector<float> & want, float size) {
    CHECK(got.size() == want.size());
    float worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        worst = std::max(worst, std::abs(got[i] - want[i]));
    }
    CHECK(worst <= 2e-6f * std::max(size, 1.0f) * 10);
}

void check_shape(const sum_shape & shape) {
    const sum_data           data(shape);
    const std::vector<float> fused = data.run(expert_form::fused, 0, shape.n_tokens);
    check_near(fused, data.run(expert_form::plain, 0, shape.n_tokens), shape.size);
    CHECK(fused == data.run(expert_form::fused, 0, shape.n_tokens, 2));
    const auto width = static_cast<size_t>(shape.n_embd);
    for (int64_t row = 0; row < shape.n_tokens; row++) {
        const std::vector<float> alone = data.run(expert_form::fused, row, 1);
        CHECK(std::equal(alone.begin(), alone.end(), fused.begin() + row * shape.n_embd));
        CHECK(alone.size() == width);
    }
}

void test_fused_equals_plain() {
    for (const int64_t n_embd : { 1, 63, 64, 65, 200, 2048 }) {
        for (const bool scaled : { false, true }) {
            for (const bool shared : { false, true }) {
                check_shape({ n_embd, 1, 1, 3, scaled, shared, 1.0f });
                check_shape({ n_embd, 16, 8, 9, scaled, shared, 1.0f });
            }
        }
    }
    for (int64_t n_used = 1; n_used <= 9; n_used++) {
        for (int64_t n_tokens = 1; n_tokens <= 9; n_tokens++) {
            check_shape({ 96, 9, n_used, n_tokens, n_tokens % 2 == 0, n_used % 2 == 0, 1.0f });
        }
    }
    check_shape({ 128, 64, 64, 2, true, true, 1.0f });
    check_shape({ 128, 8, 4, 5, true, true, 1e20f });
    check_shape({ 128, 8, 4, 5, false, false, 0.0f });
}

void test_a_value_that_is_no_number_stays_in_its_place() {
    sum_data data({ 100, 4, 2, 2, false, true, 1.0f });
    data.experts[70]              = std::nanf("");
    const std::vector<float> sums = data.run(expert_form::fused, 0, 2);
    for (size_t i = 0; i < sums.size(); i++) {
        CHECK(std::isnan(sums[i]) == (i == 70));
    }
}

// What backends recognise: one product, all its views, then the additions.
void test_order_of_the_plain_form() {
    pds_test::cpu_graph        graph(2);
    const std::vector<float>   values(8 * 5 * 2, 1.0f);
    const std::vector<int32_t> ids(5 * 2, 0);
    pds::expert_results        r = {};
    r.experts                    = graph.tensor({ 8, 5, 2 }, values);
    r.route       = { graph.tensor(GGML_TYPE_I32, { 5, 2 }, ids.data()), graph.tensor({ 5, 2 }, values) };
    r.shared      = graph.tensor({ 8, 2 }, values);
    r.shared_gate = graph.tensor({ 1, 2 }, values);
    r.residual    = graph.tensor({ 8, 2 }, values);
    graph.g().expand(pds::moe_finalize(graph.g(), r, expert_form::plain));

    std::vector<ggml_op> ops;
    for (int i = 0; i < ggml_graph_n_nodes(graph.g().graph); i++) {
        ops.push_back(ggml_graph_node(graph.g().graph, i)->op);
    }
    const std::vector<ggml_op> chain = { GGML_OP_MUL,  GGML_OP_VIEW, GGML_OP_VIEW, GGML_OP_VIEW, GGML_OP_VIEW,
                                         GGML_OP_VIEW, GGML_OP_ADD,  GGML_OP_ADD,  GGML_OP_ADD,  GGML_OP_ADD };
    CHECK(std::search(ops.begin(), ops.end(), chain.begin(), chain.end()) != ops.end());
    CHECK(ops.size() >= 2 && ops[ops.size() - 1] == GGML_OP_ADD && ops[ops.size() - 2] == GGML_OP_ADD);
}

} // namespace

int main() {
    test_fused_equals_plain();
    test_a_value_that_is_no_number_stays_in_its_place();
    test_order_of_the_plain_form();
    return pds_test::check_result();
}
