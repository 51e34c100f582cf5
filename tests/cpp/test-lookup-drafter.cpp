// Copied drafts: alone, behind the drafter's, and what is learnt of them.
#include "spec/lookup-drafter.h"

#include "check.h"

#include <string>
#include <string_view>

namespace {

using pds::drafted_token;
using pds::lookup_drafter;
using pds::proposal_source;

std::vector<int32_t> ids_of(std::string_view text) {
    return { text.begin(), text.end() };
}

lookup_drafter drafter_of(std::string_view text, int32_t n_match = 4) {
    lookup_drafter drafter(n_match);
    drafter.start(ids_of(text));
    return drafter;
}

std::string text_of(std::span<const drafted_token> drafts) {
    std::string text;
    for (const drafted_token & token : drafts) {
        text.push_back(static_cast<char>(token.id));
    }
    return text;
}

std::vector<drafted_token> block_of(std::string_view text) {
    std::vector<drafted_token> block;
    for (const char c : text) {
        drafted_token & token = block.emplace_back();
        token.id              = c;
        token.confidence      = 0.5f;
        token.q               = { { c, 0.25f }, { 'z', 0.75f } };
    }
    return block;
}

void test_copies_are_certain_and_tell_their_match() {
    lookup_drafter drafter = drafter_of("the cat sat. the ca");
    const auto     copied  = drafter.propose(3);
    CHECK(text_of(copied) == "t s");
    for (size_t i = 0; i < copied.size(); i++) {
        CHECK(copied[i].source == proposal_source::lookup);
        CHECK(copied[i].q.empty());
        CHECK(copied[i].n_match == 6 + static_cast<int32_t>(i)); // "the ca", and what was copied
    }
    CHECK(drafter.propose(0).empty());
    CHECK(drafter_of("the cat sat. a dog").propose(8).empty());
    drafter.append('r');
    CHECK(drafter.propose(8).empty());
}

void test_copies_go_on_behind_a_block() {
    lookup_drafter                   drafter = drafter_of("the cat sat. so ");
    const std::vector<drafted_token> block   = block_of("the ");
    const auto                       drafts  = drafter.extend(block, 7);
    CHECK(text_of(drafts) == "the cat");
    for (size_t i = 0; i < drafts.size(); i++) {
        CHECK(drafts[i].source == (i < 4 ? proposal_source::drafter : proposal_source::lookup));
        CHECK(drafts[i].q.size() == (i < 4 ? 2 : 0));
    }
    CHECK(text_of(drafter.extend(block, 4)) == "the "); // no room
    CHECK(text_of(drafter.extend(block, 2)) == "the "); // what the drafter gave is never cut here
    CHECK(text_of(drafter.extend(block_of("our "), 7)) == "our ");
    CHECK(text_of(drafter.extend({}, 7)).empty());
    CHECK(drafter.propose(8).empty()); // the block is no part of the text
}

void test_a_copy_is_followed_half_as_far_as_it_agrees() {
    lookup_drafter drafter = drafter_of("the cat sat. the ca");
    CHECK(text_of(pds::fair_share(drafter.propose(16))) == "t s");
    CHECK(text_of(pds::fair_share(drafter.propose(2))) == "t ");
    CHECK(text_of(pds::fair_share(drafter_of("abcab", 1).propose(16))) == "c");
    CHECK(text_of(pds::fair_share(drafter_of("aba", 1).propose(16))) == "b");
    CHECK(pds::fair_share({}).empty());
    lookup_drafter                   other = drafter_of("the cat sat. so ");
    const std::vector<drafted_token> block = block_of("the ");
    CHECK(text_of(pds::fair_share(other.extend(block, 16))) == "the ca");
    CHECK(text_of(pds::fair_share(block)) == "the ");
}

void test_a_new_prompt_leaves_nothing_of_the_last() {
    lookup_drafter drafter = drafter_of("the cat sat. the ca");
    drafter.start(ids_of("the ca"));
    CHECK(drafter.propose(8).empty());
}

// Tokens behind the first wrong one would have followed a text that did not come about.
void test_what_became_of_copies_is_learnt() {
    lookup_drafter drafter = drafter_of("the cat sat. the ca");
    const auto     before  = drafter.acceptance();
    drafter.propose(16);
    drafter.learn(ids_of("txs")); // 6 tokens agreed: right; 7: wrong; 8 and more: not known
    CHECK(drafter.acceptance()(4) == drafter.acceptance()(7));
    CHECK(drafter.acceptance()(4) < before(4));
    CHECK(drafter.acceptance()(8) == before(8));
    CHECK(drafter.acceptance()(3) == before(3));
    for (int i = 0; i < 1000; i++) {
        drafter.learn(ids_of("x"));
    }
    CHECK(drafter.acceptance()(6) < 0.01);
    for (int i = 0; i < 1000; i++) {
        drafter.learn(ids_of("t sat. the cat s"));
    }
    for (const int32_t n_match : { 6, 8, 15, 16, 21 }) {
        CHECK(drafter.acceptance()(n_match) > 0.99);
        CHECK(drafter.acceptance()(n_match) <= 1);
    }
    CHECK(drafter.propose(1).front().confidence > 0.99f);
    CHECK(drafter.acceptance()(0) == drafter.acceptance()(1));
    CHECK(drafter.acceptance()(1 << 30) == drafter.acceptance()(200));
}

void test_copies_behind_a_block_are_learnt_of_when_the_block_was_right() {
    lookup_drafter                   drafter = drafter_of("the cat sat. so ");
    const std::vector<drafted_token> block   = block_of("the ");
    const auto                       before  = drafter.acceptance();
    drafter.propose(7);
    drafter.extend(block, 7);
    drafter.learn(ids_of("thx"));
    drafter.learn(ids_of("the "));
    CHECK(drafter.acceptance()(4) == before(4)); // the drafter's tokens are no business of lookup
    drafter.learn(ids_of("the dog"));
    CHECK(drafter.acceptance()(4) < before(4));
    const double after_one = drafter.acceptance()(4);
    drafter.propose(7); // the block is of an earlier round now
    drafter.learn(ids_of("the dog"));
    CHECK(drafter.acceptance()(4) == after_one);
}

} // namespace

int main() {
    test_copies_are_certain_and_tell_their_match();
    test_copies_go_on_behind_a_block();
    test_a_copy_is_followed_half_as_far_as_it_agrees();
    test_a_new_prompt_leaves_nothing_of_the_last();
    test_what_became_of_copies_is_learnt();
    test_copies_behind_a_block_are_learnt_of_when_the_block_was_right();
    return pds_test::check_result();
}
