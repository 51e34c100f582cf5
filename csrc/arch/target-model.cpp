#include "arch/target-model.h"

#include "base/error.h"

#include <algorithm>
#include <cstdio>

namespace pds {

namespace {

// generous: a dense layer has about 30 nodes, and 12 more for each row that is attended to by itself
constexpr size_t nodes_per_layer   = 64;
constexpr size_t nodes_per_row     = 16;
constexpr size_t nodes_for_experts = 48; // of a layer, and some more for each expert that is used:
constexpr size_t nodes_per_expert  = 2;
constexpr size_t nodes_for_drafter = 512;
constexpr size_t nodes_per_replay  = 32; // of a layer

target_hparams read_hparams(const gguf_file & gguf_, const architecture & arch_) {
    target_hparams hp = read_common_hparams(gguf_);
    arch_.read_hparams(gguf_, hp);
    check_heads(gguf_, hp);
    return hp;
}

// Layers that predict further tokens, classifiers beside the head, and statistics of activations.
bool is_ignored(const std::string & name, const target_hparams & hp) {
    const std::string suffix = ".input_scale";
    if (name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0) {
        return true;
    }
    for (int32_t il = hp.n_layer; il < hp.n_layer + hp.n_extra; il++) {
        if (name.rfind(format("blk.%d.", il), 0) == 0) {
            return true;
        }
    }
    return name.rfind("cls.output.", 0) == 0;
}

std::set<std::string> ignored_tensors(const gguf_file & gguf, const target_hparams & hp) {
    std::set<std::string> names;
    for (const gguf_tensor & tensor : gguf.tensors()) {
        if (is_ignored(tensor.name, hp)) {
            names.insert(tensor.name);
        }
    }
    return names;
}

} // namespace

target_model::target_model(std::shared_ptr<const gguf_file> file, const pds_model_params & params)
    : hparams(read_hparams(*file, find_architecture(*file))), gguf_(std::move(file)), arch_(find_architecture(*gguf_)),
      placed_(gguf_, params, hparams.n_layer), tensors_(arch_.list_tensors(placed_, hparams)) {
    placed_.refuse_unused(ignored_tensors(*gguf_, hparams));
}

pds_model_info target_model::describe() const {
    pds_model_info info = {};
    std::snprintf(info.architecture, sizeof(info.architecture), "%s", hparams.architecture.c_str());
    info.n_vocab      = hparams.n_vocab;
    info.n_vocab_rows = hparams.n_vocab_rows;
    info.n_embd       = hparams.n_embd;
    info.n_layer      = hparams.n_layer;
    info.n_recurrent  = static_cast<int32_t>(std::count(hparams.recurrent.begin(), hparams.recurrent.end(), true));
    info.n_head       = *std::max_element(hparams.n_head.begin(), hparams.n_head.end());
    info.n_head_kv    = *std::max_element(hparams.n_head_kv.begin(), hparams.n_head_kv.end());
    info.n_ctx_train  = hparams.n_ctx_train;
    for (const gguf_tensor & tensor : gguf_->tensors()) {
        info.n_params += tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
        info.n_bytes += tensor.n_bytes;
    }
    return info;
}

std::vector<kv_layer_shape> target_model::kv_shapes() const {
    std::vector<kv_layer_shape> shapes;
    for (int32_t il = 0; il < hparams.n_layer; il++) {
        const int32_t n_head_kv = hparams.n_head_kv[static_cast<size_t>(il)];
        shapes.push_back({ &placed_.device_of(il), n_head_kv, hparams.head_dim_k, hparams.head_dim_v });
    }
    return shapes;
}

std::vector<const device *> target_model::recurrent_owners() const {
    std::vector<const device *> owners;
    for (int32_t il = 0; il < hparams.n_layer; il++) {
        owners.push_back(hparams.recurrent[static_cast<size_t>(il)] ? &placed_.device_of(il) : nullptr);
    }
    return owners;
}

std::vector<const device *> target_model::used_devices() const {
    std::vector<const device *> used;
    for (int32_t il = -1; il <= hparams.n_layer; il++) {
        used.push_back(&placed_.device_of(il));
    }
    return used;
}

size_t target_model::max_nodes(const graph_shape & shape, const build_options & options) const {
    size_t per_layer = nodes_per_layer;
    if (options.attention == attention_form::fused_by_row) {
        per_layer += nodes_per_row * static_cast<size_t>(shape.n_tokens);
    }
    if (hparams.experts.n_expert > 0) {
        const std::vector<int32_t> & n_used = hparams.experts.n_used;
        const auto                   most   = static_cast<size_t>(*std::max_element(n_used.begin(), n_used.end()));
        per_layer += nodes_for_experts + nodes_per_expert * most;
    }
    return per_layer * static_cast<size_t>(hparams.n_layer + 2);
}

std::unique_ptr<graph_context> target_model::build(const graph_shape & shape, const build_options & options,
                                                   std::set<std::string>        taps,
                                                   const std::vector<int32_t> & feature_layers) const {
    const size_t n_nodes = max_nodes(shape, options) + nodes_for_drafter * (1 + feature_layers.size());
    auto         g       = std::make_unique<graph_context>(shape, n_nodes, std::move(taps));
    g->feature_layers    = feature_layers;
    if (!options.recurrent.empty()) {
        g->add_recurrent_inputs(options.recurrent.n_states_written(shape.n_tokens), hparams.delta_net.conv_kernel - 1,
                                options.recurrent.n_inputs_written(shape.n_tokens));
    }
    arch_.build(*g, hparams, tensors_, options);
    return g;
}

std::unique_ptr<graph_context> target_model::build_replay(int32_t n_tokens, const build_options & options) const {
    const size_t      n_nodes = nodes_per_replay * static_cast<size_t>(hparams.n_layer);
    const graph_shape shape   = { n_tokens, 1, kv_cache::row_step };
    auto              g       = std::make_unique<graph_context>(shape, n_nodes);
    g->add_recurrent_inputs(1, hparams.delta_net.conv_kernel - 1 + n_tokens, 0);
    arch_.build_replay(*g, hparams, tensors_, options);
    return g;
}

} // namespace pds
