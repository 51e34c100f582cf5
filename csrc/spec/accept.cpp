#include "spec/accept.h"

#include "spec/sampler.h"

#include <algorithm>

namespace pds {

namespace {

// Probabilities of a distribution by id.
class lookup {
  public:
    explicit lookup(std::span<const candidate> candidates) : by_id_(candidates.begin(), candidates.end()) {
        std::sort(by_id_.begin(), by_id_.end(), [](const candidate & a, const candidate & b) { return a.id < b.id; });
    }

    double operator()(int32_t id) const {
        const auto it = std::lower_bound(by_id_.begin(), by_id_.end(), id,
                                         [](const candidate & c, int32_t wanted) { return c.id < wanted; });
        return it != by_id_.end() && it->id == id ? static_cast<double>(it->p) : 0.0;
    }

  private:
    std::vector<candidate> by_id_;
};

double probability(std::span<const candidate> candidates, int32_t id) {
    const auto it = std::find_if(candidates.begin(), candidates.end(), [&](const candidate & c) { return c.id == id; });
    return it != candidates.end() ? static_cast<double>(it->p) : 0.0;
}

double draft_probability(const proposal & draft) {
    return draft.q.empty() ? 1.0 : probability(draft.q, draft.id);
}

// max(scale * p - q, 0), not normalised
struct excess {
    std::vector<double> mass; // of each candidate of p
    double              total = 0;
};

excess excess_over(std::span<const candidate> p, const proposal & draft, double scale) {
    const candidate certain = { draft.id, 1.0f };
    const lookup    q(draft.q.empty() ? std::span<const candidate>(&certain, 1) : draft.q);
    excess          result;
    for (const candidate & c : p) {
        result.mass.push_back(std::max(scale * static_cast<double>(c.p) - q(c.id), 0.0));
        result.total += result.mass.back();
    }
    return result;
}

// Without excess mass (rounding) the target's own distribution is the right one.
int32_t draw_excess(std::span<const candidate> p, const excess & excess, double u) {
    if (excess.total <= 0) {
        return sampler::draw(p, u);
    }
    double left = u * excess.total;
    size_t last = 0;
    for (size_t i = 0; i < p.size(); i++) {
        if (excess.mass[i] > 0) {
            last = i;
            left -= excess.mass[i];
            if (left < 0) {
                break;
            }
        }
    }
    return p[last].id;
}

} // namespace

verdict accept_by_token(std::span<const proposal> drafts, target_rows & rows, const accept_draws & draws) {
    const auto n = static_cast<int32_t>(drafts.size());
    for (int32_t i = 0; i < n; i++) {
        const proposal &               draft = drafts[static_cast<size_t>(i)];
        const std::vector<candidate> & p     = rows.row(i);
        if (draws.acceptance(i) * draft_probability(draft) >= probability(p, draft.id)) {
            return { i, draw_excess(p, excess_over(p, draft, 1.0), draws.residual(i)) };
        }
        rows.accept(draft.id);
    }
    return { n, sampler::draw(rows.row(n), draws.next) };
}

verdict accept_by_block(std::span<const proposal> drafts, target_rows & rows, const accept_draws & draws) {
    const auto n          = static_cast<int32_t>(drafts.size());
    double     ratio      = 1.0; // min(1, ratio before * p / q), along the drafted path
    int32_t    n_accepted = -1;
    int32_t    next       = 0;
    for (int32_t i = 0; i <= n; i++) {
        const std::vector<candidate> & p = rows.row(i);
        // may the text end with draft i - 1 and a token of this row?
        if (i == n) {
            if (n == 0 || draws.acceptance(i - 1) < ratio) {
                n_accepted = n;
                next       = sampler::draw(p, draws.next);
            }
            break;
        }
        const proposal & draft   = drafts[static_cast<size_t>(i)];
        const excess     rest    = excess_over(p, draft, ratio);
        const double     divisor = rest.total + 1.0 - ratio;
        const double     allowed = divisor > 0 ? rest.total / divisor : 1.0;
        if (i == 0 || draws.acceptance(i - 1) < allowed) {
            n_accepted = i;
            next       = draw_excess(p, rest, draws.residual(i));
        }
        ratio = std::min(1.0, ratio * probability(p, draft.id) / draft_probability(draft));
        if (ratio <= 0) {
            break;
        }
        rows.accept(draft.id);
    }
    return { n_accepted, next };
}

} // namespace pds
