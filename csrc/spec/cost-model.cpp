#include "spec/cost-model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace pds {

namespace {

constexpr double most_weight  = 64;  // batches that a mean remembers
constexpr double pace_step    = 0.1; // share of a batch in the pace
constexpr double most_pace    = 8;   // the pace stays within this factor of 1
constexpr double outlier      = 1.5; // factor beyond which a batch counts as this much longer or shorter
constexpr double slope_memory = 0.998;
constexpr double slope_ridge  = 4096; // rows^2 * tokens^2: what little variety in depth may not say much

struct level {
    double weight;
    double ms;
    int    n_rows;
};

// The closest non-decreasing sequence: neighbours that fall are replaced by their mean (pool adjacent violators).
std::vector<level> isotonic(const std::vector<level> & given) {
    std::vector<level> pooled; // n_rows = how many of the given each one stands for
    for (const level & next : given) {
        pooled.push_back({ next.weight, next.ms, 1 });
        while (pooled.size() > 1 && pooled[pooled.size() - 2].ms > pooled.back().ms) {
            const level high = pooled.back();
            pooled.pop_back();
            level & low = pooled.back();
            low.ms      = (low.ms * low.weight + high.ms * high.weight) / (low.weight + high.weight);
            low.weight += high.weight;
            low.n_rows += high.n_rows;
        }
    }
    std::vector<level> result = given;
    size_t             at     = 0;
    for (const level & pool : pooled) {
        for (int i = 0; i < pool.n_rows; i++) {
            result[at++].ms = pool.ms;
        }
    }
    return result;
}

double between(const level & a, const level & b, int n_rows) {
    return a.ms + (b.ms - a.ms) * (n_rows - a.n_rows) / (b.n_rows - a.n_rows);
}

// A point on the lines through known levels; beyond the last one in proportion to it.
double on_lines(const std::vector<level> & known, int n_rows) {
    const auto next = std::find_if(known.begin(), known.end(), [&](const level & l) { return l.n_rows >= n_rows; });
    if (next == known.end()) {
        return known.back().ms * n_rows / known.back().n_rows;
    }
    return next == known.begin() || next->n_rows == n_rows ? next->ms : between(*(next - 1), *next, n_rows);
}

bool is_sane(double value) {
    return std::isfinite(value) && value >= 0;
}

} // namespace

cost_model::cost_model(const pds_learnt_costs & learnt) {
    for (int32_t n_rows = 1; n_rows < PDS_LEARNT_ROWS; n_rows++) {
        pds_learnt_cost cost = learnt.rows[n_rows];
        cost.weight          = std::min(cost.weight, most_weight);
        if (is_sane(cost.weight) && is_sane(cost.ms) && is_sane(cost.depth) && cost.ms > 0) {
            learnt_.rows[n_rows] = cost;
        }
    }
    if (is_sane(learnt.depth_var) && std::isfinite(learnt.depth_cov)) {
        learnt_.depth_var = learnt.depth_var;
        learnt_.depth_cov = learnt.depth_cov;
    }
}

bool cost_model::knows(int32_t n_rows) const {
    return n_rows > 0 && n_rows < PDS_LEARNT_ROWS && learnt_.rows[n_rows].weight > 0;
}

bool cost_model::knows_any() const {
    return std::any_of(std::begin(learnt_.rows), std::end(learnt_.rows), [](const auto & c) { return c.weight > 0; });
}

double cost_model::slope() const {
    return std::max(learnt_.depth_cov / (learnt_.depth_var + slope_ridge), 0.0);
}

double cost_model::expected(int32_t n_rows, int64_t depth) const {
    const pds_learnt_cost & cost = learnt_.rows[n_rows];
    // the line is not followed below half of what was seen: depths far away say little about the constant part
    return std::max(cost.ms + slope() * n_rows * (static_cast<double>(depth) - cost.depth), cost.ms / 2);
}

void cost_model::observe(int32_t n_rows, int64_t depth, double ms) {
    if (n_rows <= 0 || n_rows >= PDS_LEARNT_ROWS || !(ms > 0)) {
        return;
    }
    pds_learnt_cost & cost = learnt_.rows[n_rows];
    const double      now  = ms / pace_;
    if (cost.weight < 1 || (cost.weight < 2 && now < cost.ms)) { // the first batch of a size also builds its graph
        cost = { cost.weight + 1, now, static_cast<double>(depth) };
        return;
    }
    const double wanted  = expected(n_rows, depth);
    const double ratio   = std::clamp(now / wanted, 1 / outlier, outlier);
    const double limited = ratio * wanted;
    const double x       = n_rows * (static_cast<double>(depth) - cost.depth);
    learnt_.depth_var    = learnt_.depth_var * slope_memory + x * x;
    learnt_.depth_cov    = learnt_.depth_cov * slope_memory + x * (limited - cost.ms);
    pace_                = std::clamp(pace_ * (1 + pace_step * (ratio - 1)), 1 / most_pace, most_pace);
    cost.weight          = std::min(cost.weight + 1, most_weight);
    cost.ms += (limited - cost.ms) / cost.weight;
    cost.depth += (static_cast<double>(depth) - cost.depth) / cost.weight;
}

std::vector<double> cost_model::curve(int32_t n_rows, int64_t depth) const {
    std::vector<level> known;
    for (int32_t n = 1; n < PDS_LEARNT_ROWS; n++) {
        if (learnt_.rows[n].weight > 0) {
            known.push_back({ learnt_.rows[n].weight, expected(n, depth) * pace_, n });
        }
    }
    known = isotonic(known);
    std::vector<double> costs;
    for (int32_t n = 1; n <= n_rows; n++) {
        costs.push_back(on_lines(known, n));
    }
    return costs;
}

} // namespace pds
