#include "base/rng.h"

#include "check.h"

#include <set>

namespace {

using pds::philox4x32_10;
using pds::purpose;
using pds::uniform;

// The authors' published known answers for Philox4x32 with 10 rounds: zeros, ones, digits of pi.
void known_answers_of_philox() {
    using words = std::array<uint32_t, 4>;
    CHECK((philox4x32_10({ 0, 0, 0, 0 }, { 0, 0 }) == words{ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 }));
    constexpr uint32_t ones = 0xffffffff;
    CHECK((philox4x32_10({ ones, ones, ones, ones }, { ones, ones }) ==
           words{ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd }));
    CHECK((philox4x32_10({ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 }) ==
           words{ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 }));
}

// Seeds keep their meaning from release to release. First value by hand from the known answer of zeros: words
// 0x6627e8d5 and 0xe169c58d are cell 0x6627e8d5e169c.
void a_seed_keeps_its_meaning() {
    CHECK(uniform(0, purpose::target_draw, 0) == (static_cast<double>(0x6627e8d5e169c) + 0.5) * 0x1p-52);
    CHECK(uniform(7, purpose::draft_draw, 3, 5) == uniform(7, purpose::draft_draw, 3, 5));
}

void every_input_matters() {
    std::set<double>   seen;
    constexpr uint64_t high_bit = uint64_t(1) << 63;
    for (const purpose use :
         { purpose::target_draw, purpose::draft_draw, purpose::acceptance, purpose::residual, purpose::gumbel }) {
        for (const uint64_t seed : { uint64_t(0), uint64_t(1), high_bit }) {
            for (const uint64_t position : { uint64_t(0), uint64_t(1), uint64_t(1) << 32, high_bit }) {
                for (const uint32_t lane : { 0u, 1u, 0x80000000u }) {
                    seen.insert(uniform(seed, use, position, lane));
                }
            }
        }
    }
    CHECK(seen.size() == 5 * 3 * 4 * 3);
}

void values_are_inside_the_open_interval() {
    // The two ends of the formula: the lowest and the highest cell.
    constexpr uint64_t last_cell = (uint64_t(1) << 52) - 1;
    CHECK((0 + 0.5) * 0x1p-52 > 0);
    CHECK((static_cast<double>(last_cell) + 0.5) * 0x1p-52 < 1);
    for (uint64_t position = 0; position < 100000; ++position) {
        const double u = uniform(42, purpose::acceptance, position);
        if (!(u > 0 && u < 1)) {
            CHECK(u > 0 && u < 1);
        }
    }
}

void values_are_uniform() {
    constexpr int n_draws = 200000;
    constexpr int n_bins  = 64;
    int           counts[n_bins]{};
    double        sum = 0;
    for (uint64_t position = 0; position < n_draws; ++position) {
        const double u = uniform(1, purpose::target_draw, position);
        sum += u;
        ++counts[static_cast<int>(u * n_bins)];
    }
    double chi_square = 0;
    for (const int count : counts) {
        const double expected = static_cast<double>(n_draws) / n_bins;
        chi_square += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_square < 103.4); // 63 degrees of freedom, p = 0.001
    CHECK_NEAR(sum / n_draws, 0.5, 4 * std::sqrt(1.0 / 12 / n_draws));
}

// Neighbouring positions, and two purposes at one position, are not correlated.
void streams_are_independent() {
    constexpr int n_draws     = 100000;
    double        positions   = 0;
    double        two_streams = 0;
    for (uint64_t position = 0; position < n_draws; ++position) {
        const double u = uniform(9, purpose::draft_draw, position) - 0.5;
        positions += u * (uniform(9, purpose::draft_draw, position + 1) - 0.5);
        two_streams += u * (uniform(9, purpose::acceptance, position) - 0.5);
    }
    const double bound = 4.0 / 12 * std::sqrt(static_cast<double>(n_draws));
    CHECK(std::abs(positions) < bound);
    CHECK(std::abs(two_streams) < bound);
}

} // namespace

int main() {
    known_answers_of_philox();
    a_seed_keeps_its_meaning();
    every_input_matters();
    values_are_inside_the_open_interval();
    values_are_uniform();
    streams_are_independent();
    return pds_test::check_result();
}
