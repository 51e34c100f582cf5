// What a drafter's confidence is worth: the probability that a drafted token is accepted if all before it are, learnt
// from tokens that were verified.
#pragma once

#include "pydspark.h"

#include <array>
#include <cstdint>

namespace pds {

// P = sigmoid(a * logit + b)
struct reliability_line {
    double a = 1;
    double b = 0;
};

// For one way of drafting and judging. Each slot has a line over the confidence's logit, fitted by logistic regression
// with soft labels. With little to go by a slot's line stays near that of all slots together, and
// that one near the confidence as it is.
class calibration {
  public:
    calibration();
    // Values that make no sense (negative, not finite) are left out.
    explicit calibration(const pds_learnt_slots & learnt);

    // label: the probability, in [0, 1], that the verified token of this slot is accepted, or what became of it.
    void observe(int32_t slot, double confidence, double label);

    // Probability of being accepted. confidence: what the drafter says, in [0, 1]; 1/2 where it says nothing.
    double trusted(int32_t slot, double confidence) const;
    // The same for a token of which nothing is known but its slot.
    double mean(int32_t slot) const;

    const pds_learnt_slots & learnt() const { return learnt_; }

  private:
    void fit();

    pds_learnt_slots                               learnt_ = {};
    std::array<reliability_line, PDS_LEARNT_SLOTS> lines_  = {};
    int32_t                                        n_new_  = 0; // observations since the lines were fitted
};

} // namespace pds
