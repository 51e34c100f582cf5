// What drafts are drawn from: some rows of the head, with the bias of the request, next to a plain twin that goes over
// all rows.
#include "spec/draft-sampler.h"

#include "check-error.h"
#include "check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using pds::candidate;
using pds::draft_sampler;
using pds::scored_token;
using pds::truncation;

using floats = std::vector<float>;
using rows_t = std::vector<int32_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();

floats random_row(int32_t n, uint32_t seed) {
    std::mt19937                    rng(seed);
    std::normal_distribution<float> normal(0, 2);
    floats                          row(static_cast<size_t>(n));
    std::generate(row.begin(), row.end(), [&] { return normal(rng); });
    return row;
}

floats at(const floats & row, const rows_t & rows) {
    floats some;
    for (const int32_t id : rows) {
        some.push_back(row[static_cast<size_t>(id)]);
    }
    return some;
}

bool same(const std::vector<candidate> & a, const std::vector<candidate> & b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const candidate & x, const candidate & y) { return x.id == y.id && x.p == y.p; });
}

const truncation settings[] = {
    {},
    { .temperature = 0 },
    { .temperature = 0.7f, .top_k = 7, .top_p = 0.9f, .min_p = 0.05f },
    { .top_p = 0.5f },
};

const std::vector<scored_token> biases[] = { {}, { { 0, -infinity }, { 3, 2.5f }, { 70, -1 }, { 199, -infinity } } };

void all_rows_as_candidates_give_the_distribution_of_all_rows() {
    for (const truncation & setting : settings) {
        for (const auto & bias : biases) {
            for (uint32_t seed = 0; seed < 20; seed++) {
                draft_sampler sampler(setting, bias);
                const floats  row = random_row(200, seed);
                const auto    all = sampler.distribution(row);
                rows_t        rows(row.size());
                std::iota(rows.begin(), rows.end(), 0);
                CHECK(same(sampler.distribution(rows, row), all));
            }
        }
    }
}

// Rows that are no candidates are rows at -inf.
void some_rows_give_the_distribution_of_a_row_without_the_others() {
    for (const truncation & setting : settings) {
        for (const auto & bias : biases) {
            for (uint32_t seed = 0; seed < 20; seed++) {
                draft_sampler sampler(setting, bias);
                const floats  base = random_row(200, seed);
                const floats  row  = random_row(200, seed + 1000);
                rows_t        rows;
                sampler.choose(base, 17, rows);
                floats cut(row.size(), -infinity);
                for (const int32_t id : rows) {
                    cut[static_cast<size_t>(id)] = row[static_cast<size_t>(id)];
                }
                const std::vector<candidate> some = sampler.distribution(rows, at(row, rows));
                CHECK(same(some, sampler.distribution(cut)));
                const double total = std::accumulate(some.begin(), some.end(), 0.0,
                                                     [](double sum, const candidate & c) { return sum + double(c.p); });
                CHECK(std::abs(total - 1) < 1e-5);
            }
        }
    }
}

void the_best_rows_are_chosen_with_their_bias() {
    const floats  base = { 1, 5, 2, 4, 3, 4 };
    draft_sampler sampler({}, { { 0, 10 }, { 1, -infinity } });
    rows_t        rows;
    sampler.choose(base, 3, rows);
    CHECK((rows == rows_t{ 0, 3, 5 }));
    sampler.choose(base, 100, rows);
    CHECK((rows == rows_t{ 0, 2, 3, 4, 5 }));
}

void nothing_is_left_when_all_is_banned() {
    const floats  base = { 1, 2, -infinity };
    draft_sampler sampler({}, { { 0, -infinity }, { 1, -infinity } });
    rows_t        rows = { 7 };
    sampler.choose(base, 2, rows);
    CHECK(rows.empty());
    CHECK(sampler.distribution(base).empty());
    CHECK(sampler.distribution(rows, {}).empty());
}

void rows_that_are_no_numbers_are_refused() {
    floats        base = random_row(100, 3);
    draft_sampler sampler({}, {});
    rows_t        rows;
    base[40] = std::nanf("");
    CHECK_ERROR(PDS_ERR_INTERNAL, "NaN", sampler.choose(base, 5, rows));
    base[40] = infinity;
    CHECK_ERROR(PDS_ERR_INTERNAL, "infinite", sampler.choose(base, 5, rows));
}

} // namespace

int main() {
    all_rows_as_candidates_give_the_distribution_of_all_rows();
    some_rows_give_the_distribution_of_a_row_without_the_others();
    the_best_rows_are_chosen_with_their_bias();
    nothing_is_left_when_all_is_banned();
    rows_that_are_no_numbers_are_refused();
    return pds_test::check_result();
}
