// Microseconds of products with the matrices of experts, by how many rows there are and how many experts these share.
// Not a test.
#include "cpu-graph.h"
#include "cpu-time.h"

#include <algorithm>
#include <cstdio>

namespace {

constexpr int64_t n_embd   = 2048;
constexpr int64_t n_ff     = 512;
constexpr int64_t n_expert = 256;
constexpr int64_t n_used   = 8;

enum class sharing { none, half, all };

// For each row the experts that it goes through; other ones for each repetition, so that they come from memory.
std::vector<int32_t> choose(std::mt19937 & rng, int64_t n_tokens, sharing how) {
    std::vector<int32_t> order(n_expert);
    for (int32_t id = 0; id < n_expert; id++) {
        order[static_cast<size_t>(id)] = id;
    }
    std::shuffle(order.begin(), order.end(), rng);
    const int64_t        n_same = how == sharing::all ? n_used : how == sharing::half ? n_used / 2 : 0;
    std::vector<int32_t> ids;
    for (int64_t row = 0; row < n_tokens; row++) {
        const int64_t own = n_same + row * (n_used - n_same);
        for (int64_t i = 0; i < n_used; i++) {
            ids.push_back(order[static_cast<size_t>(i < n_same ? i : own + i - n_same)]);
        }
    }
    return ids;
}

// The same few rows again and again: it takes long to make others.
std::vector<uint8_t> matrix_rows(ggml_type type) {
    std::mt19937         rng(2);
    constexpr int64_t    n_own  = 4;
    const auto           values = pds_test::normal_values(rng, n_own * n_embd, 0.05f);
    const size_t         n_row  = ggml_row_size(type, n_embd);
    std::vector<uint8_t> bytes(n_row * static_cast<size_t>(n_ff * n_expert));
    ggml_quantize_chunk(type, values.data(), bytes.data(), 0, n_own, n_embd, nullptr);
    for (size_t i = n_row * n_own; i < bytes.size(); i++) {
        bytes[i] = bytes[i - n_row * n_own];
    }
    return bytes;
}

// In the layout for the CPU's kernels if there is one, or null.
ggml_backend_buffer_type_t repacked_type(ggml_type type) {
    const int64_t ne[4] = { n_embd, n_ff, n_expert, 1 };
    for (ggml_backend_buffer_type_t candidate : pds::extra_buffer_types(pds::cpu_device())) {
        if (pds::device_supports(pds::cpu_device(), candidate, pds::weight_use::mul_mat_id, type, ne)) {
            return candidate;
        }
    }
    return nullptr;
}

double product_us(pds_test::cpu_graph & graph, ggml_tensor * matrices, int64_t n_tokens, sharing how) {
    std::mt19937  rng(3);
    ggml_tensor * x   = graph.tensor({ n_embd, 1, n_tokens }, pds_test::normal_values(rng, n_embd * n_tokens, 1.0f));
    ggml_tensor * ids = graph.tensor(GGML_TYPE_I32, { n_used, n_tokens }, choose(rng, n_tokens, how).data());
    graph.finish({ ggml_mul_mat_id(graph.g().ctx, matrices, x, ids) });
    const auto other_experts = [&] {
        const std::vector<int32_t> chosen = choose(rng, n_tokens, how);
        ggml_backend_tensor_set(ids, chosen.data(), 0, ggml_nbytes(ids));
    };
    return pds_test::best_us(25, other_experts, [&] { graph.compute(); });
}

// The same work as when all rows share their experts, as one plain product for each expert. All experts have their
// turn, so that they come from memory.
double plain_products_us(pds_test::cpu_graph & graph, ggml_tensor * matrices, int64_t n_tokens) {
    std::mt19937   rng(3);
    ggml_context * ctx = graph.g().ctx;
    ggml_tensor *  x   = graph.tensor({ n_embd, n_tokens }, pds_test::normal_values(rng, n_embd * n_tokens, 1.0f));
    for (int64_t id = 0; id < n_expert; id++) {
        const auto    offset = static_cast<size_t>(id) * matrices->nb[2];
        ggml_tensor * matrix = ggml_view_2d(ctx, matrices, n_embd, n_ff, matrices->nb[1], offset);
        graph.g().expand(ggml_mul_mat(ctx, matrix, x));
    }
    graph.finish({});
    return pds_test::best_us(5, [] {}, [&] { graph.compute(); }) * n_used / n_expert;
}

void bench_products(ggml_type type, bool repack) {
    const ggml_backend_buffer_type_t layout = repack ? repacked_type(type) : nullptr;
    if (repack && layout == nullptr) {
        return;
    }
    const std::vector<uint8_t> bytes = matrix_rows(type);
    std::printf("%s%s\n", ggml_type_name(type), repack ? ", repacked" : "");
    const std::pair<const char *, sharing> ways[] = { { "other experts for each row", sharing::none },
                                                      { "half of them the same", sharing::half },
                                                      { "the same for all", sharing::all } };
    for (const auto & [name, how] : ways) {
        std::printf("  %-28s", name);
        for (int64_t n_tokens = 1; n_tokens <= 9; n_tokens++) {
            pds_test::cpu_graph graph(static_cast<int32_t>(n_tokens));
            ggml_tensor *       matrices = graph.tensor(type, { n_embd, n_ff, n_expert }, bytes.data(), layout);
            std::printf(" %6.0f", product_us(graph, matrices, n_tokens, how));
            std::fflush(stdout);
        }
        std::printf("\n");
    }
    std::printf("  %-28s", "as plain products");
    for (int64_t n_tokens = 1; n_tokens <= 9; n_tokens++) {
        pds_test::cpu_graph graph(static_cast<int32_t>(n_tokens));
        ggml_tensor *       matrices = graph.tensor(type, { n_embd, n_ff, n_expert }, bytes.data(), layout);
        std::printf(" %6.0f", plain_products_us(graph, matrices, n_tokens));
        std::fflush(stdout);
    }
    std::printf("\n");
}

} // namespace

int main() {
    std::printf("products of 1 to 9 rows with %d of %d matrices of %d x %d: us\n", int{ n_used }, int{ n_expert },
                int{ n_embd }, int{ n_ff });
    for (const ggml_type type : { GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_BF16, GGML_TYPE_NVFP4 }) {
        bench_products(type, false);
        bench_products(type, true);
    }
    return 0;
}
