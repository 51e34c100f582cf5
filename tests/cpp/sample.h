// Draws a token the way plain decoding does.
#pragma once

#include "base/rng.h"
#include "spec/sampler.h"

#include <span>

namespace pds_test {

inline int32_t sample(pds::sampler & state, std::span<const float> logits, uint64_t seed, uint64_t position) {
    return pds::sampler::draw(state.distribution(logits), pds::uniform(seed, pds::purpose::target_draw, position));
}

} // namespace pds_test
