// What batches cost on this machine: milliseconds by number of rows and by depth of context, learnt from those that
// ran.
#pragma once

#include "pydspark.h"

#include <cstdint>
#include <vector>

namespace pds {

// Costs of one kind of batch. Each number of rows has a mean of its own; the slope with depth is shared, for every row
// attends to every token of the context. How fast the machine is at the moment is one factor on all of it, so that a
// busy hour does not bend the curve. Batches that took far longer or shorter than expected count as a little longer or
// shorter.
class cost_model {
  public:
    cost_model() = default;
    // Values that make no sense (negative, not finite) are left out.
    explicit cost_model(const pds_learnt_costs & learnt);

    void observe(int32_t n_rows, int64_t depth, double ms);

    bool knows(int32_t n_rows) const;
    bool knows_any() const;

    // [n_rows] milliseconds of batches of 1 .. n_rows rows, never decreasing. Sizes that never ran lie on lines between
    // and beyond those that did. Something must have run.
    std::vector<double> curve(int32_t n_rows, int64_t depth) const;

    const pds_learnt_costs & learnt() const { return learnt_; }

  private:
    double slope() const;
    double expected(int32_t n_rows, int64_t depth) const;

    pds_learnt_costs learnt_ = {};
    double           pace_   = 1; // of the machine at the moment, against the means
};

} // namespace pds
