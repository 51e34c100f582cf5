#include "spec/truncation.h"

#include <algorithm>
#include <cmath>

namespace pds {
namespace {

double weight(float logit, float max) {
    return std::exp(static_cast<double>(logit) - static_cast<double>(max));
}

double sum_weights(const std::vector<scored_token> & tokens, float max) {
    double sum = 0;
    for (const scored_token & token : tokens) {
        sum += weight(token.logit, max);
    }
    return sum;
}

// Puts the next best tokens behind the n_sorted that are in order already, and returns how many are in order now.
// Growing steps keep the work near that of sorting just the tokens looked at.
size_t sort_further(std::vector<scored_token> & tokens, size_t n_sorted) {
    const size_t n_next = std::min(tokens.size(), std::max<size_t>(128, 4 * n_sorted));
    const auto   from   = tokens.begin() + static_cast<std::ptrdiff_t>(n_sorted);
    const auto   to     = tokens.begin() + static_cast<std::ptrdiff_t>(n_next);
    if (to != tokens.end()) {
        std::nth_element(from, to, tokens.end(), ranks_before);
    }
    std::sort(from, to, ranks_before);
    return n_next;
}

} // namespace

truncator::truncator(const truncation & settings) : settings_(settings) {
    settings_.top_p = std::clamp(settings_.top_p, 0.0f, 1.0f);
    settings_.min_p = std::clamp(settings_.min_p, 0.0f, 1.0f);
}

const std::vector<candidate> & truncator::apply(const logits_row & row) {
    candidates_.clear();
    const bool greedy   = settings_.temperature <= 0;
    const bool by_count = settings_.top_k > 0 && static_cast<size_t>(settings_.top_k) < row.logits.size();
    select_best(row, by_count && !greedy ? settings_.top_k : 1, ranked_);
    if (ranked_.empty()) {
        return candidates_;
    }
    const scored_token best = *std::min_element(ranked_.begin(), ranked_.end(), ranks_before);
    if (greedy) {
        candidates_.push_back({ best.id, 1.0f });
        return candidates_;
    }
    const bool by_mass = settings_.top_p < 1;
    if (!by_count && !by_mass && settings_.min_p <= 0) {
        temper_all(row, best.logit);
        return candidates_;
    }
    double total = 0; // of the weights that top-p takes its part of
    if (by_mass) {
        total = by_count ? sum_weights(ranked_, best.logit) : sum_exp(row, best.logit);
    }
    if (!by_count) {
        gather(row, best.logit, total);
    }
    temper(kept_prefix(best.logit, total), best.logit);
    return candidates_;
}

// Fills ranked_ with every token that top-p or min-p may keep. Tokens lighter than the n-th part of the mass that top-p
// drops weigh less than that mass together, so none of them is in the prefix.
void truncator::gather(const logits_row & row, float max, double total) {
    const double dropped = (1.0 - static_cast<double>(settings_.top_p)) * total;
    const double lightest =
        std::max(static_cast<double>(settings_.min_p), dropped / static_cast<double>(row.logits.size()));
    const double slack = 1e-5 * (1.0 + std::abs(static_cast<double>(max))); // far above the rounding of sum and floats
    select_at_least(row, static_cast<float>(static_cast<double>(max) + std::log(lightest) - slack), ranked_);
}

// Both filters keep a prefix of the ranking, so the shorter one is kept.
size_t truncator::kept_prefix(float max, double total) {
    const double enough   = static_cast<double>(settings_.top_p) * total;
    const bool   by_mass  = settings_.top_p < 1;
    double       mass     = 0;
    size_t       n_sorted = 0;
    for (size_t i = 0; i < ranked_.size(); ++i) {
        if (i == n_sorted) {
            n_sorted = sort_further(ranked_, n_sorted);
        }
        const double w = weight(ranked_[i].logit, max);
        if (w < static_cast<double>(settings_.min_p)) {
            return i;
        }
        mass += w;
        if (by_mass && mass >= enough) {
            return i + 1;
        }
    }
    return ranked_.size();
}

void truncator::temper(size_t n_kept, float max) {
    const double temperature = static_cast<double>(settings_.temperature);
    double       sum         = 0;
    for (size_t i = 0; i < n_kept; ++i) {
        const scored_token & token = ranked_[i];
        const double         w = std::exp((static_cast<double>(token.logit) - static_cast<double>(max)) / temperature);
        if (static_cast<float>(w) == 0) {
            break; // as is every later one
        }
        sum += w;
        candidates_.push_back({ token.id, static_cast<float>(w) });
    }
    for (candidate & c : candidates_) {
        c.p = static_cast<float>(static_cast<double>(c.p) / sum);
    }
}

void truncator::temper_all(const logits_row & row, float max) {
    const double scale = 1.0 / exp_all(row, max, settings_.temperature, weights_);
    for (size_t id = 0; id < weights_.size(); ++id) {
        const float p = static_cast<float>(static_cast<double>(weights_[id]) * scale);
        if (p > 0) {
            candidates_.push_back({ static_cast<int32_t>(id), p });
        }
    }
}

} // namespace pds
