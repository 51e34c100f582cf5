// UTF-8 checks for text that comes from files and paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pds {

// Bytes of the UTF-8 sequence that text starts with (1..4), or 0 if there is no valid one.
inline size_t utf8_sequence_size(std::string_view text) {
    const auto    byte  = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{ 0 }; };
    const auto    tail  = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
    const uint8_t first = byte(0);
    if (!text.empty() && first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF && tail(1)) {
        return 2;
    }
    if (first >= 0xE0 && first <= 0xEF && tail(1) && tail(2)) {
        const bool overlong  = first == 0xE0 && byte(1) < 0xA0;
        const bool surrogate = first == 0xED && byte(1) > 0x9F;
        return overlong || surrogate ? 0 : 3;
    }
    if (first >= 0xF0 && first <= 0xF4 && tail(1) && tail(2) && tail(3)) {
        const bool overlong  = first == 0xF0 && byte(1) < 0x90;
        const bool too_large = first == 0xF4 && byte(1) > 0x8F;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

inline bool utf8_valid(std::string_view text) {
    while (!text.empty()) {
        const size_t size = utf8_sequence_size(text);
        if (size == 0) {
            return false;
        }
        text.remove_prefix(size);
    }
    return true;
}

} // namespace pds
