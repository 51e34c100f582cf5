#include "spec/draft-sampler.h"

#include <algorithm>

namespace pds {

draft_sampler::draft_sampler(const truncation & settings, std::vector<scored_token> bias)
    : truncator_(settings), bias_(std::move(bias)) {
}

logits_row draft_sampler::biased(std::span<const float> logits) {
    patches_.clear();
    for (const scored_token & bias : bias_) {
        patches_.push_back({ bias.id, logits[static_cast<size_t>(bias.id)] + bias.logit });
    }
    return { logits, patches_ };
}

void draft_sampler::choose(std::span<const float> logits, size_t k, std::vector<int32_t> & rows) {
    select_best(biased(logits), static_cast<int32_t>(k), best_);
    rows.clear();
    for (const scored_token & token : best_) {
        rows.push_back(token.id);
    }
    std::sort(rows.begin(), rows.end());
}

const std::vector<candidate> & draft_sampler::distribution(std::span<const float> logits) {
    return truncator_.apply(biased(logits));
}

const std::vector<candidate> & draft_sampler::distribution(std::span<const int32_t> rows,
                                                           std::span<const float>   logits) {
    some_.assign(logits.begin(), logits.end());
    auto bias = bias_.begin();
    for (size_t i = 0; i < rows.size(); i++) {
        bias = std::lower_bound(bias, bias_.end(), rows[i],
                                [](const scored_token & one, int32_t row) { return one.id < row; });
        if (bias != bias_.end() && bias->id == rows[i]) {
            some_[i] += bias->logit;
        }
    }
    candidates_ = truncator_.apply({ some_ });
    for (candidate & c : candidates_) {
        c.id = rows[static_cast<size_t>(c.id)];
    }
    return candidates_;
}

} // namespace pds
