// How deep each round of a request drafts, so that drafts pay for themselves: from what earlier rounds showed, from how
// far the drafter trusts its tokens, and from what batches cost. Pure arithmetic, without a clock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace pds {

constexpr int32_t most_drafts = 32;

// Milliseconds at the present depth of context.
struct round_costs {
    double              draft = 0; // of running the drafter
    std::vector<double> verify;    // [n + 1] of a batch with 0 .. n drafts: never decreasing
};

// Why a round had the depth that it had.
enum class depth_reason {
    parked,     // drafting did not pay: a plain step
    probed,     // a try, to see whether it pays by now
    cost,       // the next draft was worth less than its time
    confidence, // the next draft was trusted less than the caller's least
    whole,      // all that the drafter, the caller or the context allow
    count,
};

class scheduler {
  public:
    // means: [n_slots] probability that a slot's token is accepted if those before it are, before the request began.
    explicit scheduler(std::vector<double> means);

    enum class round_plan { plain, probe, draft };

    // Whether to run the drafter in this round, known before it runs: from earlier rounds and costs. n_max: most drafts
    // that can be verified.
    round_plan before(const round_costs & costs, int32_t n_max);

    // How many of the drafts to verify. trust: [n] probability that each is accepted if those before it are.
    // Draft i is admitted by trust[0 .. i] and by what was known before the round, so by nothing that depends on its
    // own token or on later ones, as exact acceptance by ratio demands. (Spec: expected tokens gained less the time
    // they take at the present rate, with means of the past in the place of what is not known yet.)
    int32_t admit(std::span<const double> trust, const round_costs & costs, round_plan plan) const;
    // The same when tokens are judged by equality alone, which allows any choice: the depth with the best gain.
    int32_t admit_by_gain(std::span<const double> trust, const round_costs & costs, round_plan plan) const;

    // A slot's verified token was accepted with this probability, or not.
    void learn(int32_t slot, double label);
    // A slot's token was trusted this much and not verified: less to go by, but it costs nothing.
    void guess(int32_t slot, double trust);
    // The round is over: it verified n_verified drafts and gave n_tokens.
    void after(round_plan plan, int32_t n_verified, int32_t n_tokens, const round_costs & costs);

    // Milliseconds that drafting has cost over plain steps, as the costs have it; negative: saved.
    double lost_ms() const { return lost_ms_; }

  private:
    double mean(int32_t slot) const;
    double rate(const round_costs & costs) const;
    double best_gain(const round_costs & costs, int32_t n_max, double least_mean) const;
    bool   may_lose(double ms, double steps, const round_costs & costs) const;

    struct history {
        double before = 0; // mean before the request
        double weight = 0; // rounds of the request, older ones less
        double labels = 0;
    };

    std::vector<history> slots_;
    double               tokens_     = 0; // given by recent rounds,
    double               ms_         = 0; // and the time they took
    double               elapsed_ms_ = 0;
    double               lost_ms_    = 0;
    int32_t              n_parked_   = 0; // plain steps since the last round that drafted
    int32_t              interval_   = 0; // of them before the next probe
};

} // namespace pds
