// Lookup against a search through the whole text, along random texts that grow and are cut.
#include "spec/lookup.h"

#include "check.h"

#include <algorithm>
#include <random>
#include <string_view>

namespace {

using pds::lookup;
using pds::lookup_match;

std::vector<int32_t> ids_of(std::string_view text) {
    return { text.begin(), text.end() };
}

lookup lookup_in(std::string_view text, int32_t n_match) {
    lookup index(n_match);
    for (const int32_t id : ids_of(text)) {
        index.append(id);
    }
    return index;
}

// The next n tokens as the lookup would copy them.
std::string copied(const lookup & index, int64_t n) {
    const lookup_match match = index.find();
    std::string        text;
    for (int64_t i = 0; match.length > 0 && i < n; i++) {
        text.push_back(static_cast<char>(index.following(match, i)));
    }
    return text;
}

// What find() promises, by trying every place.
lookup_match find_by_search(std::span<const int32_t> text, int32_t n_match) {
    lookup_match best;
    int32_t      n_compared = 0;
    const auto   size       = static_cast<int64_t>(text.size());
    for (int64_t end = size - 1; end > 0 && n_compared < pds::most_compared_earlier; end--) {
        int32_t length = 0;
        while (length < std::min<int64_t>(end, pds::longest_compared_end) &&
               text[static_cast<size_t>(end - 1 - length)] == text[static_cast<size_t>(size - 1 - length)]) {
            length++;
        }
        n_compared += length >= n_match ? 1 : 0;
        if (length >= n_match && length > best.length) {
            best = { end, length };
        }
    }
    return best;
}

bool agrees_with_search(const lookup & index) {
    const lookup_match found  = index.find();
    const lookup_match wanted = find_by_search(index.text(), index.n_match());
    return found.end == wanted.end && found.length == wanted.length;
}

void test_what_followed_earlier_is_copied() {
    CHECK(copied(lookup_in("the cat sat. the ca", 4), 6) == "t sat.");
    CHECK(copied(lookup_in("the cat sat. the cow. the ", 4), 4) == "cow.");     // the latest of equally long ones
    CHECK(copied(lookup_in("a cat sat. the cat ran. a cat ", 4), 4) == "sat."); // a longer one before a later one
    CHECK(copied(lookup_in("the cat sat. a ca", 4), 4).empty());
    CHECK(lookup_in("the cat sat. the ca", 4).find().length == 6);
}

void test_a_text_that_repeats_itself_goes_on() {
    CHECK(copied(lookup_in("abcabcab", 3), 10) == "cabcabcabc");
    CHECK(copied(lookup_in("xaaaa", 3), 5) == "aaaaa");
}

void test_short_texts_have_no_match() {
    CHECK(lookup(1).find().length == 0);
    for (const std::string_view text : { "a", "aa", "aaa" }) {
        CHECK(copied(lookup_in(text, 3), 4).empty());
    }
    CHECK(copied(lookup_in("aaaa", 3), 2) == "aa");
    CHECK(copied(lookup_in("aa", 1), 2) == "aa");
}

// Few different tokens: many and long matches, of which some are frequent. Many: hardly any.
void test_random_texts_agree_with_a_search() {
    std::mt19937 random(1);
    for (const int32_t n_vocab : { 1, 2, 3, 20, 1000 }) {
        for (const int32_t n_match : { 1, 2, 5, 64 }) {
            lookup                                 index(n_match);
            std::uniform_int_distribution<int32_t> token(0, n_vocab - 1);
            std::uniform_int_distribution<int32_t> action(0, 9);
            bool                                   agrees = true;
            for (int i = 0; i < 2500; i++) {
                const auto size = static_cast<int64_t>(index.text().size());
                const int  what = action(random);
                if (what == 0) {
                    index.cut(std::max<int64_t>(0, size - token(random) % 30));
                } else if (what < 3 && size > 0) { // a piece of the text once more
                    std::uniform_int_distribution<int64_t> place(0, size - 1);
                    const int64_t                          begin = place(random);
                    for (int64_t k = begin; k < std::min<int64_t>(begin + 90, size) && size < 4000; k++) {
                        index.append(index.text()[static_cast<size_t>(k)]);
                    }
                } else {
                    index.append(token(random));
                }
                agrees = agrees && (i % 5 != 0 || agrees_with_search(index));
            }
            CHECK(agrees);
            CHECK(index.text().size() > 1024); // the chains were made anew on the way
        }
    }
}

void test_a_cut_leaves_what_was_there_before() {
    lookup       index = lookup_in("the cat sat. the ca", 4);
    const auto   size  = static_cast<int64_t>(index.text().size());
    lookup_match match = index.find();
    for (int32_t i = 0; i < 3000; i++) {
        index.append(i % 7);
    }
    index.cut(size);
    CHECK(index.find().end == match.end && index.find().length == match.length);
    index.clear();
    CHECK(index.text().empty() && index.find().length == 0);
    for (const int32_t id : ids_of("abcabc")) {
        index.append(id);
    }
    CHECK(agrees_with_search(index));
}

} // namespace

int main() {
    test_what_followed_earlier_is_copied();
    test_a_text_that_repeats_itself_goes_on();
    test_short_texts_have_no_match();
    test_random_texts_agree_with_a_search();
    test_a_cut_leaves_what_was_there_before();
    return pds_test::check_result();
}
