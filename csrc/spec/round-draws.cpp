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

} // namespace

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
