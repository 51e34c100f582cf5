// Which tokens may follow an answer: the caller's rule, such as a grammar, asked once per place of the text.
#pragma once

#include "pydspark.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pds {

// One bit per id, the lowest id in the lowest bit of the first word, none for ids behind the last word; no words at
// all: every id is allowed.
using token_mask = std::span<const uint32_t>;

inline bool allows(token_mask mask, int32_t id) {
    const auto at = static_cast<size_t>(id);
    return mask.empty() || (at / 32 < mask.size() && ((mask[at / 32] >> (at % 32)) & 1) != 0);
}

class token_masks {
  public:
    // A request begins, without tokens yet. fn: null = no rule. Ids are 0 .. n_rows - 1.
    void start(pds_mask_fn fn, void * user, int32_t n_rows);

    // What may follow the answer and a drafted path behind it. Holds until the answer grows. Throws PDS_ERR_CANCELLED
    // when the caller does not say.
    token_mask after(std::span<const int32_t> path);

    // The answer grows by a token.
    void commit(int32_t id);

  private:
    struct known_mask {
        std::vector<uint32_t> words;
        bool                  is_known = false;
    };

    void forget_behind(size_t n_path);

    pds_mask_fn             fn_       = nullptr;
    void *                  user_     = nullptr;
    size_t                  n_words_  = 0;
    size_t                  n_answer_ = 0;
    std::vector<int32_t>    text_;  // the answer, and the longest of the paths that were asked for
    std::vector<known_mask> masks_; // by length of a path
};

} // namespace pds
