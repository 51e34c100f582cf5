// Drafting: one pass over a block gives tokens, the distributions they were drawn from, and how far to trust them.
#pragma once

#include "spec/draft-sampler.h"
#include "spec/round-draws.h"
#include "spec/target-sequence.h"
#include "spec/text-rows.h"

#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace pds {

class draft_block : private row_drawer {
  public:
    draft_block(const draft_model & model, target_sequence & sequence);

    // Adds graphs as they will be. Before the sequence's allocate() only.
    void report(pds_memory_report & out);

    // The settings of a request. Penalties stay out of the draft: any distribution is legal as long as it is known.
    // masks: what may follow; they must live as long as the request.
    void start(draft_rule rule, const sampling_params & params, uint64_t seed, token_masks & masks);

    // Proposes up to n tokens after the anchor, the token at position n_past of the sequence: fewer where the request
    // bans or masks all that could be drafted. Valid until the next call.
    std::span<const drafted_token> propose(int32_t anchor, int32_t n, progress & progress);
    // The same, copying named tensors of the graph.
    std::span<const drafted_token> inspect(int32_t anchor, int32_t n, const std::vector<tensor_tap> & taps,
                                           progress & progress);

    int32_t n_slots() const { return model_.hparams.n_slots(); }

  private:
    struct prepared {
        block_graph  block;
        graph_runner runner;
    };

    int32_t draw(std::span<const float> logits, int32_t slot) override;

    const std::vector<candidate> & distribution(std::span<const float> logits, int32_t slot);
    void                           choose(std::span<const float> base, int32_t slot, std::span<int32_t> rows,
                                          std::span<int32_t> table_rows) override;

    block_graph build(int32_t n_kv, int32_t n_chain, std::set<std::string> taps);
    prepared &  prepared_for(int32_t n_kv, int32_t n_chain);
    prepared    prepare(int32_t n_kv, int32_t n_chain, std::set<std::string> taps);
    int32_t     visible_rows() const;
    void        read_text(int32_t anchor);
    int32_t     id_of(int32_t row) const;
    void        set_inputs(const prepared & p, int32_t anchor);

    std::span<const drafted_token> run(prepared & p, int32_t anchor, progress & progress);

    const draft_model &               model_;
    target_sequence &                 sequence_;
    std::list<prepared>               prepared_;  // most recently used first
    std::vector<int32_t>              row_ids_;   // target id of each row of the draft head
    std::optional<text_rows>          text_rows_; // rows behind these, with a short list
    draft_rule                        rule_ = draft_rule::best;
    uint64_t                          seed_ = 0;
    std::optional<draft_sampler>      sampler_;
    std::vector<drafted_token>        drafted_;
    size_t                            n_drafted_ = 0; // of these, drafts
    token_masks *                     masks_     = nullptr;
    std::vector<int32_t>              path_;       // tokens that were drawn in this block
    std::vector<float>                masked_;     // the row at hand without what may not follow them
    std::vector<std::vector<int32_t>> candidates_; // rows that each slot may draw
    std::vector<uint16_t>             mask_;
};

} // namespace pds
