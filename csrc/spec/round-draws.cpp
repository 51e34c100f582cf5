#include "spec/round-draws.h"

#include "base/rng.h"

#include <algorithm>

namespace pds {

namespace {

uint64_t position_of(const round_keys & keys, int32_t slot) {
    return keys.first + static_cast<uint64_t>(slot);
}

double slot_uniform(const round_keys & keys, purpose use, int32_t slot) {
    return uniform(keys.seed, use, position_of(keys, slot), static_cast<uint32_t>(slot));
}

verdict accept_coupled(std::span<const drafted_token> drafts, target_rows & rows, const round_keys & keys) {
    const auto n = static_cast<int32_t>(drafts.size());
    for (int32_t i = 0;; i++) {
        const int32_t id = sampler::draw_coupled(rows.row(i), keys.seed, position_of(keys, i));
        if (i == n || id != drafts[static_cast<size_t>(i)].id) {
            return { i, id };
        }
        rows.accept(id);
    }
}

constexpr size_t most_to_sort = 256; // candidates; beyond it the drafted token alone tells, with more noise

double probability_of(std::span<const candidate> candidates, int32_t id) {
    const auto at = std::find_if(candidates.begin(), candidates.end(), [&](const candidate & c) { return c.id == id; });
    return at == candidates.end() ? 0.0 : static_cast<double>(at->p);
}

double overlap(const std::vector<candidate> & p, const drafted_token & draft) {
    if (draft.q.empty()) {
        return probability_of(p, draft.id);
    }
    if (p.size() > most_to_sort || draft.q.size() > most_to_sort) {
        return std::min(1.0, probability_of(p, draft.id) / probability_of(draft.q, draft.id));
    }
    double sum = 0;
    for (const candidate & c : draft.q) {
        sum += std::min(static_cast<double>(c.p), probability_of(p, c.id));
    }
    return sum;
}

} // namespace

const std::vector<candidate> & noted_rows::row(int32_t i) {
    const std::vector<candidate> & p = rows_.row(i);
    if (static_cast<size_t>(i) < drafts_.size()) {
        labels_.push_back(overlap(p, drafts_[static_cast<size_t>(i)]));
    }
    return p;
}

int32_t draw_draft(draft_rule rule, std::span<const candidate> candidates, const round_keys & keys, int32_t slot) {
    switch (rule) {
    case draft_rule::best:
        break;
    case draft_rule::drawn:
        return sampler::draw(candidates, slot_uniform(keys, purpose::draft_draw, slot));
    case draft_rule::coupled:
        return sampler::draw_coupled(candidates, keys.seed, position_of(keys, slot));
    }
    return candidates.front().id;
}

std::span<const drafted_token> trusted_drafts(std::span<const drafted_token> drafts, int64_t n_max, float conf_min) {
    const auto offered = drafts.first(std::min(drafts.size(), static_cast<size_t>(std::max<int64_t>(n_max, 0))));
    const auto doubted =
        std::find_if(offered.begin(), offered.end(), [&](const auto & token) { return token.confidence < conf_min; });
    return { offered.begin(), doubted };
}

verdict accept_drafts(accept_rule rule, std::span<const drafted_token> drafts, target_rows & rows,
                      const round_keys & keys) {
    if (rule == accept_rule::coupled) {
        return accept_coupled(drafts, rows, keys);
    }
    std::vector<proposal> proposals;
    for (const drafted_token & token : drafts) {
        proposals.push_back({ token.id, token.q });
    }
    const auto slot_draw = [&keys](purpose use) {
        return [&keys, use](int32_t slot) { return slot_uniform(keys, use, slot); };
    };
    const auto         behind = position_of(keys, static_cast<int32_t>(drafts.size()));
    const accept_draws draws  = { slot_draw(purpose::acceptance), slot_draw(purpose::residual),
                                  uniform(keys.seed, purpose::target_draw, behind) };
    return rule == accept_rule::by_block ? accept_by_block(proposals, rows, draws)
                                         : accept_by_token(proposals, rows, draws);
}

} // namespace pds
