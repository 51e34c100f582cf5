// Finds where the end of a text occurred earlier in it, so that what followed there can be proposed once more. A pure
// function of the text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pds {

constexpr int32_t most_copied_tokens    = 16; // tokens that a round may copy
constexpr int32_t longest_compared_end  = 64; // longer ends that agree count as equally long
constexpr int32_t most_compared_earlier = 32; // earlier occurrences that are compared, the latest ones

struct lookup_match {
    int64_t end    = 0; // tokens up to the end of the earlier occurrence: token `end` is what followed it
    int32_t length = 0; // tokens that agree; 0 = there is no such occurrence
};

class lookup {
  public:
    // n_match: tokens that must agree at least, in 1 .. longest_compared_end
    explicit lookup(int32_t n_match) : n_match_(n_match) {}

    int32_t                  n_match() const { return n_match_; }
    std::span<const int32_t> text() const { return text_; }

    void clear();
    void append(int32_t id);
    // Keeps the first n tokens.
    void cut(int64_t n);

    // The earlier occurrence of the longest possible end of the text; of equally long ones the latest.
    lookup_match find() const;
    // Token i behind the end of the text if it goes on as it did at the match. An occurrence that reaches into the end
    // itself is a text that repeats itself, and goes on doing so.
    int32_t following(const lookup_match & match, int64_t i) const;

  private:
    int32_t & head_of(int64_t last);
    void      grow();
    int32_t   agreeing(int64_t one, int64_t other) const;

    int32_t              n_match_;
    std::vector<int32_t> text_;
    // Chains of the places that the same n_match tokens (or other ones with the same hash) end at, latest first.
    std::vector<int32_t> heads_;  // by hash: last token of the latest such place, or -1; a power of two of them
    std::vector<int32_t> before_; // by last token: that of the place before, or -1
};

} // namespace pds
