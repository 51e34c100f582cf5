// Passes over one row of logits: each reads the row once, sorts nothing and copies only blocks that hold a patched
// entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pds {

struct scored_token {
    int32_t id;
    float   logit;
};

// The order of every ranking: higher logit first, ties by lower id.
inline bool ranks_before(const scored_token & a, const scored_token & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// One row of logits with the few entries that bias, bans and penalties change.
struct logits_row {
    std::span<const float>        logits;        // [n_vocab_rows]
    std::span<const scored_token> patches  = {}; // ids ascending, each once; they replace the row's own values
    int64_t                       position = -1; // of the token that the row predicts, for messages; -1 = not known
};

// The k best entries, in no order: fewer when fewer are above -inf. Linear in the row for any order of its values.
// Throws PDS_ERR_INTERNAL when the row holds NaN or +inf.
void select_best(const logits_row & row, int32_t k, std::vector<scored_token> & best);

// All entries at or above the threshold, by ascending id. The row holds no NaN (see select_best).
void select_at_least(const logits_row & row, float threshold, std::vector<scored_token> & kept);

// Sum over the row of exp(logit - max), where max is the row's largest value and the row holds no NaN.
double sum_exp(const logits_row & row, float max);

// weights[id] = exp((logit - max) / temperature), and returns their sum. Same conditions as sum_exp; temperature > 0.
double exp_all(const logits_row & row, float max, float temperature, std::vector<float> & weights);

} // namespace pds
