#include "spec/lookup.h"

#include <algorithm>

namespace pds {

namespace {

constexpr int32_t nowhere     = -1;
constexpr size_t  least_heads = 1024;

} // namespace

void lookup::clear() {
    text_.clear();
    before_.clear();
    std::fill(heads_.begin(), heads_.end(), nowhere);
}

// The chain of the n_match tokens that end with token `last`.
int32_t & lookup::head_of(int64_t last) {
    constexpr uint64_t odd  = 0x9E3779B97F4A7C15; // golden ratio: spreads the bits of a token over the hash
    uint64_t           hash = 0;
    for (int64_t i = last - n_match_ + 1; i <= last; i++) {
        hash = (hash ^ static_cast<uint32_t>(text_[static_cast<size_t>(i)])) * odd;
        hash ^= hash >> 32;
    }
    return heads_[hash & (heads_.size() - 1)];
}

// Chains stay short as long as there are at least as many of them as tokens.
void lookup::grow() {
    heads_.assign(std::max(least_heads, heads_.size() * 2), nowhere);
    for (int64_t last = n_match_ - 1; last < static_cast<int64_t>(before_.size()); last++) {
        int32_t & head                     = head_of(last);
        before_[static_cast<size_t>(last)] = head;
        head                               = static_cast<int32_t>(last);
    }
}

void lookup::append(int32_t id) {
    if (text_.size() == heads_.size()) {
        grow();
    }
    const auto last = static_cast<int64_t>(text_.size());
    text_.push_back(id);
    before_.push_back(nowhere);
    if (last + 1 >= n_match_) {
        int32_t & head = head_of(last);
        before_.back() = head;
        head           = static_cast<int32_t>(last);
    }
}

void lookup::cut(int64_t n) {
    while (static_cast<int64_t>(text_.size()) > n) {
        const auto last = static_cast<int64_t>(text_.size()) - 1;
        if (last + 1 >= n_match_) {
            head_of(last) = before_.back();
        }
        text_.pop_back();
        before_.pop_back();
    }
}

// Tokens that agree, counted backwards from two places, the latter one behind.
int32_t lookup::agreeing(int64_t one, int64_t other) const {
    const int64_t most = std::min<int64_t>(one + 1, longest_compared_end);
    int32_t       n    = 0;
    while (n < most && text_[static_cast<size_t>(one - n)] == text_[static_cast<size_t>(other - n)]) {
        n++;
    }
    return n;
}

lookup_match lookup::find() const {
    lookup_match best;
    if (text_.empty()) {
        return best;
    }
    const auto last       = static_cast<int64_t>(text_.size()) - 1;
    int32_t    n_compared = 0;
    for (int32_t at = before_.back(); at != nowhere; at = before_[static_cast<size_t>(at)]) {
        const int32_t length = agreeing(at, last);
        if (length < n_match_) {
            continue; // other tokens with the same hash
        }
        if (length > best.length) {
            best = { at + 1, length };
        }
        n_compared++;
        if (n_compared == most_compared_earlier || best.length == longest_compared_end) {
            break;
        }
    }
    return best;
}

int32_t lookup::following(const lookup_match & match, int64_t i) const {
    const int64_t period = static_cast<int64_t>(text_.size()) - match.end;
    return text_[static_cast<size_t>(match.end + i % period)];
}

} // namespace pds
