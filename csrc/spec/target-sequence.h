// One token sequence on a target: appends tokens, gives logits, remembers and can go back. With a drafter it also keeps
// the drafter's cache in step: the features of every appended token are injected by the target's own graph, so they
// never leave the device.
#pragma once

#include "arch/draft-model.h"
#include "arch/target-model.h"
#include "graph/graph-runner.h"
#include "graph/stage-times.h"
#include "memory/prompt-cache.h"

#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pds {

// A named tensor of a graph to be copied out.
struct tensor_tap {
    std::string name;
    float *     out;
    size_t      n; // floats
};

std::set<std::string> tap_names(const std::vector<tensor_tap> & taps);
// Throws error(PDS_ERR_ARGUMENT) for a tensor that the graph does not have, or of another size.
void check_taps(const graph_context & g, const std::vector<tensor_tap> & taps);
void read_taps(const graph_context & g, const std::vector<tensor_tap> & taps);

// Checks the values and fills in what 0 stands for.
pds_session_params checked_session_params(const pds_session_params & params, const target_hparams & hp);

// Graphs over at least this many rows count as prompt batches.
constexpr int32_t large_batch = 64;

class target_sequence {
  public:
    // draft: or null. Nothing is allocated before allocate().
    target_sequence(const target_model & model, const draft_model * draft, const pds_session_params & params);

    // Adds caches and graphs as they will be, and what is free. Before allocate() only.
    void report(pds_memory_report & out);
    // Refuses, with the numbers of its report, what does not fit; then allocates.
    void allocate(const pds_memory_report & wanted);

    // Tokens whose state is held.
    std::span<const int32_t> tokens() const { return held_; }
    int64_t                  n_past() const { return static_cast<int64_t>(held_.size()); }
    int32_t                  n_ctx() const { return params_.n_ctx; }

    // Keeps at most the first n tokens.
    void cut(int64_t n);
    // Keeps, or brings back from a checkpoint, as much of the beginning of a prompt as possible, but not all of it.
    void resume(std::span<const int32_t> prompt);
    // True if what is held cannot be cut everywhere, so that checkpoints help.
    bool needs_checkpoints() const { return !recurrent_.empty() && prompt_cache_.max_bytes() > 0; }
    // Keeps a copy of the present state for later prompts that begin with the same tokens.
    void checkpoint();
    void clear();

    // Appends up to n_ubatch tokens as one batch. Returns the logits of its last n_outputs rows,
    // [n_vocab_rows] floats each, valid until the next call.
    const float * append(std::span<const int32_t> tokens, int32_t n_outputs, progress & progress);
    // The same with all rows as outputs, copying named tensors of the graph.
    void inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress);

    // Where the time of a batch goes, with all rows as outputs, once per value. The batch is not appended.
    void measure_stages(std::span<const int32_t> tokens, std::span<stage_times> times);

    // Milliseconds spent inside graphs so far.
    double graph_ms() const { return graph_ms_total_; }
    // The part of it for taking back rejected tokens, which is put off until the next batch.
    double rollback_ms() const { return rollback_ms_total_; }

    int32_t          batch_rows() const { return params_.n_ubatch; }
    int32_t          n_threads() const { return params_.n_threads; }
    backends &       running() { return running_; }
    const kv_cache & draft_cache() const { return *draft_cache_; }
    // How a drafter's block attends.
    attention_form block_attention() const;

  private:
    build_options                  options_for(const graph_shape & shape) const;
    std::unique_ptr<graph_context> build(const graph_shape & shape, std::set<std::string> taps = {}) const;
    attention_form                 attention_of(const graph_shape & shape) const;
    graph_shape                    shape_for(size_t n_tokens, int32_t n_outputs) const;
    graph_runner &                 runner_for(const graph_shape & shape);
    graph_runner &                 replay_runner_for(int32_t n_tokens);
    void                           replay();
    void                           load_rows(const cached_rows & rows, int64_t n_held);
    void                           set_inputs(const graph_context & g, std::span<const int32_t> tokens);
    void                           set_mask(const graph_context & g);
    void                           run(graph_runner & runner, std::span<const int32_t> tokens, progress & progress);

    const target_model &      model_;
    const draft_model *       draft_;
    pds_session_params        params_;
    kv_cache                  cache_;
    recurrent_state           recurrent_;
    prompt_cache              prompt_cache_;
    std::unique_ptr<kv_cache> draft_cache_; // with a drafter: row = position, and room for a block behind the context
    backends                  running_;
    std::vector<int32_t>      held_;
    std::vector<uint16_t>     mask_row_;
    std::list<graph_runner>   runners_;        // most recently used first
    std::list<graph_runner>   replay_runners_; // one per number of tokens
    double                    graph_ms_total_    = 0;
    double                    rollback_ms_total_ = 0;
};

} // namespace pds
