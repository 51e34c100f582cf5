#include "arch/draft-model.h"

#include "base/error.h"
#include "model/pairing.h"
#include "model/short-list.h"

#include <cstring>

namespace pds {

namespace {

constexpr size_t nodes_per_layer = 96; // generous: a block's layer has about 40
constexpr size_t nodes_per_slot  = 32;

draft_hparams checked_hparams(const gguf_file & gguf, const target_model & target) {
    draft_hparams hp = read_draft_hparams(gguf);
    require_pair(target.gguf(), gguf, hp);
    return hp;
}

int32_t checked_candidates(const pds_model_params & params) {
    PDS_REQUIRE(params.draft_candidates >= 0 && params.draft_shortlist >= -1, PDS_ERR_ARGUMENT,
                "draft_candidates is %d and draft_shortlist %d; give 0 or more, and -1 or more",
                params.draft_candidates, params.draft_shortlist);
    return params.draft_candidates;
}

// The tensor of the head that the drafter uses: its own, or that of the target, which may be its embedding.
const gguf_tensor * find_head(const gguf_file & draft, const gguf_file & target) {
    const gguf_tensor * own  = draft.find("output.weight");
    const gguf_tensor * head = target.find("output.weight");
    return own != nullptr ? own : head != nullptr ? head : target.find("token_embd.weight");
}

} // namespace

pds_draft_info describe_draft(const gguf_file & gguf) {
    const draft_hparams hp   = read_draft_hparams(gguf);
    pds_draft_info      info = {};
    info.n_layer             = hp.n_layer;
    info.n_embd              = hp.n_embd;
    info.block_size          = hp.block_size;
    info.n_slots             = hp.n_slots();
    info.mask_token_id       = hp.mask_token_id;
    info.anchor_first        = hp.anchor_first ? 1 : 0;
    info.has_markov_head     = gguf.find("markov_w1.weight") != nullptr ? 1 : 0;
    info.has_confidence      = gguf.find("conf_proj.weight") != nullptr ? 1 : 0;
    info.borrows_embedding   = gguf.find("token_embd.weight") == nullptr ? 1 : 0;
    info.borrows_head        = gguf.find("output.weight") == nullptr ? 1 : 0;
    info.n_short_list        = static_cast<int32_t>(hp.short_list.size());
    for (const int32_t layer : hp.target_layers) {
        info.target_layers[info.n_target_layers++] = layer - 1; // the file names layers by their inputs
    }
    for (const gguf_tensor & tensor : gguf.tensors()) {
        info.n_bytes += tensor.n_bytes;
    }
    return info;
}

draft_model::draft_model(std::shared_ptr<const gguf_file> file, std::shared_ptr<const target_model> target,
                         const pds_model_params & params)
    : hparams(checked_hparams(*file, *target)), gguf_(std::move(file)), target_(std::move(target)),
      placed_(gguf_, params, hparams.n_layer),
      tensors_(list_draft_tensors(placed_, *gguf_, hparams, target_->tensors(), checked_candidates(params))) {
    placed_.refuse_unused({ "d2t" });
    read_map();
    shorten_head(params);
    make_mask();
}

void draft_model::read_map() {
    const gguf_tensor * map = gguf_->find("d2t");
    if (map == nullptr) {
        return;
    }
    PDS_REQUIRE(map->type == GGML_TYPE_I64 && map->ne[0] == n_draft_rows() && map->ne[1] == 1, PDS_ERR_FORMAT,
                "%s: tensor 'd2t' is %s %s; I64 with one entry for each of the %d rows of the head is needed",
                gguf_->path().c_str(), ggml_type_name(map->type), shape_text(map->ne, map->n_dims).c_str(),
                n_draft_rows());
    std::vector<bool> seen(static_cast<size_t>(hparams.n_vocab), false);
    for (int64_t row = 0; row < map->ne[0]; row++) {
        int64_t id = 0;
        std::memcpy(&id, map->data + static_cast<size_t>(row) * sizeof(id), sizeof(id));
        PDS_REQUIRE(id >= 0 && id < hparams.n_vocab && !seen[static_cast<size_t>(id)], PDS_ERR_FORMAT,
                    "%s: entry %lld of 'd2t' is %lld; different ids in 0..%d are needed", gguf_->path().c_str(),
                    static_cast<long long>(row), static_cast<long long>(id), hparams.n_vocab - 1);
        seen[static_cast<size_t>(id)] = true;
        draft_to_ids_.push_back(static_cast<int32_t>(id));
    }
}

void draft_model::shorten_head(const pds_model_params & params) {
    if (!draft_to_ids_.empty()) {
        PDS_REQUIRE(params.draft_shortlist <= 0, PDS_ERR_ARGUMENT,
                    "draft_shortlist is %d, but %s has a reduced vocabulary already; leave it out",
                    params.draft_shortlist, gguf_->path().c_str());
        return;
    }
    draft_to_ids_ = choose_short_list(hparams, target_->gguf(), n_draft_rows(), params.draft_shortlist);
    if (draft_to_ids_.empty()) {
        return;
    }
    const auto n     = static_cast<int64_t>(draft_to_ids_.size());
    whole_output_    = { tensors_.output, find_head(*gguf_, target_->gguf()) };
    tensors_.output  = short_output_.emplace(whole_output_, n, output_device(), params.repack != 0).linear();
    const bool whole = tensors_.markov_w1 == nullptr || n_candidates() > 0; // candidates are rows of the whole matrix
    if (!whole) {
        whole_markov_w2_ = { tensors_.markov_w2, gguf_->find("markov_w2.weight") };
        tensors_.markov_w2 =
            short_markov_w2_.emplace(whole_markov_w2_, n, output_device(), params.repack != 0).linear();
    }
}

void draft_model::make_mask() {
    if (!hparams.mask_embd.empty()) {
        mask_context_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
        tensors_.mask_embd = ggml_new_tensor_2d(mask_context_.get(), GGML_TYPE_F32, hparams.n_embd, 1);
    }
}

void draft_model::report_weights(pds_memory_report & out) const {
    placed_.report(out);
    for (const std::optional<copied_rows> * rows : { &short_output_, &short_markov_w2_ }) {
        if (*rows) {
            (*rows)->report(out);
        }
    }
}

void draft_model::pretend() {
    static char nowhere[64];
    placed_.pretend();
    for (std::optional<copied_rows> * rows : { &short_output_, &short_markov_w2_ }) {
        if (*rows) {
            (*rows)->pretend();
        }
    }
    if (tensors_.mask_embd != nullptr) {
        tensors_.mask_embd->data = nowhere;
    }
}

void draft_model::load(progress & progress) {
    placed_.load(progress);
    for (std::optional<copied_rows> * rows : { &short_output_, &short_markov_w2_ }) {
        if (*rows) {
            (*rows)->allocate();
            (*rows)->write(draft_to_ids_);
        }
    }
    if (tensors_.mask_embd != nullptr) {
        mask_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(mask_context_.get(),
                                                                    ggml_backend_dev_buffer_type(cpu_device().dev)));
        PDS_REQUIRE(mask_buffer_ != nullptr, PDS_ERR_MEMORY, "the drafter's mask row could not be allocated");
        ggml_backend_tensor_set(tensors_.mask_embd, hparams.mask_embd.data(), 0, ggml_nbytes(tensors_.mask_embd));
    }
}

std::vector<kv_layer_shape> draft_model::kv_shapes() const {
    std::vector<kv_layer_shape> shapes;
    for (int32_t il = 0; il < hparams.n_layer; il++) {
        shapes.push_back({ &placed_.device_of(il), hparams.n_head_kv, hparams.head_dim, hparams.head_dim });
    }
    return shapes;
}

int32_t draft_model::n_draft_rows() const {
    return static_cast<int32_t>(tensors_.output.weight->ne[1]);
}

block_graph draft_model::build(int32_t n_kv, int32_t n_chain, row_drawer & drawer, const kv_cache & cache,
                               attention_form form, const spare_rows * spare, std::set<std::string> taps) const {
    const size_t max_nodes = nodes_per_layer * static_cast<size_t>(hparams.n_layer + 2) +
                             nodes_per_slot * static_cast<size_t>(hparams.block_size);
    block_graph  block;
    block.context =
        std::make_unique<graph_context>(graph_shape{ hparams.block_size, n_chain, n_kv }, max_nodes, std::move(taps));
    if (hparams.window > 0) {
        block.windowed_mask =
            ggml_new_tensor_2d(block.context->owned_inputs.get(), GGML_TYPE_F16, n_kv, hparams.block_size);
        ggml_set_input(block.windowed_mask);
    }
    for (int32_t i = 0; i < n_chain; i++) {
        block.draws.push_back({ &drawer, i });
    }
    block.outputs =
        build_block(*block.context, hparams, tensors_, cache, { block.draws.data(), block.windowed_mask, spare, form });
    return block;
}

} // namespace pds
