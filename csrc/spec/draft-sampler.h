// What drafts are drawn from: rows of the draft head under the settings of a request. Any distribution is legal as long
// as it is known, so penalties are left out, and only some rows may take part.
#pragma once

#include "spec/truncation.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pds {

class draft_sampler {
  public:
    // bias: rows ascending, each once; the values are added to the logits, -inf bans.
    draft_sampler(const truncation & settings, std::vector<scored_token> bias);

    // The k best rows by their logits and the bias, ascending: fewer when fewer are above -inf.
    void choose(std::span<const float> logits, size_t k, std::vector<int32_t> & rows);

    // See truncator::apply for order and lifetime; the ids are rows. Empty when nothing is left to draw.
    const std::vector<candidate> & distribution(std::span<const float> logits);
    // Among some rows alone. rows: ascending; logits: [rows.size()]
    const std::vector<candidate> & distribution(std::span<const int32_t> rows, std::span<const float> logits);

  private:
    logits_row biased(std::span<const float> logits);

    truncator                 truncator_;
    std::vector<scored_token> bias_;
    std::vector<scored_token> patches_; // of the row at hand
    std::vector<scored_token> best_;
    std::vector<float>        some_; // logits of some rows with their bias
    std::vector<candidate>    candidates_;
};

} // namespace pds
