// Masks of what may follow: when the caller is asked, what for, and what a sampler does with the answer.
#include "base/error.h"
#include "check.h"
#include "spec/sampler.h"
#include "spec/token-masks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using ids = std::vector<int32_t>;

// Allows the number of tokens so far, and the id of the last one; says what it was asked.
struct rule {
    std::vector<ids> asked;
    bool             fails = false;

    static int32_t answer(void * user, const int32_t * tokens, int64_t n_tokens, uint32_t * words, int64_t n_words) {
        CHECK(n_words == 2);
        rule & self = *static_cast<rule *>(user);
        self.asked.emplace_back(tokens, tokens + n_tokens);
        if (self.fails) {
            return 1;
        }
        words[static_cast<size_t>(n_tokens) / 32] |= 1u << (n_tokens % 32);
        if (n_tokens > 0) {
            words[static_cast<size_t>(tokens[n_tokens - 1]) / 32] |= 1u << (tokens[n_tokens - 1] % 32);
        }
        return 0;
    }
};

bool allows_only(pds::token_mask mask, const ids & wanted) {
    for (int32_t id = 0; id < 40; id++) {
        if (pds::allows(mask, id) != (std::find(wanted.begin(), wanted.end(), id) != wanted.end())) {
            return false;
        }
    }
    return true;
}

void without_a_rule_everything_may_follow() {
    pds::token_masks masks;
    CHECK(masks.after({}).empty());
    masks.start(nullptr, nullptr, 40);
    masks.commit(3);
    CHECK(masks.after(ids{ 1, 2 }).empty());
    CHECK(pds::allows({}, 1000000));
}

void each_place_is_asked_for_once() {
    rule             rule;
    pds::token_masks masks;
    masks.start(rule::answer, &rule, 40);
    CHECK(allows_only(masks.after({}), { 0 }));
    CHECK(allows_only(masks.after(ids{ 33 }), { 1, 33 }));
    CHECK(allows_only(masks.after(ids{ 33, 7, 8 }), { 3, 8 }));
    CHECK(rule.asked.size() == 3);
    CHECK(allows_only(masks.after({}), { 0 })); // known
    CHECK(allows_only(masks.after(ids{ 33 }), { 1, 33 }));
    CHECK(rule.asked.size() == 3);
    CHECK(allows_only(masks.after(ids{ 33, 7 }), { 2, 7 })); // was passed over
    CHECK(allows_only(masks.after(ids{ 33, 9 }), { 2, 9 }));
    CHECK(allows_only(masks.after(ids{ 33, 7, 8 }), { 3, 8 })); // another path was asked for in between
    CHECK((rule.asked == std::vector<ids>{ {}, { 33 }, { 33, 7, 8 }, { 33, 7 }, { 33, 9 }, { 33, 7, 8 } }));
}

void an_answer_that_grows_begins_anew() {
    rule             rule;
    pds::token_masks masks;
    masks.start(rule::answer, &rule, 40);
    masks.after(ids{ 5, 6 });
    masks.commit(5);
    CHECK(allows_only(masks.after(ids{ 6 }), { 2, 6 }));
    masks.commit(4); // not what was asked about
    CHECK(allows_only(masks.after({}), { 2, 4 }));
    CHECK((rule.asked.back() == ids{ 5, 4 }));
    masks.start(rule::answer, &rule, 40);
    CHECK(allows_only(masks.after({}), { 0 }));
}

void a_rule_that_fails_is_an_error() {
    rule             rule;
    pds::token_masks masks;
    masks.start(rule::answer, &rule, 40);
    rule.fails = true;
    CHECK_THROWS(PDS_ERR_CANCELLED, masks.after(ids{ 1 }));
    rule.fails = false;
    CHECK(allows_only(masks.after(ids{ 1 }), { 1 }));
}

void ids_behind_the_mask_are_not_allowed() {
    const std::vector<uint32_t> words = { 0xFFFFFFFF };
    CHECK(pds::allows(words, 31));
    CHECK(!pds::allows(words, 32));
    CHECK(!pds::allows(words, -1));
}

void a_sampler_draws_from_what_is_allowed() {
    const std::vector<float>    logits = { 3, 2, 1, 0, -1, std::numeric_limits<float>::quiet_NaN() };
    const std::vector<uint32_t> words  = { 0b10110 };
    pds::sampler sampler({ .temperature = 1, .bias = { { 1, -std::numeric_limits<float>::infinity() } } },
                         static_cast<int32_t>(logits.size()), {});
    const auto & two = sampler.distribution(logits, words);
    CHECK(two.size() == 2);
    CHECK(two[0].id == 2);
    CHECK(two[1].id == 4);
    CHECK(std::abs(two[0].p / two[1].p - std::exp(2.0f)) < 1e-4f);
    const std::vector<uint32_t> banned = { 0b00010 };
    CHECK_THROWS(PDS_ERR_ARGUMENT, sampler.distribution(logits, banned));
}

} // namespace

int main() {
    without_a_rule_everything_may_follow();
    each_place_is_asked_for_once();
    an_answer_that_grows_begins_anew();
    a_rule_that_fails_is_an_error();
    ids_behind_the_mask_are_not_allowed();
    a_sampler_draws_from_what_is_allowed();
    return pds_test::check_result();
}
