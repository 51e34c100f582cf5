// A target model: its file, hyper-parameters and weights.
#pragma once

#include "arch/arch.h"

#include <memory>
#include <vector>

namespace pds {

class target_model {
  public:
    // Reads hyper-parameters and decides where each tensor goes; nothing is loaded yet.
    target_model(std::shared_ptr<const gguf_file> gguf, const pds_model_params & params);

    // The weights become addresses that are never read: good for measuring only.
    void pretend() { placed_.pretend(); }
    void load(progress & progress) { placed_.load(progress); }

    pds_model_info describe() const;
    void           report_weights(pds_memory_report & out) const { placed_.report(out); }

    const gguf_file &      gguf() const { return *gguf_; }
    const target_tensors & tensors() const { return tensors_; }

    // One entry per layer, for a cache beside the layer's weights.
    std::vector<kv_layer_shape> kv_shapes() const;
    // The device of each recurrent layer, null for the others.
    std::vector<const device *>    recurrent_owners() const;
    std::vector<const device *>    used_devices() const;
    std::unique_ptr<graph_context> build(const graph_shape & shape, const build_options & options,
                                         std::set<std::string>        taps           = {},
                                         const std::vector<int32_t> & feature_layers = {}) const;
    // Brings the recurrent layers to where the first n_tokens of the last batch had led.
    std::unique_ptr<graph_context> build_replay(int32_t n_tokens, const build_options & options) const;

    const target_hparams hparams;

  private:
    // More than a graph of the target can have.
    size_t max_nodes(const graph_shape & shape, const build_options & options) const;

    std::shared_ptr<const gguf_file> gguf_;
    const architecture &             arch_;
    weights                          placed_;
    target_tensors                   tensors_;
};

} // namespace pds
