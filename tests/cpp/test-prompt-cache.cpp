// Checkpoints of prompts: which one is found, and which are dropped when the room is used up.
#include "memory/prompt-cache.h"

#include "check.h"

#include <numeric>

namespace {

using pds::cached_rows;
using pds::checkpoint;
using pds::prompt_cache;

constexpr size_t state_bytes = 100;
constexpr size_t row_bytes   = 10; // of a token

std::vector<int32_t> tokens_of(int32_t first, int32_t n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

// A checkpoint after n tokens that start with `first`, behind another one of the same sequence or alone.
checkpoint checkpoint_of(int32_t first, int32_t n, const checkpoint * before = nullptr) {
    const int64_t begin = before == nullptr ? 0 : before->n_tokens();
    auto          rows  = std::make_shared<cached_rows>();
    rows->before        = before == nullptr ? nullptr : before->rows;
    rows->begin         = begin;
    rows->end           = n;
    rows->bytes.resize(static_cast<size_t>(n - begin) * row_bytes);
    return { tokens_of(first, n), std::vector<uint8_t>(state_bytes), rows };
}

size_t bytes_of(int32_t n, int32_t n_own) {
    return state_bytes + static_cast<size_t>(n) * sizeof(int32_t) + static_cast<size_t>(n_own) * row_bytes;
}

int64_t found(prompt_cache & cache, int32_t first, int32_t n, int64_t n_max) {
    const checkpoint * result = cache.find(tokens_of(first, n), n_max);
    return result == nullptr ? -1 : result->n_tokens();
}

void test_the_longest_beginning_is_found() {
    prompt_cache cache(1 << 20);
    CHECK(found(cache, 0, 10, 9) == -1);
    cache.add(checkpoint_of(0, 4));
    cache.add(checkpoint_of(0, 8));
    cache.add(checkpoint_of(100, 6));
    CHECK(found(cache, 0, 10, 9) == 8);
    CHECK(found(cache, 0, 10, 8) == 8);
    CHECK(found(cache, 0, 10, 7) == 4);
    CHECK(found(cache, 0, 7, 7) == 4);
    CHECK(found(cache, 0, 3, 3) == -1);
    CHECK(found(cache, 100, 7, 6) == 6);
    CHECK(found(cache, 101, 7, 6) == -1);
}

void test_rows_that_checkpoints_share_are_counted_once() {
    prompt_cache     cache(1 << 20);
    const checkpoint early = checkpoint_of(0, 4);
    const checkpoint late  = checkpoint_of(0, 9, &early);
    cache.add(early);
    CHECK(cache.n_bytes() == bytes_of(4, 4));
    cache.add(late);
    CHECK(cache.n_bytes() == bytes_of(4, 4) + bytes_of(9, 5));
    cache.add(late); // again
    CHECK(cache.size() == 2 && cache.n_bytes() == bytes_of(4, 4) + bytes_of(9, 5));
}

void test_the_least_recently_used_is_dropped() {
    prompt_cache cache(3 * bytes_of(5, 5));
    for (const int32_t first : { 0, 100, 200 }) {
        cache.add(checkpoint_of(first, 5));
    }
    CHECK(cache.size() == 3);
    CHECK(found(cache, 0, 6, 5) == 5); // now 100 is the oldest
    cache.add(checkpoint_of(300, 5));
    CHECK(cache.size() == 3 && cache.n_bytes() <= cache.max_bytes());
    CHECK(found(cache, 100, 6, 5) == -1);
    CHECK(found(cache, 0, 6, 5) == 5 && found(cache, 200, 6, 5) == 5 && found(cache, 300, 6, 5) == 5);
}

void test_rows_live_as_long_as_a_checkpoint_needs_them() {
    const checkpoint early = checkpoint_of(0, 4);
    prompt_cache     cache(bytes_of(9, 9));
    cache.add(early);
    cache.add(checkpoint_of(0, 9, &early)); // room for this one only, with the rows of the first
    CHECK(cache.size() == 1 && cache.n_bytes() == bytes_of(9, 9));
    CHECK(cache.find(tokens_of(0, 9), 9)->rows->before->end == 4);
}

void test_what_is_too_large_is_not_kept() {
    prompt_cache cache(bytes_of(5, 5));
    cache.add(checkpoint_of(0, 6));
    CHECK(cache.size() == 0 && cache.n_bytes() == 0);
    prompt_cache none(0);
    none.add(checkpoint_of(0, 1));
    CHECK(none.size() == 0);
}

} // namespace

int main() {
    test_the_longest_beginning_is_found();
    test_rows_that_checkpoints_share_are_counted_once();
    test_the_least_recently_used_is_dropped();
    test_rows_live_as_long_as_a_checkpoint_needs_them();
    test_what_is_too_large_is_not_kept();
    return pds_test::check_result();
}
