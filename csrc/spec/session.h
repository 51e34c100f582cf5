// One conversation partner for the front ends: takes a whole prompt, gives tokens round by round.
#pragma once

#include "spec/sampler.h"
#include "spec/target-sequence.h"

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace pds {

class session {
  public:
    session(std::shared_ptr<const target_model> model, const pds_session_params & params);

    // Evaluates the prompt, sharing the prefix it has in common with what is held. Afterwards step() gives tokens.
    void start(const pds_request & request, progress & progress);

    // One round: commits at least one token, or says why there is none.
    pds_step step(progress & progress);

    void reset();
    // From any thread; holds for the running call only.
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    // A progress that also sees cancel().
    progress make_progress(pds_progress_fn fn, void * user);

    void inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress);
    // Milliseconds of a batch of n_tokens with logits for every row, once per value; nothing of it is kept.
    void measure(int32_t n_tokens, std::span<double> ms, progress & progress);

    pds_stats         stats() const { return stats_; }
    pds_memory_report memory() const { return memory_; }
    int64_t           n_past() const { return sequence_.n_past(); }

  private:
    void check_prompt(const pds_request & request) const;
    void prefill(std::span<const int32_t> prompt, progress & progress);
    void end_request();
    void report_logprobs(pds_step & out, int32_t index) const;

    std::shared_ptr<const target_model> model_;
    target_sequence                     sequence_;
    std::atomic<bool>                   cancelled_ = false;
    pds_memory_report                   memory_    = {};

    // of the request at hand
    std::optional<sampler> sampler_;
    std::vector<int32_t>   stop_ids_;
    int64_t                n_predict_    = 0; // tokens that may still be emitted; negative = no limit
    int32_t                logprobs_     = 0;
    int32_t                top_logprobs_ = 0;
    const float *          logits_       = nullptr; // the row that the next token is drawn from, when it is at hand
    std::optional<int32_t> pending_;                // the last emitted token, not evaluated yet
    int32_t                finish_ = PDS_FINISH_LENGTH;
    pds_stats              stats_  = {};
};

} // namespace pds
