// A mixture of experts equals its definition computed in doubles, in all forms in which a file can hold it.
#include "graph/moe.h"

#include "check.h"
#include "cpu-graph.h"
#include "gguf/tensor-type.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace {

using pds::expert_form;

struct moe_model {
    int64_t n_embd;
    int64_t n_ff;
    int64_t n_shared = 48;
    int64_t n_expert = 8;
    int64_t n_used   = 3;
    bool    shared   = true;
    bool    scaled   = true;

    std::vector<float> router, gate, up, down, gate_scale, up_scale, down_scale;
    std::vector<float> shared_router, shared_gate, shared_up, shared_down;

    explicit moe_model(int64_t width = 32) : n_embd(width), n_ff(width) {
        std::mt19937 rng(7);
        const auto   values = [&](int64_t n, int64_t n_in) {
            return pds_test::normal_values(rng, n, 1.5f / std::sqrt(static_cast<float>(n_in)));
        };
        router        = values(n_embd * n_expert, n_embd);
        gate          = values(n_embd * n_ff * n_expert, n_embd);
        up            = values(n_embd * n_ff * n_expert, n_embd);
        down          = values(n_ff * n_embd * n_expert, n_ff);
        gate_scale    = values(n_expert, 1);
        up_scale      = values(n_expert, 1);
        down_scale    = values(n_expert, 1);
        shared_router = values(n_embd, n_embd);
        shared_gate   = values(n_embd * n_shared, n_embd);
        shared_up     = values(n_embd * n_shared, n_embd);
        shared_down   = values(n_shared * n_embd, n_shared);
    }
};

constexpr float shared_scale = 0.75f; // of each dense matrix of the shared expert

// [n_in, n_out] times x
std::vector<double> product(const float * matrix, size_t n_in, size_t n_out, const std::vector<double> & x,
                            double scale) {
    std::vector<double> y(n_out, 0.0);
    for (size_t row = 0; row < n_out; row++) {
        for (size_t i = 0; i < n_in; i++) {
            y[row] += scale * static_cast<double>(matrix[row * n_in + i]) * x[i];
        }
    }
    return y;
}

std::vector<double> gated(const std::vector<double> & gate, const std::vector<double> & up) {
    std::vector<double> y(gate.size());
    for (size_t i = 0; i < y.size(); i++) {
        y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
    return y;
}

// What is added to the residual of one token.
std::vector<double> by_definition(const moe_model & m, const std::vector<double> & x) {
    const auto          n_embd = static_cast<size_t>(m.n_embd);
    const auto          n_ff   = static_cast<size_t>(m.n_ff);
    std::vector<double> p      = product(m.router.data(), n_embd, static_cast<size_t>(m.n_expert), x, 1);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{ 0 });
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    double total = 0;
    for (size_t i = 0; i < static_cast<size_t>(m.n_used); i++) {
        total += std::exp(p[order[i]]);
    }
    std::vector<double> y(n_embd, 0.0);
    const auto          add = [&](const std::vector<double> & values, double weight) {
        for (size_t i = 0; i < n_embd; i++) {
            y[i] += weight * values[i];
        }
    };
    for (size_t i = 0; i < static_cast<size_t>(m.n_used); i++) {
        const size_t e     = order[i];
        const auto   scale = [&](const std::vector<float> & scales) {
            return m.scaled ? static_cast<double>(scales[e]) : 1.0;
        };
        const auto gate = product(m.gate.data() + e * n_embd * n_ff, n_embd, n_ff, x, scale(m.gate_scale));
        const auto up   = product(m.up.data() + e * n_embd * n_ff, n_embd, n_ff, x, scale(m.up_scale));
        add(product(m.down.data() + e * n_embd * n_ff, n_ff, n_embd, gated(gate, up), scale(m.down_scale)),
            std::exp(p[e]) / total);
    }
    if (m.shared) {
        const auto   n_shared = static_cast<size_t>(m.n_shared);
        const auto   gate     = product(m.shared_gate.data(), n_embd, n_shared, x, static_cast<double>(shared_scale));
        const auto   up       = product(m.shared_up.data(), n_embd, n_shared, x, static_cast<double>(shared_scale));
        const double open     = product(m.shared_router.data(), n_embd, 1, x, 1)[0];
        add(product(m.shared_down.data(), n_shared, n_embd, gated(gate, up), static_cast<double>(shared_scale)),
            1 / (1 + std::exp(-open)));
    }
    return y;
}

// Gate rows of each expert in front of its up rows.
std::vector<float> merged(const moe_model & m) {
    const auto         n = static_cast<std::ptrdiff_t>(m.n_embd * m.n_ff);
    std::vector<float> both;
    for (std::ptrdiff_t e = 0; e < m.n_expert; e++) {
        both.insert(both.end(), m.gate.begin() + e * n, m.gate.begin() + (e + 1) * n);
        both.insert(both.end(), m.up.begin() + e * n, m.up.begin() + (e + 1) * n);
    }
    return both;
}

// x: one row per token. Matrices of experts are held in a type; in others than F32, which can take long to make, they
// consist of a few rows again and again.
std::vector<float> run_experts(const moe_model & m, const std::vector<float> & x, expert_form form, bool merge = false,
                               ggml_type type = GGML_TYPE_F32, int32_t n_threads = 1) {
    const int64_t       n_tokens = static_cast<int64_t>(x.size()) / m.n_embd;
    pds_test::cpu_graph graph(static_cast<int32_t>(n_tokens), n_threads);
    const auto          matrix = [&](std::initializer_list<int64_t> ne, const std::vector<float> & values) {
        const int64_t            n_in   = ne.begin()[0];
        const int64_t            n_rows = static_cast<int64_t>(values.size()) / n_in;
        const int64_t            n_own  = type == GGML_TYPE_F32 ? n_rows : std::min<int64_t>(n_rows, 3);
        const size_t             n_copy = ggml_row_size(type, n_in) * static_cast<size_t>(n_own);
        const std::vector<float> even(static_cast<size_t>(n_in), 1.0f);
        std::vector<uint8_t>     bytes(ggml_row_size(type, n_in) * static_cast<size_t>(n_rows));
        ggml_quantize_chunk(type, values.data(), bytes.data(), 0, n_own, n_in, even.data());
        for (size_t i = n_copy; i < bytes.size(); i++) {
            bytes[i] = bytes[i - n_copy];
        }
        return graph.tensor(type, ne, bytes.data());
    };
    const auto scale = [&](const std::vector<float> & values) {
        return m.scaled ? graph.tensor({ m.n_expert }, values) : nullptr;
    };
    const auto linear = [&](int64_t n_in, int64_t n_out, const std::vector<float> & values, float factor) {
        return pds::linear_weight{ graph.tensor({ n_in, n_out }, values), factor, nullptr };
    };
    pds::expert_weights w;
    w.router = linear(m.n_embd, m.n_expert, m.router, 1);
    if (merge) {
        w.gate_up = { matrix({ m.n_embd, 2 * m.n_ff, m.n_expert }, merged(m)), nullptr };
    } else {
        w.gate = { matrix({ m.n_embd, m.n_ff, m.n_expert }, m.gate), scale(m.gate_scale) };
        w.up   = { matrix({ m.n_embd, m.n_ff, m.n_expert }, m.up), scale(m.up_scale) };
    }
    w.down = { matrix({ m.n_ff, m.n_embd, m.n_expert }, m.down), scale(m.down_scale) };
    if (m.shared) {
        w.shared_router = linear(m.n_embd, 1, m.shared_router, 1);
        w.shared_gate   = linear(m.n_embd, m.n_shared, m.shared_gate, shared_scale);
        w.shared_up     = linear(m.n_embd, m.n_shared, m.shared_up, shared_scale);
        w.shared_down   = linear(m.n_shared, m.n_embd, m.shared_down, shared_scale);
    }
    const std::vector<float> nothing(x.size(), 0.0f);
    ggml_tensor *            y =
        pds::build_experts(graph.g(), w, { static_cast<int32_t>(m.n_used), form },
                           graph.tensor({ m.n_embd, n_tokens }, x), graph.tensor({ m.n_embd, n_tokens }, nothing), 0);
    return graph.run(y);
}

void check_definition(const moe_model & m, const std::vector<float> & x, const std::vector<float> & y) {
    const auto n_embd = static_cast<size_t>(m.n_embd);
    double     worst  = 0;
    for (size_t row = 0; row < x.size() / n_embd; row++) {
        const auto from = x.begin() + static_cast<std::ptrdiff_t>(row * n_embd);
        const auto want = by_definition(m, std::vector<double>(from, from + m.n_embd));
        for (size_t i = 0; i < n_embd; i++) {
            worst = std::max(worst, std::abs(static_cast<double>(y[row * n_embd + i]) - want[i]));
        }
    }
    CHECK_NEAR(worst, 0, 1e-5);
}

void test_experts_by_definition() {
    std::mt19937 rng(3);
    for (const int64_t n_tokens : { 1, 2, 9 }) {
        for (const bool shared : { false, true }) {
            for (const bool scaled : { false, true }) {
                moe_model m;
                m.shared     = shared;
                m.scaled     = scaled;
                const auto x = pds_test::normal_values(rng, m.n_embd * n_tokens, 1.0f);
                for (const expert_form form : { expert_form::fused, expert_form::plain }) {
                    const auto y = run_experts(m, x, form);
                    check_definition(m, x, y);
                    if (!scaled) {
                        CHECK(run_experts(m, x, form, true) == y); // gate and up in one
                    }
                }
            }
        }
    }
}

// Types of weights, but for those that take half a minute of preparation before anything can be quantized to them.
std::vector<ggml_type> weight_types() {
    std::vector<ggml_type> types;
    for (uint32_t number = 0; number < GGML_TYPE_COUNT; number++) {
        const auto type = static_cast<ggml_type>(number);
        if (!pds::tensor_type_known(number) ||
            (type != GGML_TYPE_F32 && ggml_get_type_traits(type)->to_float == nullptr)) {
            continue;
        }
        const std::string name = ggml_type_name(type);
        if (name.find("iq1") != 0 && name.find("iq2") != 0 && name.find("iq3") != 0) {
            types.push_back(type);
        }
    }
    return types;
}

void test_rows_of_all_weight_types() {
    std::mt19937 rng(4);
    for (const ggml_type type : weight_types()) {
        const moe_model m(256);
        const auto      x     = pds_test::normal_values(rng, m.n_embd * 9, 1.0f);
        const auto      batch = run_experts(m, x, expert_form::fused, false, type);
        CHECK(run_experts(m, x, expert_form::fused, false, type, 2) == batch);
        for (const int64_t row : { 0, 4, 8 }) {
            const auto from = x.begin() + row * m.n_embd;
            const auto alone =
                run_experts(m, std::vector<float>(from, from + m.n_embd), expert_form::fused, false, type);
            CHECK(std::equal(alone.begin(), alone.end(), batch.begin() + row * m.n_embd));
        }
    }
}

} // namespace

int main() {
    test_experts_by_definition();
    test_rows_of_all_weight_types();
    return pds_test::check_result();
}
