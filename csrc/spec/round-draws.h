// The random choices of a round and the uniforms that decide them. Pure functions, so that what they add up to, the
// distribution of a text, can be checked without a model.
#pragma once

#include "spec/accept.h"
#include "spec/sampler.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pds {

// Names the uniforms of a round. Slot i of a round gives the token at position first + i of the text, and a uniform
// belongs to (seed, purpose, position, slot). The slot tells apart the draws of a position that is drafted again after
// a rejection in front of it: accept_by_block looks at later slots before it rejects an earlier one, so what was drawn
// for them is no longer random. Position and slot together give the round's first position, and no two rounds share it.
struct round_keys {
    uint64_t seed;
    uint64_t first;
};

// How a drafted token is chosen from its row.
enum class draft_rule {
    best,    // the likeliest token
    drawn,   // at random, so that the ratio rule accepts as often as can be
    coupled, // with the noise that the target will use at the same position
};

struct drafted_token {
    int32_t                id         = 0;
    float                  confidence = 1; // probability of being accepted if all before it are; 1 without a head
    std::vector<candidate> q;              // what it was drawn from, ids of the target; empty: this token for certain
};

// The id of the token for a slot. candidates: at least one, the likeliest first when the rule is best.
int32_t draw_draft(draft_rule rule, std::span<const candidate> candidates, const round_keys & keys, int32_t slot);

// The drafts to verify: up to the first one that is trusted less than conf_min, and at most n_max. The confidence of a
// token is known before the token is drawn, so nothing computed from a token decides whether that token is verified;
// acceptance is exact only because of that.
std::span<const drafted_token> trusted_drafts(std::span<const drafted_token> drafts, int64_t n_max, float conf_min);

// How drafts are judged.
enum class accept_rule {
    by_block, // the ratio rule, whole blocks at once
    by_token, // the ratio rule, token by token
    coupled,  // as long as they are what the target draws with its own noise: the text does not depend on them
};

// The drafts that stand and the token behind them. Without drafts: one token, as plain decoding draws it.
verdict accept_drafts(accept_rule rule, std::span<const drafted_token> drafts, target_rows & rows,
                      const round_keys & keys);

// What plain decoding would draw from at each verified row.
class sampled_rows : public target_rows {
  public:
    using row_of = std::function<std::span<const float>(int32_t)>;

    // sampler: its state at row 0; it follows the accepted drafts. logits: of a row, [n_vocab_rows].
    sampled_rows(sampler & sampler, row_of logits) : sampler_(sampler), logits_(std::move(logits)) {}

    const std::vector<candidate> & row(int32_t i) override { return sampler_.distribution(logits_(i)); }
    void                           accept(int32_t id) override { sampler_.accept(id); }

  private:
    sampler & sampler_;
    row_of    logits_;
};

// Rows that note how probable the acceptance of each draft is while it is judged.
class noted_rows : public target_rows {
  public:
    noted_rows(target_rows & rows, std::span<const drafted_token> drafts) : rows_(rows), drafts_(drafts) {}

    const std::vector<candidate> & row(int32_t i) override;
    void                           accept(int32_t id) override { rows_.accept(id); }

    // [rows looked at] the sum of min(p, q) over tokens: the probability that a draft from q is accepted against p.
    std::span<const double> labels() const { return labels_; }

  private:
    target_rows &                  rows_;
    std::span<const drafted_token> drafts_;
    std::vector<double>            labels_;
};

} // namespace pds
