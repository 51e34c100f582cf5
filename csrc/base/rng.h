// Counter-based uniforms: a draw is a function of (seed, purpose, position, lane) and of nothing else, so a text does
// not depend on how many tokens were drafted, cached or recomputed on the way to it.
#pragma once

#include <array>
#include <cstdint>

namespace pds {

// What a uniform decides. Each purpose has its own stream, because sharing one draw between two decisions biases the
// output. The numbers are part of what a seed means: never renumber them.
enum class purpose : uint32_t {
    target_draw = 0,
    draft_draw  = 1,
    acceptance  = 2,
    residual    = 3,
    gumbel      = 4, // one per token: lane = token id
};

// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3:
// ten rounds of a Feistel-like network on two 32x32 -> 64 bit products.
inline std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    constexpr int      n_rounds     = 10;
    constexpr uint64_t multiplier_0 = 0xD2511F53;
    constexpr uint64_t multiplier_1 = 0xCD9E8D57;
    constexpr uint32_t key_step_0   = 0x9E3779B9; // golden ratio
    constexpr uint32_t key_step_1   = 0xBB67AE85; // sqrt(3) - 1
    for (int round = 0; round < n_rounds; ++round) {
        const uint64_t product_0 = multiplier_0 * counter[0];
        const uint64_t product_1 = multiplier_1 * counter[2];
        counter = { static_cast<uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product_1),
                    static_cast<uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product_0) };
        key[0] += key_step_0;
        key[1] += key_step_1;
    }
    return counter;
}

// Strictly inside (0, 1): 52 random bits pick a cell of width 2^-52 and its midpoint, an odd multiple of 2^-53, is the
// value. That is exact in a double; a 53rd random bit would let the largest value round to 1.
inline double uniform(uint64_t seed, purpose use, uint64_t position, uint32_t lane = 0) {
    const std::array<uint32_t, 4> words = philox4x32_10(
        { static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), static_cast<uint32_t>(use), lane },
        { static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) });
    const uint64_t cell = (static_cast<uint64_t>(words[0]) << 20) | (words[1] >> 12);
    return (static_cast<double>(cell) + 0.5) * 0x1p-52;
}

} // namespace pds
