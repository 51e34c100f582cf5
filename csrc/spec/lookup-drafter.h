// Drafting without a model: where the text goes on as it did earlier, what followed there is proposed.
#pragma once

#include "spec/lookup.h"
#include "spec/round-draws.h"

#include <array>
#include <span>
#include <vector>

namespace pds {

// How often copied tokens are accepted if those before them are, by how many tokens in front of them agree with the
// earlier text; recent ones count more.
class copy_acceptance {
  public:
    copy_acceptance();

    void   observe(int32_t n_match, bool accepted);
    double operator()(int32_t n_match) const;

  private:
    struct share {
        double mean = 0;
        double seen = 0;
    };

    static size_t step_of(int32_t n_match);

    std::array<share, 8> shares_ = {}; // for 1, 2 to 3, 4 to 7, ... tokens
};

// How far to go along with a copy where nobody weighs costs: half as many tokens as agreed before it. Drafts in front
// of it stay.
std::span<const drafted_token> fair_share(std::span<const drafted_token> drafts);

class lookup_drafter {
  public:
    // n_match: tokens that must agree before any are copied.
    explicit lookup_drafter(int32_t n_match) : lookup_(n_match) {}

    // The tokens of a prompt, then each one that is emitted.
    void start(std::span<const int32_t> prompt);
    void append(int32_t id) { lookup_.append(id); }

    // Up to n_max tokens that followed an earlier occurrence of the text's end; none without one.
    std::span<const drafted_token> propose(int64_t n_max);
    // Drafts, and copied tokens behind them if their end occurred earlier: at most n_max in all. Whether a token is
    // copied depends on those before it alone.
    std::span<const drafted_token> extend(std::span<const drafted_token> drafts, int64_t n_max);

    // The tokens that came instead of the last proposals, or as they said; also teaches when nothing was verified.
    void                    learn(std::span<const int32_t> given);
    const copy_acceptance & acceptance() const { return acceptance_; }

  private:
    void copy(const lookup_match & match, int64_t n_max, std::vector<drafted_token> & out) const;
    void learn(std::span<const drafted_token> proposed, std::span<const int32_t> given);

    lookup                     lookup_;
    copy_acceptance            acceptance_;
    std::vector<drafted_token> copied_;   // in the place of the drafter's
    std::vector<drafted_token> extended_; // the drafter's, and those behind them
};

} // namespace pds
