// Truncation of one row of logits: top-k, then top-p, then min-p, then temperature, the order of llama.cpp's default
// chain.
#pragma once

#include "spec/row-scan.h"

#include <cstdint>
#include <vector>

namespace pds {

struct candidate {
    int32_t id;
    float   p; // probability after truncation and temperature, > 0
};

// Values beyond a range act like its nearer end. All are finite.
struct truncation {
    float   temperature = 1.0f; // <= 0 = greedy: the best token alone
    int32_t top_k       = 0;    // <= 0 or at least the row's size = off
    float   top_p       = 1.0f; // the smallest prefix with this mass, in the top-k's own distribution; 1 = off, 0 = one
    float   min_p       = 0.0f; // drops p below this part of the best p; 0 = off
};

// Top-p and min-p look at probabilities of temperature 1; the temperature acts on what they leave. At least one
// candidate always survives, and equal logits rank by lower id.
class truncator {
  public:
    explicit truncator(const truncation & settings);

    // The candidates by descending p, ties by lower id. With nothing to truncate (top-k, top-p and min-p all off) they
    // are the whole vocabulary by ascending id instead: sorting it would cost many times the draw. The result lives
    // until the next call. Empty when no entry is above -inf; throws PDS_ERR_INTERNAL when one is NaN or +inf.
    const std::vector<candidate> & apply(const logits_row & row);

  private:
    void   gather(const logits_row & row, float max, double total);
    size_t kept_prefix(float max, double total);
    void   temper(size_t n_kept, float max);
    void   temper_all(const logits_row & row, float max);

    truncation                settings_;
    std::vector<scored_token> ranked_; // sorted only as far as kept_prefix had to look
    std::vector<float>        weights_;
    std::vector<candidate>    candidates_;
};

} // namespace pds
