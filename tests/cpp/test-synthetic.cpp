// Acceptance by chance: as often as asked, and the same with the same seed.
#include "base/error.h"
#include "check.h"
#include "spec/synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

using pds::drafted_token;
using pds::synthetic_acceptance;

class one_row : public pds::target_rows {
  public:
    const std::vector<pds::candidate> & row(int32_t) override { return row_; }
    void                                accept(int32_t) override {}

  private:
    std::vector<pds::candidate> row_ = { { 7, 1.0f } };
};

const std::vector<drafted_token> block(4);

void drafts_are_accepted_as_often_as_asked() {
    constexpr int              n_rounds = 20000;
    const std::vector<float>   by_slot  = { 0.9f, 0.5f, 0.25f };
    const synthetic_acceptance chance(by_slot, 1);
    one_row                    rows;
    int                        reached[5] = {};
    for (int i = 0; i < n_rounds; i++) {
        const pds::verdict verdict = chance.judge(block, rows, static_cast<uint64_t>(10 * i));
        CHECK(verdict.next == 7);
        for (int slot = 0; slot <= verdict.n_accepted; slot++) {
            reached[slot]++;
        }
    }
    for (size_t slot = 0; slot < 4; slot++) { // the last value holds for the fourth slot, too
        const double share = static_cast<double>(reached[slot + 1]) / reached[slot];
        CHECK_NEAR(share, by_slot[std::min<size_t>(slot, 2)], 0.02);
    }
}

void a_seed_says_what_is_accepted() {
    const std::vector<float> by_slot = { 0.5f };
    one_row                  rows;
    int                      n_different = 0;
    for (uint64_t position = 0; position < 200; position++) {
        const auto of = [&](uint64_t seed) {
            return synthetic_acceptance(by_slot, seed).judge(block, rows, position).n_accepted;
        };
        CHECK(of(1) == of(1));
        n_different += of(1) != of(2) ? 1 : 0;
    }
    CHECK(n_different > 50);
}

void drafts_are_as_sure_as_they_are_right() {
    const std::vector<float> by_slot = { 0.75f, 0.25f };
    synthetic_acceptance     chance(by_slot, 1);
    const auto               drafts = chance.with_confidence(block);
    CHECK(drafts.size() == 4);
    CHECK(drafts[0].confidence == 0.75f);
    CHECK(drafts[1].confidence == 0.25f);
    CHECK(drafts[3].confidence == 0.25f);
}

void wrong_probabilities_are_refused() {
    for (const float wrong : { -0.1f, 1.1f, std::nanf("") }) {
        CHECK_THROWS(PDS_ERR_ARGUMENT, synthetic_acceptance(std::vector<float>{ 0.5f, wrong }, 1));
    }
    CHECK_THROWS(PDS_ERR_ARGUMENT, synthetic_acceptance({}, 1));
}

} // namespace

int main() {
    drafts_are_accepted_as_often_as_asked();
    a_seed_says_what_is_accepted();
    drafts_are_as_sure_as_they_are_right();
    wrong_probabilities_are_refused();
    return pds_test::check_result();
}
