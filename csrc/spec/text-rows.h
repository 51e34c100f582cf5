// Rows of the draft head for tokens that the text at hand has used and the short list lacks: names and other rare words
// come again in the text that they came in. They depend on nothing but the text, so the same text drafts the same.
#pragma once

#include "arch/draft-model.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pds {

class text_rows {
  public:
    // model: has a short list. Allocates.
    explicit text_rows(const draft_model & model);

    void report(pds_memory_report & out) const;

    // Another text begins.
    void start();
    // Takes in a token of the text, the next one.
    void see(int32_t id);
    // Tokens taken in since start().
    int64_t n_seen() const { return n_seen_; }

    // Target id of each row, -1 for those without token.
    std::span<const int32_t> ids() const { return ids_; }
    const spare_rows *       tensors() const { return &tensors_; }

  private:
    const draft_model &        model_;
    std::vector<bool>          has_row_; // by target id
    std::vector<int32_t>       ids_;
    copied_rows                output_;
    std::optional<copied_rows> markov_w2_;
    ggml_context_ptr           context_;
    ggml_backend_buffer_ptr    buffer_;
    spare_rows                 tensors_;
    int64_t                    n_seen_ = 0;
    size_t                     next_   = 0; // row that the next token gets: the oldest one's
};

} // namespace pds
