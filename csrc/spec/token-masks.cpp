#include "spec/token-masks.h"

#include "base/error.h"

#include <algorithm>

namespace pds {

void token_masks::start(pds_mask_fn fn, void * user, int32_t n_rows) {
    fn_       = fn;
    user_     = user;
    n_words_  = (static_cast<size_t>(n_rows) + 31) / 32;
    n_answer_ = 0;
    text_.clear();
    text_.reserve(1); // the caller gets a pointer even to no tokens
    forget_behind(0);
}

void token_masks::forget_behind(size_t n_path) {
    for (size_t n = n_path; n < masks_.size(); n++) {
        masks_[n].is_known = false;
    }
}

token_mask token_masks::after(std::span<const int32_t> path) {
    if (fn_ == nullptr) {
        return {};
    }
    const auto known = std::span<const int32_t>(text_).subspan(n_answer_);
    const auto fork  = std::mismatch(known.begin(), known.end(), path.begin(), path.end()).first - known.begin();
    if (static_cast<size_t>(fork) < path.size()) {
        text_.resize(n_answer_ + static_cast<size_t>(fork));
        text_.insert(text_.end(), path.begin() + fork, path.end());
        forget_behind(static_cast<size_t>(fork) + 1);
    }
    masks_.resize(std::max(masks_.size(), path.size() + 1));
    known_mask & mask = masks_[path.size()];
    if (!mask.is_known) {
        mask.words.assign(n_words_, 0);
        const size_t  n_text = n_answer_ + path.size();
        const int32_t failed =
            fn_(user_, text_.data(), static_cast<int64_t>(n_text), mask.words.data(), static_cast<int64_t>(n_words_));
        PDS_REQUIRE(failed == 0, PDS_ERR_CANCELLED, "what may follow %zu tokens of the answer is not known", n_text);
        mask.is_known = true;
    }
    return mask.words;
}

void token_masks::commit(int32_t id) {
    text_.resize(n_answer_);
    text_.push_back(id);
    n_answer_++;
    forget_behind(0);
}

} // namespace pds
