// A drafter for one target: its file, hyper-parameters and weights, some of them the target's.
#pragma once

#include "arch/dspark.h"
#include "arch/target-model.h"

#include <memory>
#include <vector>

namespace pds {

// A block's graph with what its outputs and draws need.
struct block_graph {
    std::unique_ptr<graph_context>  context;
    ggml_tensor *                   windowed_mask = nullptr; // F16 [n_kv, block_size], or null
    std::vector<slot_draw>          draws;                   // one per slot of the chain
    std::vector<draft_slot_outputs> outputs;                 // one per slot of the chain
};

// Reads hyper-parameters only.
pds_draft_info describe_draft(const gguf_file & gguf);

class draft_model {
  public:
    // Checks that the pair fits, reads hyper-parameters and decides where each tensor goes; nothing is loaded yet.
    draft_model(std::shared_ptr<const gguf_file> gguf, std::shared_ptr<const target_model> target,
                const pds_model_params & params);

    // The weights become addresses that are never read: good for measuring only.
    void pretend();
    void load(progress & progress);

    void report_weights(pds_memory_report & out) const { placed_.report(out); }

    // For a cache of its own, one entry per layer.
    std::vector<kv_layer_shape> kv_shapes() const;
    bool                        has_confidence() const { return tensors_.confidence.weight != nullptr; }
    // Rows of the draft head, and the target id of each; an empty map means that they are the same.
    int32_t                      n_draft_rows() const;
    const std::vector<int32_t> & draft_to_ids() const { return draft_to_ids_; }

    // Adds to a target graph what keeps the drafter's cache in step.
    void inject(graph_context & g, const kv_cache & cache) const { build_injection(g, hparams, tensors_, cache); }
    // n_chain: slots that propose a token.
    block_graph build(int32_t n_kv, int32_t n_chain, row_drawer & drawer, const kv_cache & cache, attention_form form,
                      std::set<std::string> taps = {}) const;

    const target_model & target() const { return *target_; }

    const draft_hparams hparams;

  private:
    void list_extras();
    void read_map();

    std::shared_ptr<const gguf_file>    gguf_;
    std::shared_ptr<const target_model> target_;
    weights                             placed_;
    draft_tensors                       tensors_;
    std::vector<int32_t>                draft_to_ids_;
    ggml_context_ptr                    extras_; // small tensors that are made at load time
    ggml_backend_buffer_ptr             extras_buffer_;
};

} // namespace pds
