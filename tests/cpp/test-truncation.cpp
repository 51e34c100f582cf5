#include "spec/truncation.h"

#include "check.h"
#include "plain-truncation.h"

#include <random>

namespace {

using pds::candidate;
using pds::sampling_params;

constexpr float infinity = std::numeric_limits<float>::infinity();

pds::truncation truncation_of(const sampling_params & params) {
    return { .temperature = params.temperature, .top_k = params.top_k, .top_p = params.top_p, .min_p = params.min_p };
}

std::vector<candidate> truncated(const std::vector<float> & logits, const sampling_params & params,
                                 const std::vector<pds::scored_token> & patches = {}) {
    pds::truncator truncator(truncation_of(params));
    return truncator.apply({ .logits = logits, .patches = patches });
}

std::vector<int32_t> ids_of(const std::vector<candidate> & candidates) {
    std::vector<int32_t> ids;
    for (const candidate & c : candidates) {
        ids.push_back(c.id);
    }
    return ids;
}

bool untruncated(const sampling_params & params, size_t n) {
    const bool by_count = params.top_k > 0 && static_cast<size_t>(params.top_k) < n;
    return params.temperature > 0 && !by_count && params.top_p >= 1 && params.min_p <= 0;
}

// Floats keep (logit - max) / temperature to one part in 10^7, so log p is that exact.
bool same_p(float got, double want) {
    const double p = static_cast<double>(got);
    return std::abs(p - want) <= want * 1e-6 * (1 + std::abs(std::log(want)));
}

// Same ids in the same order (by id when nothing is truncated) with the same p. Candidates too unlikely for a float may
// be absent.
bool same_distribution(const std::vector<candidate> & got, std::vector<pds_test::plain_candidate> want, bool by_id) {
    constexpr double least = 1e-37;
    if (by_id) {
        std::sort(want.begin(), want.end(), [](const auto & a, const auto & b) { return a.id < b.id; });
    }
    size_t n_met = 0;
    for (const auto & [id, p] : want) {
        const bool met = n_met < got.size() && got[n_met].id == id;
        if (met ? p > least && !same_p(got[n_met].p, p) : p > least) {
            return false;
        }
        n_met += met;
    }
    return n_met == got.size();
}

struct random_case {
    std::vector<float>             logits;
    std::vector<pds::scored_token> patches;
    sampling_params                params;
};

template <typename value> value one_of(std::mt19937 & rng, std::initializer_list<value> values) {
    return values.begin()[rng() % values.size()];
}

random_case make_case(std::mt19937 & rng) {
    random_case  made;
    const size_t n     = one_of<size_t>(rng, { 1, 2, 3, 5, 63, 64, 65, 128, 300, 1000, 4097 });
    const float  scale = one_of(rng, { 0.0f, 0.5f, 3.0f, 20.0f });
    const bool   ties  = rng() % 3 == 0;

    std::normal_distribution<float> normal(one_of(rng, { -1000.0f, 0.0f, 30.0f }), scale + 1e-6f);
    for (size_t i = 0; i < n; ++i) {
        const float x = scale == 0 ? 2.5f : normal(rng);
        made.logits.push_back(ties ? std::round(x) : x);
    }
    switch (rng() % 4) {
    case 0:
        std::sort(made.logits.begin(), made.logits.end());
        break;
    case 1:
        std::sort(made.logits.rbegin(), made.logits.rend());
        break;
    default:
        break;
    }
    const float rate = one_of(rng, { 0.0f, 0.02f, 0.5f });
    for (size_t i = 0; i < n; ++i) {
        if (static_cast<float>(rng() % 1000) < 1000 * rate) {
            const float changed = made.logits[i] + one_of(rng, { -5.0f, 0.0f, 2.0f, 7.0f });
            made.patches.push_back({ static_cast<int32_t>(i), rng() % 4 == 0 ? -infinity : changed });
        }
    }
    made.params.temperature = one_of(rng, { -1.0f, 0.0f, 1e-6f, 0.3f, 0.7f, 1.0f, 2.0f, 1e6f });
    made.params.top_k       = one_of(rng, { -1, 0, 1, 2, 20, 40, 64, 500, 100000 });
    made.params.top_p       = one_of(rng, { -1.0f, 0.0f, 1e-6f, 0.5f, 0.9f, 0.95f, 0.999f, 1.0f, 2.0f });
    made.params.min_p       = one_of(rng, { -1.0f, 0.0f, 1e-9f, 0.02f, 0.05f, 0.5f, 1.0f, 3.0f });
    return made;
}

void agrees_with_the_plain_twin() {
    std::mt19937 rng(20240601);
    int          n_compared = 0;
    for (int i = 0; i < 20000; ++i) {
        const random_case   made = make_case(rng);
        std::vector<double> row(made.logits.begin(), made.logits.end());
        for (const pds::scored_token & patch : made.patches) {
            row[static_cast<size_t>(patch.id)] = static_cast<double>(patch.logit);
        }
        const pds_test::plain_result want = pds_test::plain_distribution(row, made.params);
        if (want.margin < 1e-6) {
            continue; // a mass or ratio within rounding of its bound: both answers are right
        }
        ++n_compared;
        const std::vector<candidate> got = truncated(made.logits, made.params, made.patches);
        const bool same = same_distribution(got, want.candidates, untruncated(made.params, row.size()));
        if (!same) {
            std::fprintf(stderr, "case %d: n %zu temperature %g top_k %d top_p %g min_p %g: %zu candidates, not %zu\n",
                         i, row.size(), static_cast<double>(made.params.temperature), made.params.top_k,
                         static_cast<double>(made.params.top_p), static_cast<double>(made.params.min_p), got.size(),
                         want.candidates.size());
        }
        CHECK(same);
    }
    CHECK(n_compared > 15000);
}

void settings_at_their_edges() {
    const std::vector<float>   logits  = { 0.5f, 2.0f, -1.0f, 2.0f, 1.0f };
    const std::vector<int32_t> by_rank = { 1, 3, 4, 0, 2 };
    const std::vector<int32_t> by_id   = { 0, 1, 2, 3, 4 };

    CHECK(ids_of(truncated(logits, { .temperature = 0 })) == std::vector<int32_t>{ 1 });
    CHECK(ids_of(truncated(logits, { .temperature = -3 })) == std::vector<int32_t>{ 1 });
    CHECK(truncated(logits, { .temperature = 0 })[0].p == 1.0f);
    CHECK(ids_of(truncated(logits, { .top_k = 1 })) == std::vector<int32_t>{ 1 });
    CHECK(ids_of(truncated(logits, { .top_k = 2 })) == (std::vector<int32_t>{ 1, 3 }));
    CHECK(ids_of(truncated(logits, { .top_p = 0 })) == std::vector<int32_t>{ 1 });
    CHECK(ids_of(truncated(logits, { .top_p = 0, .top_k = 3 })) == std::vector<int32_t>{ 1 });
    CHECK(ids_of(truncated(logits, { .min_p = 1 })) == (std::vector<int32_t>{ 1, 3 })); // ties with the best stay
    CHECK(ids_of(truncated(logits, { .min_p = 1e-9f })) == by_rank);
    CHECK(ids_of(truncated(logits, {})) == by_id);
    CHECK(ids_of(truncated(logits, { .top_k = 1000 })) == by_id);
    CHECK(ids_of(truncated(logits, { .top_k = 4 })) == (std::vector<int32_t>{ 1, 3, 4, 0 }));

    // So cold that only the tied best remain, without overflow.
    for (const float temperature : { 1e-6f, 1e-30f, std::numeric_limits<float>::denorm_min() }) {
        for (const int32_t top_k : { 0, 4 }) {
            const std::vector<candidate> cold = truncated(logits, { .temperature = temperature, .top_k = top_k });
            CHECK(ids_of(cold) == (std::vector<int32_t>{ 1, 3 }));
            CHECK(cold[0].p == 0.5f && cold[1].p == 0.5f);
        }
    }
    for (const candidate & c : truncated(logits, { .temperature = std::numeric_limits<float>::max(), .top_k = 4 })) {
        CHECK_NEAR(c.p, 0.25, 1e-6);
    }
}

// Filters see temperature 1: 0.6, 0.3, 0.1. A filter on tempered values would keep one token here, or three.
void temperature_comes_last() {
    const std::vector<float> logits = { std::log(0.6f), std::log(0.3f), std::log(0.1f) };
    CHECK(truncated(logits, { .temperature = 0.1f, .top_p = 0.8f }).size() == 2);
    CHECK(truncated(logits, { .temperature = 10.0f, .top_p = 0.8f }).size() == 2);
    CHECK(truncated(logits, { .temperature = 10.0f, .min_p = 0.4f }).size() == 2);

    const std::vector<candidate> halves = truncated(logits, { .temperature = 0.5f, .top_p = 0.8f });
    CHECK_NEAR(halves[0].p, 0.36 / (0.36 + 0.09), 1e-6);
}

// Of 0.4, 0.3, 0.2, 0.1 the two best hold 0.7, but 1 of their own mass: the first alone is 0.57 of it.
void top_p_counts_within_the_top_k() {
    const std::vector<float> logits = { std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f) };
    CHECK(truncated(logits, { .top_p = 0.55f }).size() == 2);
    CHECK(truncated(logits, { .top_p = 0.55f, .top_k = 2 }).size() == 1);
}

void equal_logits_rank_by_id() {
    const std::vector<float> logits(1000, 1.25f);
    CHECK(ids_of(truncated(logits, { .top_k = 5 })) == (std::vector<int32_t>{ 0, 1, 2, 3, 4 }));
    CHECK(ids_of(truncated(logits, { .temperature = 0 })) == std::vector<int32_t>{ 0 });
    CHECK(truncated(logits, { .top_p = 0.5f }).size() == 500);
    CHECK(truncated(logits, { .top_p = 0.5f }).back().id == 499);
    CHECK(truncated(logits, { .min_p = 0.99f }).size() == 1000);
    CHECK(truncated(logits, {}).size() == 1000);
}

void entries_at_minus_infinity_never_appear() {
    std::vector<float> logits(200, -infinity);
    logits[150] = -4.0f;
    logits[70]  = -5.0f;
    for (const sampling_params & params : std::initializer_list<sampling_params>{ { .temperature = 2 },
                                                                                  { .top_k = 50 },
                                                                                  { .top_p = 0.9999f },
                                                                                  { .min_p = 1e-6f },
                                                                                  { .temperature = 1e6f } }) {
        std::vector<int32_t> ids = ids_of(truncated(logits, params));
        std::sort(ids.begin(), ids.end());
        CHECK(ids == (std::vector<int32_t>{ 70, 150 }));
    }
    CHECK(truncated(std::vector<float>(5, -infinity), {}).empty());
    CHECK(truncated(std::vector<float>(5, -infinity), { .top_k = 2 }).empty());
}

void broken_rows_are_refused_wherever_the_value_is() {
    for (const float broken : { std::numeric_limits<float>::quiet_NaN(), infinity }) {
        for (const size_t at : { 0, 63, 64, 99, 199 }) {
            std::vector<float> logits(200, 1.0f);
            logits[0]  = 50.0f; // a high threshold that everything else is skipped by
            logits[at] = broken;
            CHECK_THROWS(PDS_ERR_INTERNAL, truncated(logits, {}));
            CHECK_THROWS(PDS_ERR_INTERNAL, truncated(logits, { .temperature = 0 }));
            CHECK_THROWS(PDS_ERR_INTERNAL, truncated(logits, { .top_k = 20 }));
            CHECK_THROWS(PDS_ERR_INTERNAL, truncated(logits, { .top_p = 0.9f, .min_p = 0.1f }));
        }
    }
}

void a_truncator_keeps_nothing_between_rows() {
    std::mt19937          rng(5);
    const sampling_params params = { .temperature = 0.7f, .top_p = 0.9f };
    pds::truncator        shared(truncation_of(params));
    for (int i = 0; i < 200; ++i) {
        const random_case            made  = make_case(rng);
        const std::vector<candidate> fresh = truncated(made.logits, params, made.patches);
        const auto &                 again = shared.apply({ .logits = made.logits, .patches = made.patches });
        CHECK(ids_of(again) == ids_of(fresh));
    }
}

} // namespace

int main() {
    agrees_with_the_plain_twin();
    settings_at_their_edges();
    temperature_comes_last();
    top_p_counts_within_the_top_k();
    equal_logits_rank_by_id();
    entries_at_minus_infinity_never_appear();
    broken_rows_are_refused_wherever_the_value_is();
    a_truncator_keeps_nothing_between_rows();
    return pds_test::check_result();
}
