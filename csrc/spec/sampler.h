// What plain decoding draws from: the sampler settings of one request and its penalty window.
//
// Order, that of llama.cpp's default chain: the mask of what may follow, logit bias and bans, then penalties, then the
// truncation of truncation.h.
#pragma once

#include "spec/token-masks.h"
#include "spec/truncation.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace pds {

struct sampling_params {
    float   temperature       = 1.0f;
    float   top_p             = 1.0f;
    float   min_p             = 0.0f;
    float   repeat_penalty    = 1.0f; // > 0: divides positive logits of seen tokens, multiplies the others
    float   presence_penalty  = 0.0f; // taken off the logits of seen tokens
    float   frequency_penalty = 0.0f; // taken off once per occurrence
    int32_t top_k             = 0;
    int32_t repeat_last_n     = 64; // tokens that the penalties look back on; 0 = none, -1 = all

    std::vector<std::pair<int32_t, float>> bias = {}; // (id, addend); -inf bans; addends of one id add up
};

class sampler {
  public:
    // banned: ids that are never emitted, whatever their logits (padding rows, the drafter's mask token).
    // Throws PDS_ERR_ARGUMENT for values that are not finite (but a bias of -inf), for a repeat_penalty that is not
    // positive, a repeat_last_n below -1, and ids outside [0, n_vocab_rows).
    sampler(const sampling_params & params, int32_t n_vocab_rows, std::span<const int32_t> banned);

    // Pushes a token of the text, prompt tokens included, into the penalty window.
    void accept(int32_t id);

    // The distribution of the next token: see truncator::apply for its order and lifetime. logits: [n_vocab_rows].
    // allowed: of these rows; those behind its last word are not allowed. Throws PDS_ERR_ARGUMENT when mask, bias and
    // bans leave no token, PDS_ERR_INTERNAL when the model's own row has none or holds NaN or +inf. Rows of banned ids
    // are not looked at.
    const std::vector<candidate> & distribution(std::span<const float> logits, token_mask allowed = {});

    // Inverse of the cumulative distribution at u in (0, 1). The p need not add up to exactly 1.
    static int32_t draw(std::span<const candidate> candidates, double u);

    // The Gumbel-max draw: the same noise belongs to a token of a position whatever the distribution, so that two
    // similar distributions mostly give the same token. Ties by lower id.
    static int32_t draw_coupled(std::span<const candidate> candidates, uint64_t seed, uint64_t position);

  private:
    // What changes the logit of one token.
    struct token_rule {
        int32_t id;
        float   bias;
        int32_t count; // occurrences in the penalty window
    };

    std::vector<token_rule>::iterator find_or_add_rule(int32_t id);

    void                   add_bias(int32_t id, float value);
    void                   forget_oldest();
    std::span<const float> masked(std::span<const float> logits, token_mask allowed);
    float                  changed_logit(const token_rule & rule, float logit) const;

    sampling_params           params_;
    int32_t                   n_vocab_rows_;
    bool                      penalties_on_;
    truncator                 truncator_;
    int64_t                   n_accepted_ = 0;
    std::vector<int32_t>      window_;  // ring of the last repeat_last_n tokens; not used when that is -1
    std::vector<token_rule>   rules_;   // ids ascending
    std::vector<scored_token> patches_; // of the row at hand
    std::vector<float>        masked_;  // the row without what is not allowed
};

struct token_logprob {
    int32_t id;
    float   logprob; // natural logarithm
};

// Log-softmax of a raw row for one id, and for its k best by descending value, ties by lower id. Entries at -inf are
// never among the best, so top can be shorter. To leave out padding rows pass the row's first n_vocab entries. Throws
// PDS_ERR_ARGUMENT for an id outside the row or a negative k, PDS_ERR_INTERNAL as sampler::distribution does.
void row_logprobs(std::span<const float> logits, int32_t id, int k, float & own, std::vector<token_logprob> & top);

} // namespace pds
