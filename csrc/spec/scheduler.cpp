#include "spec/scheduler.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

constexpr double  memory         = 0.96; // share of the past that a round leaves
constexpr double  prior_rounds   = 6;    // rounds that the means before a request are worth
constexpr double  guess_weight   = 0.25; // of a slot that was not verified
constexpr double  margin         = 0.03; // tokens by which drafting must be better than a plain step
constexpr double  hopeful        = 0.97; // acceptance that a probe may hope for
constexpr double  budget         = 0.01; // share of the time of a request that probes may lose
constexpr double  first_loss     = 1;    // plain steps that drafting may lose before the budget has grown
constexpr int32_t first_interval = 4;
constexpr int32_t most_interval  = 64;

} // namespace

scheduler::scheduler(std::vector<double> means) : interval_(first_interval) {
    for (const double value : means) {
        slots_.push_back({ value, 0, 0 });
    }
}

double scheduler::mean(int32_t slot) const {
    const history & h = slots_[static_cast<size_t>(slot)];
    return (prior_rounds * h.before + h.labels) / (prior_rounds + h.weight);
}

// Tokens per millisecond that the request reaches; plain steps are always to be had.
double scheduler::rate(const round_costs & costs) const {
    const double plain = costs.verify[0];
    return std::max((tokens_ + prior_rounds) / (ms_ + prior_rounds * plain), 1 / plain);
}

// The most tokens that a drafting round can be ahead of a plain step, with the means of the past, but none of them
// below least_mean.
double scheduler::best_gain(const round_costs & costs, int32_t n_max, double least_mean) const {
    const double going    = rate(costs);
    double       survival = 1, expected = 0, best = -going * costs.draft;
    for (int32_t k = 1; k <= n_max; k++) {
        survival *= std::max(mean(k - 1), least_mean);
        expected += survival;
        const double time = costs.draft + costs.verify[static_cast<size_t>(k)] - costs.verify[0];
        best              = std::max(best, expected - going * time);
    }
    return best;
}

bool scheduler::may_lose(double ms, double steps, const round_costs & costs) const {
    return lost_ms_ + ms <= budget * elapsed_ms_ + steps * costs.verify[0];
}

scheduler::round_plan scheduler::before(const round_costs & costs, int32_t n_max) {
    if (best_gain(costs, n_max, 0) > margin && may_lose(0, first_loss, costs)) {
        return round_plan::draft;
    }
    n_parked_++;
    const bool   can_pay = best_gain(costs, n_max, hopeful) > margin;
    const double loss    = costs.draft + costs.verify[1] - costs.verify[0] * (1 + mean(0));
    if (!can_pay || n_parked_ < interval_ || !may_lose(std::max(loss, 0.0), 0, costs)) {
        return round_plan::plain;
    }
    return round_plan::probe;
}

int32_t scheduler::admit(std::span<const double> trust, const round_costs & costs, round_plan plan) const {
    const auto   n     = static_cast<int32_t>(trust.size());
    const double going = rate(costs);
    double       alive = 1;
    int32_t      k     = 0;
    for (; k < n; k++) {
        alive *= trust[static_cast<size_t>(k)];
        double survival = alive, ahead = 0, best = -1;
        for (int32_t last = k; last < n; last++) {
            survival *= last == k ? 1 : mean(last);
            const auto at = static_cast<size_t>(last);
            ahead += survival - going * (costs.verify[at + 1] - costs.verify[at]);
            best = std::max(best, ahead);
        }
        if (best <= 0 && !(plan == round_plan::probe && k == 0)) {
            break;
        }
    }
    return k;
}

int32_t scheduler::admit_by_gain(std::span<const double> trust, const round_costs & costs, round_plan plan) const {
    const double going    = rate(costs);
    double       survival = 1, ahead = 0, best = 0;
    int32_t      depth = 0;
    for (size_t i = 0; i < trust.size(); i++) {
        survival *= trust[i];
        ahead += survival - going * (costs.verify[i + 1] - costs.verify[i]);
        if (ahead > best) {
            best  = ahead;
            depth = static_cast<int32_t>(i) + 1;
        }
    }
    return plan == round_plan::probe && !trust.empty() ? std::max(depth, 1) : depth;
}

void scheduler::learn(int32_t slot, double label) {
    history & h = slots_[static_cast<size_t>(slot)];
    h.weight    = h.weight * memory + 1;
    h.labels    = h.labels * memory + label;
}

void scheduler::guess(int32_t slot, double trust) {
    history & h = slots_[static_cast<size_t>(slot)];
    h.weight    = h.weight * memory + guess_weight;
    h.labels    = h.labels * memory + guess_weight * trust;
}

void scheduler::after(round_plan plan, int32_t n_verified, int32_t n_tokens, const round_costs & costs) {
    const double draft = plan == round_plan::plain ? 0 : costs.draft;
    const double ms    = draft + costs.verify[static_cast<size_t>(n_verified)];
    tokens_            = tokens_ * memory + n_tokens;
    ms_                = ms_ * memory + ms;
    elapsed_ms_ += ms;
    if (plan == round_plan::plain) {
        return;
    }
    lost_ms_ += ms - n_tokens * costs.verify[0];
    n_parked_ = 0;
    if (plan == round_plan::draft) {
        interval_ = first_interval;
    } else {
        interval_ = std::min(2 * interval_, most_interval);
    }
}

} // namespace pds
