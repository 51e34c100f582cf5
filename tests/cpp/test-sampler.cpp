#include "spec/sampler.h"

#include "check.h"
#include "plain-truncation.h"
#include "sample.h"

#include <random>
#include <string>

namespace {

using pds::candidate;
using pds::sampler;
using pds::sampling_params;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Distribution after a history, all in one go.
std::vector<candidate> distribution(const std::vector<float> & logits, const sampling_params & params,
                                    const std::vector<int32_t> & banned  = {},
                                    const std::vector<int32_t> & history = {}) {
    sampler state(params, static_cast<int32_t>(logits.size()), banned);
    for (const int32_t id : history) {
        state.accept(id);
    }
    return state.distribution(logits);
}

int32_t greedy(const std::vector<float> & logits, sampling_params params, const std::vector<int32_t> & history = {}) {
    params.temperature = 0;
    return distribution(logits, params, {}, history).at(0).id;
}

void agrees_with_the_plain_twin_over_a_text() {
    std::mt19937                    rng(77);
    std::normal_distribution<float> normal(0, 3);
    for (int i = 0; i < 1500; ++i) {
        const int32_t   n         = static_cast<int32_t>(3 + rng() % 200);
        const float     choices[] = { 0, 0.5f, 1.5f, -0.7f };
        sampling_params params;
        params.temperature       = 0.8f;
        params.top_k             = 1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(std::min(30, n - 1)));
        params.repeat_penalty    = std::initializer_list<float>{ 1, 1.3f, 0.8f }.begin()[rng() % 3];
        params.presence_penalty  = choices[rng() % 4];
        params.frequency_penalty = choices[rng() % 4];
        params.repeat_last_n     = std::initializer_list<int32_t>{ -1, 0, 1, 3, 64 }.begin()[rng() % 5];
        std::vector<int32_t> banned;
        for (uint32_t j = rng() % 4; j > 0; --j) {
            params.bias.push_back({ static_cast<int32_t>(rng() % n), rng() % 5 == 0 ? -infinity : normal(rng) });
            banned.push_back(static_cast<int32_t>(rng() % n));
        }
        banned.resize(std::min(banned.size(), static_cast<size_t>(n) / 3));
        sampler              state(params, n, banned);
        std::vector<int32_t> history;
        for (int step = 0; step < 12; ++step) {
            std::vector<float> logits(static_cast<size_t>(n));
            for (float & x : logits) {
                x = normal(rng);
            }
            const pds_test::plain_result want =
                pds_test::plain_distribution(pds_test::plain_logits(logits, params, banned, history), params);
            if (want.candidates.empty()) {
                CHECK_THROWS(PDS_ERR_ARGUMENT, state.distribution(logits));
                break;
            }
            const std::vector<candidate> & got = state.distribution(logits);
            CHECK(got.size() == want.candidates.size());
            for (size_t j = 0; j < std::min(got.size(), want.candidates.size()); ++j) {
                CHECK(got[j].id == want.candidates[j].id);
                CHECK_NEAR(got[j].p, want.candidates[j].p, 1e-6);
            }
            history.push_back(static_cast<int32_t>(rng() % std::min(n, 8))); // few tokens, so that counts grow
            state.accept(history.back());
        }
    }
}

void penalties_follow_their_definition() {
    const std::vector<float> logits = { 4.0f, 3.0f, -1.0f };
    CHECK(greedy(logits, { .repeat_penalty = 2 }, { 0 }) == 1); // 4 / 2 < 3
    CHECK(greedy(logits, { .repeat_penalty = 2 }, { 0, 0, 0 }) == 1);
    CHECK(greedy(logits, { .presence_penalty = 1.5f }, { 0 }) == 1);
    CHECK(greedy(logits, { .presence_penalty = 0.8f }, { 0, 0 }) == 0);
    CHECK(greedy(logits, { .frequency_penalty = 0.8f }, { 0 }) == 0);
    CHECK(greedy(logits, { .frequency_penalty = 0.8f }, { 0, 0 }) == 1);
    CHECK(greedy({ -1.0f, -1.5f }, { .repeat_penalty = 2 }, { 0 }) == 1); // -1 * 2 < -1.5

    // The bias comes first: (4 + 4) / 2 > 3, while 4 / 2 + 0.5 < 3 shows that the penalty is there.
    CHECK(greedy(logits, { .repeat_penalty = 2, .bias = { { 0, 4.0f } } }, { 0 }) == 0);
    CHECK(greedy(logits, { .repeat_penalty = 2, .bias = { { 0, 0.5f } } }, { 0 }) == 1);
}

void the_window_forgets() {
    const std::vector<float> logits = { 4.0f, 3.0f, -1.0f };
    const sampling_params    two    = { .presence_penalty = 2, .repeat_last_n = 2 };
    CHECK(greedy(logits, two, { 0, 2 }) == 1);
    CHECK(greedy(logits, two, { 0, 2, 2 }) == 0);
    CHECK(greedy(logits, two, { 0, 0, 2 }) == 1);
    CHECK(greedy(logits, { .presence_penalty = 2, .repeat_last_n = 0 }, { 0 }) == 0);
    CHECK(greedy(logits, { .presence_penalty = 2, .repeat_last_n = -1 }, { 0, 2, 2, 2, 2, 2 }) == 1);
}

void banned_ids_are_never_drawn() {
    constexpr int32_t    n_named = 60;
    std::vector<float>   logits(64);
    std::vector<int32_t> padding;
    for (int32_t id = 0; id < 64; ++id) {
        logits[static_cast<size_t>(id)] = 0.1f * static_cast<float>(id % 7);
        if (id >= n_named) {
            logits[static_cast<size_t>(id)] *= 50;
            padding.push_back(id);
        }
    }
    logits.back() = std::numeric_limits<float>::quiet_NaN(); // what a padding row holds does not matter
    sampler state({ .temperature = 2, .bias = { { 61, 100.0f } } }, 64, padding);
    for (uint64_t position = 0; position < 2000; ++position) {
        const int32_t id = pds_test::sample(state, logits, 3, position);
        CHECK(id >= 0 && id < n_named);
        state.accept(id);
    }
}

void bias_steers_and_bans() {
    const std::vector<float> logits = { 1, 5, 3 };
    CHECK(greedy(logits, {}) == 1);
    CHECK(greedy(logits, { .bias = { { 1, -100.0f } } }) == 2);
    CHECK(greedy(logits, { .bias = { { 1, -infinity } } }) == 2);
    CHECK(greedy(logits, { .bias = { { 0, 100.0f } } }) == 0);
    CHECK(greedy(logits, { .bias = { { 0, 2.5f }, { 0, 2.5f } } }) == 0); // addends add up
    CHECK(distribution(logits, { .bias = { { 1, -infinity } } }).size() == 2);
}

void bad_settings_are_refused() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : { nan, infinity, -infinity }) {
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .temperature = bad }, 3, {}));
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .top_p = bad }, 3, {}));
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .min_p = bad }, 3, {}));
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .repeat_penalty = bad }, 3, {}));
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .presence_penalty = bad }, 3, {}));
        CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .frequency_penalty = bad }, 3, {}));
    }
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .repeat_penalty = 0 }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .repeat_last_n = -2 }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .bias = { { 0, nan } } }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .bias = { { 0, infinity } } }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .bias = { { 3, 1.0f } } }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({ .bias = { { -1, 1.0f } } }, 3, {}));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({}, 3, std::vector<int32_t>{ 3 }));
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler({}, 3, {}).accept(3));
    CHECK_THROWS(PDS_ERR_INTERNAL, sampler({}, 3, {}).distribution(std::vector<float>{ 1, 2 }));
}

void rows_without_a_token_are_told_apart() {
    const std::vector<int32_t> all = { 0, 1, 2 };
    CHECK_THROWS(PDS_ERR_ARGUMENT, distribution({ 1, 2, 3 }, {}, all));
    CHECK_THROWS(PDS_ERR_ARGUMENT, distribution({ 1, -infinity, -infinity }, {}, { 0 }));
    CHECK_THROWS(PDS_ERR_INTERNAL, distribution({ -infinity, -infinity, -infinity }, {}));
    std::string text;
    sampler     state({}, 2, {});
    for (int i = 0; i < 123; ++i) {
        state.accept(0);
    }
    try {
        state.distribution(std::vector<float>{ 1, std::numeric_limits<float>::quiet_NaN() });
    } catch (const pds::error & caught) {
        text = caught.what();
        CHECK(caught.code == PDS_ERR_INTERNAL);
    }
    CHECK(text.find("the model produced NaN at position 123") != std::string::npos);
}

void draw_inverts_the_cumulative_distribution() {
    const std::vector<candidate> candidates = { { 7, 0.5f }, { 2, 0.25f }, { 9, 0.125f }, { 4, 0.125f } };
    const double                 almost_one = 1 - 0x1p-53;
    CHECK(sampler::draw(candidates, 0x1p-53) == 7);
    CHECK(sampler::draw(candidates, 0.4999999) == 7);
    CHECK(sampler::draw(candidates, 0.5) == 2);
    CHECK(sampler::draw(candidates, 0.7499999) == 2);
    CHECK(sampler::draw(candidates, 0.75) == 9);
    CHECK(sampler::draw(candidates, 0.875) == 4);
    CHECK(sampler::draw(candidates, almost_one) == 4);
    CHECK(sampler::draw(std::vector<candidate>{ { 3, 1.0f } }, almost_one) == 3);
    // p of twice the mass: shares count, not sums.
    CHECK(sampler::draw(std::vector<candidate>{ { 0, 1.0f }, { 1, 1.0f } }, 0.49) == 0);
    CHECK(sampler::draw(std::vector<candidate>{ { 0, 1.0f }, { 1, 1.0f } }, 0.51) == 1);
    CHECK_THROWS(PDS_ERR_INTERNAL, sampler::draw({}, 0.5));
}

// 50,000 draws follow the distribution, for truncated and untruncated settings.
void samples_follow_the_distribution() {
    const std::vector<float> logits = { 0.3f, 1.7f, -0.4f, 1.1f, 0.0f, 0.9f, -2.0f, 1.5f };
    for (const sampling_params & params : std::initializer_list<sampling_params>{
             { .temperature = 1.3f }, { .temperature = 0.7f, .top_p = 0.95f, .top_k = 6 } }) {
        constexpr int    n_draws = 50000;
        sampler          state(params, 8, {});
        std::vector<int> counts(8);
        for (uint64_t position = 0; position < n_draws; ++position) {
            ++counts[static_cast<size_t>(pds_test::sample(state, logits, 11, position))];
        }
        const std::vector<candidate> & candidates = state.distribution(logits);
        double                         chi_square = 0;
        int                            n_seen     = 0;
        for (const candidate & c : candidates) {
            const double expected = static_cast<double>(c.p) * n_draws;
            const int    count    = counts[static_cast<size_t>(c.id)];
            chi_square += (count - expected) * (count - expected) / expected;
            n_seen += count;
        }
        CHECK(n_seen == n_draws);
        CHECK(chi_square < 24.32); // 7 degrees of freedom, p = 0.001; the truncated run has fewer
    }
}

void row_logprobs_are_the_raw_log_softmax() {
    std::mt19937                    rng(8);
    std::normal_distribution<float> normal(0, 5);
    std::vector<float>              logits(3000);
    for (float & x : logits) {
        x = std::round(normal(rng) * 4) / 4;
    }
    logits[5]  = -infinity;
    double sum = 0;
    for (const float x : logits) {
        sum += std::exp(static_cast<double>(x));
    }
    const auto plain = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]) - std::log(sum); };

    float                           own = 0;
    std::vector<pds::token_logprob> top;
    pds::row_logprobs(logits, 17, 20, own, top);
    CHECK_NEAR(own, plain(17), 1e-5);
    const pds_test::plain_result ranked =
        pds_test::plain_distribution({ logits.begin(), logits.end() }, { .top_k = 20 });
    CHECK(top.size() == 20);
    for (size_t i = 0; i < top.size(); ++i) {
        CHECK(top[i].id == ranked.candidates[i].id);
        CHECK_NEAR(top[i].logprob, plain(top[i].id), 1e-5);
    }
    pds::row_logprobs(logits, 5, 0, own, top);
    CHECK(own == -infinity && top.empty());
    pds::row_logprobs(std::vector<float>{ 1, -infinity, 1 }, 0, 20, own, top);
    CHECK(top.size() == 2 && top[0].id == 0 && top[1].id == 2);
    CHECK_NEAR(own, std::log(0.5), 1e-6);
    CHECK_THROWS(PDS_ERR_ARGUMENT, pds::row_logprobs(logits, 3000, 1, own, top));
    CHECK_THROWS(PDS_ERR_ARGUMENT, pds::row_logprobs(logits, 0, -1, own, top));
    CHECK_THROWS(PDS_ERR_INTERNAL, pds::row_logprobs(std::vector<float>(3, -infinity), 0, 1, own, top));
}

} // namespace

int main() {
    agrees_with_the_plain_twin_over_a_text();
    penalties_follow_their_definition();
    the_window_forgets();
    banned_ids_are_never_drawn();
    bias_steers_and_bans();
    bad_settings_are_refused();
    rows_without_a_token_are_told_apart();
    draw_inverts_the_cumulative_distribution();
    samples_follow_the_distribution();
    row_logprobs_are_the_raw_log_softmax();
    return pds_test::check_result();
}
