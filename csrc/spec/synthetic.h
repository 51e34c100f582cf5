// Acceptance by chance instead of by the model's own text, so that benchmarks can ask what a drafter of a given quality
// would bring. What is generated means nothing.
#pragma once

#include "spec/round-draws.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace pds {

class synthetic_acceptance {
  public:
    // by_slot: probability that a draft is accepted if those before it are; the last one also holds for later slots.
    synthetic_acceptance(std::span<const float> by_slot, uint64_t seed);

    // The drafts, as sure as they are right.
    std::span<const drafted_token> with_confidence(std::span<const drafted_token> drafts);

    // The verdict of a round whose first token has this position. Reads as many rows as a real one would.
    verdict judge(std::span<const drafted_token> drafts, target_rows & rows, uint64_t position) const;

  private:
    float chance(size_t slot) const { return by_slot_[std::min(slot, by_slot_.size() - 1)]; }

    std::vector<float>         by_slot_;
    uint64_t                   seed_;
    std::vector<drafted_token> drafts_;
};

} // namespace pds
