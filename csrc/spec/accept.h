// Acceptance: which drafted tokens stand, and which token follows them, so that the text has exactly the target's
// distribution. Pure functions of probabilities and uniforms.
#pragma once

#include "spec/truncation.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pds {

// A drafted token and what it was drawn from; an empty q means that it was chosen for certain.
struct proposal {
    int32_t                    id;
    std::span<const candidate> q;
};

// Uniforms in (0, 1), independent of each other and of what the drafts were drawn with.
struct accept_draws {
    std::function<double(int32_t)> acceptance; // of draft i
    std::function<double(int32_t)> residual;   // for the token that replaces draft i
    double                         next = 0;   // for the token behind the last draft
};

struct verdict {
    int32_t n_accepted;
    int32_t next; // the target's own token behind the accepted ones
};

// What plain decoding would draw from at each row. Row i may be asked for only after drafts 0 .. i - 1 were announced
// by accept, in order: penalties depend on them.
class target_rows {
  public:
    target_rows()                                = default;
    target_rows(const target_rows &)             = delete;
    target_rows & operator=(const target_rows &) = delete;
    virtual ~target_rows()                       = default;

    virtual const std::vector<candidate> & row(int32_t i)     = 0; // valid until the next call
    virtual void                           accept(int32_t id) = 0;
};

// Token by token: draft i stands with probability min(1, p_i / q_i), otherwise max(p_i - q_i, 0) gives the next token.
// Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding" (2023), algorithm 1.
verdict accept_by_token(std::span<const proposal> drafts, target_rows & rows, const accept_draws & draws);

// The whole block at once: the longest prefix whose running ratio allows it. Accepts at least as many.
// Sun et al., "Block verification accelerates speculative decoding" (2024), algorithm 2.
verdict accept_by_block(std::span<const proposal> drafts, target_rows & rows, const accept_draws & draws);

} // namespace pds
