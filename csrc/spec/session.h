// One conversation partner for the front ends: takes a whole prompt, gives tokens round by round. The only file that
// runs the stages of a round in order.
#pragma once

#include "spec/depth-chooser.h"
#include "spec/draft-block.h"
#include "spec/lookup-drafter.h"
#include "spec/round-draws.h"
#include "spec/synthetic.h"
#include "spec/target-sequence.h"

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace pds {

class session {
  public:
    // draft: or null for plain decoding.
    session(std::shared_ptr<const target_model> model, std::shared_ptr<const draft_model> draft,
            const pds_session_params & params);

    // Evaluates the prompt, sharing the prefix it has in common with what is held. Afterwards step() gives tokens.
    void start(const pds_request & request, progress & progress);

    // One round: commits at least one token, or says why there is none.
    pds_step step(progress & progress);

    // Keeps at most the first n tokens and ends the request.
    void cut(int64_t n);
    void reset();
    // From any thread; holds for the running call only.
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    // A progress that also sees cancel().
    progress make_progress(pds_progress_fn fn, void * user);

    void inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress);
    // Drafts n tokens after an anchor, the likeliest ones, copying named tensors; nothing of it is kept.
    std::vector<int32_t> inspect_draft(int32_t anchor, int32_t n, const std::vector<tensor_tap> & taps,
                                       progress & progress);
    // Milliseconds of a batch of n_tokens with logits for every row, once per value; nothing of it is kept.
    void measure(int32_t n_tokens, std::span<double> ms, progress & progress);

    // The same by kind of work, in a graph that is run in pieces.
    void measure_stages(int32_t n_tokens, std::span<stage_times> times);

    pds_stats         stats() const { return stats_; }
    pds_learnt        learnt() const { return chooser_.learnt(); }
    void              set_learnt(const pds_learnt & learnt, bool frozen) { chooser_.set_learnt(learnt, frozen); }
    pds_memory_report memory() const { return memory_; }
    // See pds_session_set_synthetic.
    void    set_synthetic(std::span<const float> by_slot, uint64_t seed);
    int64_t n_past() const { return sequence_.n_past(); }

  private:
    // Milliseconds of a round.
    struct round_times {
        double draft;
        double verify;   // with judging
        double rollback; // of verify, for what the round before had taken back
    };

    void                           check_prompt(const pds_request & request) const;
    void                           check_measured(int32_t n_tokens) const;
    void                           check_ids(std::span<const int32_t> tokens) const;
    depth_settings                 read_depth_settings(const pds_request & request) const;
    void                           measure_costs(const depth_settings & settings, progress & progress);
    void                           prefill(std::span<const int32_t> prompt, progress & progress);
    int64_t                        next_boundary(int64_t n_prompt) const;
    int64_t                        most_drafts(int32_t wanted) const;
    std::span<const drafted_token> draft(progress & progress);
    std::span<const drafted_token> draft_by_block(int64_t n_max, int64_t n_lookup, progress & progress);
    void                           verify(std::span<const drafted_token> drafts, progress & progress);
    verdict                        accept(std::span<const drafted_token> drafts);
    void learn(std::span<const drafted_token> drafts, int32_t n_accepted, int32_t n_tokens, const round_times & times);
    void commit(std::span<const drafted_token> drafts, const verdict & verdict, pds_step & out);
    void count(std::span<const drafted_token> drafts, pds_step & out);
    void emit(int32_t id, int32_t row, pds_step & out);
    void report_logprobs(pds_step & out, int32_t index, int32_t row) const;
    void end_request();
    std::span<const float> logits_row(int32_t row) const;

    std::shared_ptr<const target_model> model_;
    std::shared_ptr<const draft_model>  draft_model_;
    target_sequence                     sequence_;
    std::optional<draft_block>          block_;
    std::optional<lookup_drafter>       lookup_;
    depth_chooser                       chooser_;
    std::optional<synthetic_acceptance> synthetic_;
    std::atomic<bool>                   cancelled_ = false;
    pds_memory_report                   memory_    = {};

    // of the request at hand
    std::optional<sampler> sampler_;
    std::optional<sampler> ahead_; // the sampler's state along a drafted path
    token_masks            masks_;
    accept_rule            accept_rule_  = accept_rule::by_block;
    int32_t                n_draft_max_  = 0; // tokens of the drafter per round
    int32_t                n_lookup_max_ = 0; // tokens per round when some are copied
    depth_choice           choice_;           // of the round at hand
    std::vector<double>    labels_; // probability that each of its drafts is accepted, as far as it was judged
    uint64_t               seed_ = 0;
    std::vector<int32_t>   stop_ids_;
    std::vector<int64_t>   boundaries_;       // numbers of prompt tokens after which a checkpoint is made
    int64_t                n_predict_    = 0; // tokens that may be emitted; negative = no limit
    int32_t                logprobs_     = 0;
    int32_t                top_logprobs_ = 0;
    const float *          logits_       = nullptr; // rows that the next tokens are drawn from
    int64_t                base_         = 0;       // position of the token that the first of those rows follows
    std::optional<int32_t> pending_;                // the last emitted token, not evaluated yet
    int32_t                finish_ = PDS_FINISH_LENGTH;
    pds_stats              stats_  = {};
};

} // namespace pds
