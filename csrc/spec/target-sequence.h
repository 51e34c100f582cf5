// One token sequence on a target: appends tokens, gives logits, remembers and can go back.
#pragma once

#include "arch/target-model.h"
#include "graph/graph-runner.h"

#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pds {

// Checks the values and fills in what 0 stands for.
pds_session_params checked_session_params(const pds_session_params & params, const target_hparams & hp);

// A named tensor of a graph to be copied out.
struct tensor_tap {
    std::string name;
    float *     out;
    size_t      n; // floats
};

class target_sequence {
  public:
    // Nothing is allocated before allocate().
    target_sequence(const target_model & model, const pds_session_params & params);

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
    void clear();

    // Appends up to n_ubatch tokens as one batch. Returns the logits of its last n_outputs rows,
    // [n_vocab_rows] floats each, valid until the next call.
    const float * append(std::span<const int32_t> tokens, int32_t n_outputs, progress & progress);

    // The same with all rows as outputs, copying named tensors of the graph.
    void inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress);

    // Milliseconds spent inside graphs so far.
    double graph_ms() const { return graph_ms_total_; }

    const target_hparams & hparams() const { return model_.hparams; }
    int32_t                batch_rows() const { return params_.n_ubatch; }

  private:
    graph_runner & runner_for(const graph_shape & shape);
    void           set_inputs(const graph_context & g, std::span<const int32_t> tokens);
    void           run(graph_runner & runner, std::span<const int32_t> tokens, progress & progress);
    graph_shape    shape_for(size_t n_tokens, int32_t n_outputs) const;

    const target_model &    model_;
    pds_session_params      params_;
    kv_cache                cache_;
    backends                running_;
    std::vector<int32_t>    held_;
    std::vector<uint16_t>   mask_row_;
    std::list<graph_runner> runners_; // most recently used first
    double                  graph_ms_total_ = 0;
};

} // namespace pds
