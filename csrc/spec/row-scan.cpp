#include "spec/row-scan.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace pds {
namespace {

// Entries per skip test: long enough to keep vector units busy, short enough that one hit costs little.
constexpr int32_t block_size = 64;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Calls visit(first id, values, count) for every block of the row, with patches applied.
template <typename visitor> void for_each_block(const logits_row & row, visitor && visit) {
    const int32_t                 n_rows = static_cast<int32_t>(row.logits.size());
    std::array<float, block_size> patched;
    auto                          patch = row.patches.begin();
    for (int32_t first = 0; first < n_rows; first += block_size) {
        const int32_t count  = std::min(block_size, n_rows - first);
        const float * values = row.logits.data() + first;
        if (patch != row.patches.end() && patch->id < first + count) {
            std::copy_n(values, count, patched.begin());
            for (; patch != row.patches.end() && patch->id < first + count; ++patch) {
                patched[static_cast<size_t>(patch->id - first)] = patch->logit;
            }
            values = patched.data();
        }
        visit(first, values, count);
    }
}

// True also for NaN, which therefore never hides in a block that is skipped.
inline bool any_not_at_most(const float * values, int32_t count, float threshold) {
    uint32_t all = ~0u; // a mask: one comparison and one "and" per vector
    for (int32_t i = 0; i < count; ++i) {
        all &= 0u - static_cast<uint32_t>(values[i] <= threshold);
    }
    return all == 0;
}

// The constant count of full blocks lets the compiler unroll the test.
inline bool block_may_hold_better(const float * values, int32_t count, float threshold) {
    return count == block_size ? any_not_at_most(values, block_size, threshold)
                               : any_not_at_most(values, count, threshold);
}

[[noreturn]] void throw_not_finite(const logits_row & row, int32_t id, float logit) {
    const std::string where = row.position < 0 ? "" : format(" at position %lld", static_cast<long long>(row.position));
    throw error(
        PDS_ERR_INTERNAL,
        format("the model produced %s%s (logit of token %d); the model file may be damaged, or a quantisation or "
               "cache type may be out of its range: try another file, or F16 or F32 cache types",
               std::isnan(logit) ? "NaN" : "an infinite value", where.c_str(), id),
        row.position, id);
}

void cut_to_best(std::vector<scored_token> & tokens, int32_t k) {
    std::nth_element(tokens.begin(), tokens.begin() + (k - 1), tokens.end(), ranks_before);
    tokens.resize(static_cast<size_t>(k));
}

// value or 0 by a mask: compilers turn a conditional here into a branch around the arithmetic, which then stays scalar.
inline float keep_if(bool keep, float value) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0u - static_cast<uint32_t>(keep)));
}

// exp(x) for x <= 0 within about one part in 10^7, written without branches or library calls so that loops over it
// vectorise: x = n ln2 + r, exp(x) = 2^n times the Taylor series of exp(r), |r| <= ln2 / 2. 0 for x below -87, where
// 2^n would leave the normal range, and for NaN.
inline float exp_nonpositive(float x) {
    constexpr float lowest      = -87.0f;
    constexpr float log2_e      = 1.44269504088896341f;
    constexpr float ln2_high    = 0.693359375f; // few bits, so that n * ln2_high is exact
    constexpr float ln2_low     = -2.12194440054690583e-4f;
    constexpr float to_int      = 0x1.8p23f; // adding it rounds to an integer and leaves that in the low bits
    constexpr auto  bits_of_one = std::bit_cast<uint32_t>(1.0f);

    const bool  in_range = x > lowest;
    const float x_safe   = keep_if(in_range, x);
    const float shifted  = x_safe * log2_e + to_int;
    const float n        = shifted - to_int;
    const float r        = (x_safe - n * ln2_high) - n * ln2_low;
    float       series   = 1.0f / 5040;
    series               = series * r + 1.0f / 720;
    series               = series * r + 1.0f / 120;
    series               = series * r + 1.0f / 24;
    series               = series * r + 1.0f / 6;
    series               = series * r + 0.5f;
    series               = series * r + 1.0f;
    series               = series * r + 1.0f;
    const float scale    = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + bits_of_one);
    return keep_if(in_range, series * scale);
}

// One running sum per place in the block: they vectorise, and doubles keep a quarter of a million terms exact enough.
struct block_sums {
    std::array<double, block_size> at{};

    double total() const {
        double sum = 0;
        for (const double part : at) {
            sum += part;
        }
        return sum;
    }
};

} // namespace

void select_best(const logits_row & row, int32_t k, std::vector<scored_token> & best) {
    best.clear();
    // Candidates gather up to twice k before a cut, so a cut costs O(1) per entry and its threshold stays close.
    const size_t limit     = 2 * static_cast<size_t>(k);
    float        threshold = -infinity;
    for_each_block(row, [&](int32_t first, const float * values, int32_t count) {
        if (!block_may_hold_better(values, count, threshold)) {
            return;
        }
        for (int32_t i = 0; i < count; ++i) {
            if (values[i] <= threshold) {
                continue; // an equal value has a higher id than those kept
            }
            if (!(values[i] < infinity)) {
                throw_not_finite(row, first + i, values[i]);
            }
            best.push_back({ first + i, values[i] });
            if (best.size() == limit) {
                cut_to_best(best, k);
                threshold = best.back().logit;
            }
        }
    });
    if (best.size() > static_cast<size_t>(k)) {
        cut_to_best(best, k);
    }
}

void select_at_least(const logits_row & row, float threshold, std::vector<scored_token> & kept) {
    kept.clear();
    const float below = std::nextafter(threshold, -infinity);
    for_each_block(row, [&](int32_t first, const float * values, int32_t count) {
        if (!block_may_hold_better(values, count, below)) {
            return;
        }
        for (int32_t i = 0; i < count; ++i) {
            if (values[i] >= threshold) {
                kept.push_back({ first + i, values[i] });
            }
        }
    });
}

double sum_exp(const logits_row & row, float max) {
    block_sums sums;
    for_each_block(row, [&](int32_t, const float * values, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
            sums.at[static_cast<size_t>(i)] += static_cast<double>(exp_nonpositive(values[i] - max));
        }
    });
    return sums.total();
}

double exp_all(const logits_row & row, float max, float temperature, std::vector<float> & weights) {
    weights.resize(row.logits.size());
    block_sums sums;
    for_each_block(row, [&](int32_t first, const float * values, int32_t count) {
        float * out = weights.data() + first;
        for (int32_t i = 0; i < count; ++i) {
            out[i] = exp_nonpositive((values[i] - max) / temperature);
        }
        for (int32_t i = 0; i < count; ++i) {
            sums.at[static_cast<size_t>(i)] += static_cast<double>(out[i]);
        }
    });
    return sums.total();
}

} // namespace pds
