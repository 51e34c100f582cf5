// A drafter for one target: its file, hyper-parameters and weights, some of them the target's.
#pragma once

#include "arch/copied-rows.h"
#include "arch/dspark.h"
#include "arch/target-model.h"

#include <memory>
#include <optional>
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

    void report_weights(pds_memory_report & out) const;

    // For a cache of its own, one entry per layer.
    std::vector<kv_layer_shape> kv_shapes() const;
    bool                        has_confidence() const { return tensors_.confidence.weight != nullptr; }
    // Rows of the draft head, and the target id of each; an empty map means that they are the same.
    int32_t                      n_draft_rows() const;
    const std::vector<int32_t> & draft_to_ids() const { return draft_to_ids_; }
    // Rows that the Markov head looks at for a slot; 0 = all.
    int32_t n_candidates() const { return tensors_.n_candidates; }
    // The head is a short list: rows of a whole one, in which a row's number is the target's id.
    bool has_short_list() const { return short_output_.has_value(); }
    // Where a short list is taken from, and a place for more rows of it. The second is null unless it is shortened,
    // too.
    const linear_source & whole_output() const { return whole_output_; }
    const linear_source & whole_markov_w2() const { return whole_markov_w2_; }
    const device &        output_device() const { return placed_.device_of(hparams.n_layer); }

    // Adds to a target graph what keeps the drafter's cache in step.
    void inject(graph_context & g, const kv_cache & cache) const { build_injection(g, hparams, tensors_, cache); }
    // n_chain: slots that propose a token. spare: rows beside a short list, or null.
    block_graph build(int32_t n_kv, int32_t n_chain, row_drawer & drawer, const kv_cache & cache, attention_form form,
                      const spare_rows * spare, std::set<std::string> taps = {}) const;

    const target_model & target() const { return *target_; }

    const draft_hparams hparams;

  private:
    void read_map();
    void shorten_head(const pds_model_params & params);
    void make_mask();

    std::shared_ptr<const gguf_file>    gguf_;
    std::shared_ptr<const target_model> target_;
    weights                             placed_;
    draft_tensors                       tensors_;
    std::vector<int32_t>                draft_to_ids_;
    linear_source                       whole_output_;
    linear_source                       whole_markov_w2_;
    std::optional<copied_rows>          short_output_;
    std::optional<copied_rows>          short_markov_w2_;
    ggml_context_ptr                    mask_context_; // an embedding that is not in the file as it is needed
    ggml_backend_buffer_ptr             mask_buffer_;
};

} // namespace pds
