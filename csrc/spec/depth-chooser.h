// Chooses how many drafts each round of a session verifies, and learns from every round what that takes: the session's
// memory of costs and of the drafter's reliability, with one scheduler per request.
#pragma once

#include "spec/calibration.h"
#include "spec/cost-model.h"
#include "spec/round-draws.h"
#include "spec/scheduler.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pds {

struct depth_settings {
    int32_t schedule       = PDS_SCHEDULE_AUTO;
    int32_t kind           = PDS_LEARNT_GREEDY; // how tokens are drafted and judged
    int32_t n_slots        = 0;                 // most drafts of a round; 0 = plain decoding
    float   conf_min       = 0;
    bool    has_confidence = false;
};

struct depth_choice {
    int32_t      n_drafts = 0;
    depth_reason reason   = depth_reason::whole;
};

// What a round did.
struct round_outcome {
    std::span<const drafted_token> drafts;      // those that were verified
    std::span<const double>        labels;      // [slots whose prefix was accepted] probability of acceptance of each
    int32_t                        n_tokens;    // given
    int64_t                        depth;       // tokens of context before it
    double                         draft_ms;    // 0 = it did not draft
    double                         verify_ms;   // with judging
    double                         rollback_ms; // of verify_ms, for what the round before had taken back
};

class depth_chooser {
  public:
    depth_chooser() = default;

    // Numbers of rows whose costs should be measured before start(): none if the schedule can do with what is known.
    static std::vector<int32_t> rows_to_measure(const depth_settings & settings);
    bool                        knows_costs(const depth_settings & settings) const;
    void                        observe_verify(int32_t n_rows, int64_t depth, double ms);
    void                        observe_draft(int32_t n_chain, int64_t depth, double ms);

    // A request begins.
    void start(const depth_settings & settings);
    // Whether to run the drafter in this round. n_max: most drafts that may be verified, at least 1.
    bool before(int32_t n_max, int64_t depth);
    // How many of the drafts to verify.
    depth_choice choose(std::span<const drafted_token> drafts);
    // After a round that evaluated a token, with drafts or without.
    void after(const round_outcome & outcome);

    // Milliseconds that the request's drafts have saved over plain steps; negative: lost.
    double saved_ms() const { return saved_ms_; }

    pds_learnt learnt() const;
    // frozen: it stays as it is, so that choices depend on the text alone.
    void set_learnt(const pds_learnt & learnt, bool frozen);

  private:
    round_costs costs_at(int64_t depth) const;
    bool        judged_by_match() const { return settings_.kind != PDS_LEARNT_DRAWN; }
    void        learn_slots(const round_outcome & outcome);

    cost_model                                verify_;
    cost_model                                draft_;
    std::array<calibration, PDS_LEARNT_KINDS> kinds_;
    bool                                      is_frozen_ = false;

    // of the request at hand
    depth_settings           settings_;
    std::optional<scheduler> scheduler_;
    round_costs              costs_;
    scheduler::round_plan    plan_ = scheduler::round_plan::plain;
    std::vector<double>      trust_; // of the round's drafts, also of those that are not verified
    double                   saved_ms_ = 0;
    struct verified {
        int32_t n_rows = 0;
        int64_t depth  = 0;
        double  ms     = 0;
    };
    std::optional<verified> last_; // waits for what it costs to take its rejected drafts back
};

} // namespace pds
