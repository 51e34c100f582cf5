#include "arch/target-model.h"

#include "base/error.h"

#include <cstdio>

namespace pds {

namespace {

// generous: a dense layer has about 30 nodes, and 12 more for each row that is attended to by itself
constexpr size_t nodes_per_layer   = 64;
constexpr size_t nodes_per_row     = 16;
constexpr size_t nodes_for_drafter = 512;

target_hparams read_hparams(const gguf_file & gguf_, const architecture & arch_) {
    target_hparams hp = read_common_hparams(gguf_);
    arch_.check_hparams(gguf_, hp);
    return hp;
}

} // namespace

target_model::target_model(std::shared_ptr<const gguf_file> file, const pds_model_params & params)
    : hparams(read_hparams(*file, find_architecture(*file))), gguf_(std::move(file)), arch_(find_architecture(*gguf_)),
      placed_(gguf_, params, hparams.n_layer), tensors_(arch_.list_tensors(placed_, hparams)) {
    placed_.refuse_unused({});
}

pds_model_info target_model::describe() const {
    pds_model_info info = {};
    std::snprintf(info.architecture, sizeof(info.architecture), "%s", hparams.architecture.c_str());
    info.n_vocab      = hparams.n_vocab;
    info.n_vocab_rows = hparams.n_vocab_rows;
    info.n_embd       = hparams.n_embd;
    info.n_layer      = hparams.n_layer;
    info.n_head       = hparams.n_head[0];
    info.n_head_kv    = hparams.n_head_kv[0];
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

std::vector<const device *> target_model::used_devices() const {
    std::vector<const device *> used;
    for (int32_t il = -1; il <= hparams.n_layer; il++) {
        used.push_back(&placed_.device_of(il));
    }
    return used;
}

std::unique_ptr<graph_context> target_model::build(const graph_shape & shape, const build_options & options,
                                                   std::set<std::string>        taps,
                                                   const std::vector<int32_t> & feature_layers) const {
    const size_t rows = options.attention == attention_form::fused_by_row ? static_cast<size_t>(shape.n_tokens) : 1;
    const size_t max_nodes = (nodes_per_layer + nodes_per_row * rows) * static_cast<size_t>(hparams.n_layer + 2) +
                             nodes_for_drafter * (1 + feature_layers.size());
    auto         g         = std::make_unique<graph_context>(shape, max_nodes, std::move(taps));
    g->feature_layers      = feature_layers;
    arch_.build(*g, hparams, tensors_, options);
    return g;
}

} // namespace pds
