#include "spec/synthetic.h"

#include "base/error.h"
#include "base/rng.h"

namespace pds {

synthetic_acceptance::synthetic_acceptance(std::span<const float> by_slot, uint64_t seed)
    : by_slot_(by_slot.begin(), by_slot.end()), seed_(seed) {
    PDS_REQUIRE(!by_slot_.empty(), PDS_ERR_ARGUMENT, "synthetic acceptance needs at least one probability");
    for (const float p : by_slot_) {
        PDS_REQUIRE(p >= 0 && p <= 1, PDS_ERR_ARGUMENT, "a synthetic acceptance is %g; it must be in [0, 1]",
                    static_cast<double>(p));
    }
}

std::span<const drafted_token> synthetic_acceptance::with_confidence(std::span<const drafted_token> drafts) {
    drafts_.assign(drafts.begin(), drafts.end());
    for (size_t i = 0; i < drafts_.size(); i++) {
        drafts_[i].confidence = chance(i);
    }
    return drafts_;
}

verdict synthetic_acceptance::judge(std::span<const drafted_token> drafts, target_rows & rows,
                                    uint64_t position) const {
    int32_t n = 0;
    while (static_cast<size_t>(n) < drafts.size()) {
        const auto slot = static_cast<uint32_t>(n);
        rows.row(n);
        if (uniform(seed_, purpose::acceptance, position + slot, slot) >= static_cast<double>(chance(slot))) {
            break;
        }
        rows.accept(drafts[slot].id);
        n++;
    }
    return { n, rows.row(n).front().id };
}

} // namespace pds
