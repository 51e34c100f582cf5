#include "arch/experts.h"

#include "base/error.h"

namespace pds {

namespace {

// A scale of the merged matrix would be one of its gate rows and another of its up rows.
void refuse_scaled_gate_up(const weights & w, const expert_matrix & merged, int32_t il) {
    PDS_REQUIRE(
        merged.scale == nullptr && merged.weight->type != GGML_TYPE_NVFP4, PDS_ERR_UNSUPPORTED,
        "%s: tensor 'blk.%d.ffn_gate_up_exps.weight' is %s; with NVFP4, or a scale, only separate ffn_gate_exps and "
        "ffn_up_exps are supported",
        w.path().c_str(), il, merged.scale != nullptr ? "scaled" : "of type nvfp4");
}

void list_shared_expert(linear_reader & read, const target_hparams & hp, expert_weights & experts) {
    const int64_t n_ff    = hp.experts.n_ff_shared;
    experts.shared_router = read.require("ffn_gate_inp_shexp", hp.n_embd, 1);
    experts.shared_gate   = read.require("ffn_gate_shexp", hp.n_embd, n_ff);
    experts.shared_up     = read.require("ffn_up_shexp", hp.n_embd, n_ff);
    experts.shared_down   = read.require("ffn_down_shexp", n_ff, hp.n_embd);
}

} // namespace

expert_weights list_experts(weights & w, linear_reader & read, const target_hparams & hp, int32_t il) {
    const int64_t  n_expert = hp.experts.n_expert;
    const int64_t  n_ff     = hp.experts.n_ff[static_cast<size_t>(il)];
    expert_weights experts;
    experts.on_gpu  = w.device_of(il).is_gpu;
    experts.router  = read.require("ffn_gate_inp", hp.n_embd, n_expert);
    experts.gate_up = read.find_experts("ffn_gate_up_exps", hp.n_embd, 2 * n_ff, n_expert);
    if (experts.gate_up.weight != nullptr) {
        refuse_scaled_gate_up(w, experts.gate_up, il);
    } else {
        experts.gate = read.require_experts("ffn_gate_exps", hp.n_embd, n_ff, n_expert);
        experts.up   = read.require_experts("ffn_up_exps", hp.n_embd, n_ff, n_expert);
    }
    experts.down = read.require_experts("ffn_down_exps", n_ff, hp.n_embd, n_expert);
    if (hp.experts.n_ff_shared > 0) {
        list_shared_expert(read, hp, experts);
    }
    return experts;
}

ggml_tensor * expert_feed_forward(graph_context & g, const target_hparams & hp, const target_layer & layer,
                                  ggml_tensor * x, ggml_tensor * residual, const build_options & options, int32_t il) {
    const bool          fused  = options.experts == expert_form::fused && !layer.experts.on_gpu;
    const expert_params params = { hp.experts.n_used[static_cast<size_t>(il)],
                                   fused ? expert_form::fused : expert_form::plain };
    return build_experts(g, layer.experts, params, x, residual, il);
}

} // namespace pds
