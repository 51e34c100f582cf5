// Llama: adjacent-pair rotation, optional biases, optional per-dimension rotation factors.
#include "arch/dense.h"
#include "base/error.h"
#include "gguf/keys.h"

namespace pds {

namespace {

constexpr dense_options dense = { GGML_ROPE_TYPE_NORMAL, false, true };

void read_hparams(const gguf_file & gguf, target_hparams & hp) {
    PDS_REQUIRE(hparam_int(gguf, keys::n_expert, 0, 1 << 16, 0) == 0, PDS_ERR_UNSUPPORTED,
                "%s: a llama model with experts (Mixtral) is not supported", gguf.path().c_str());
    PDS_REQUIRE(hp.n_rot == hp.head_dim_k, PDS_ERR_FORMAT,
                "%s: rope.dimension_count is %d, but heads have %d dimensions", gguf.path().c_str(), hp.n_rot,
                hp.head_dim_k);
}

target_tensors list_tensors(weights & w, const target_hparams & hp) {
    target_tensors t = list_dense_tensors(w, hp, dense);
    t.rope_freqs     = w.find("rope_freqs.weight", { hp.n_rot / 2 }, weight_use::element_wise, 0);
    return t;
}

void build(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options) {
    build_dense(g, hp, t, options, dense);
}

} // namespace

const architecture arch_llama = { "llama", read_hparams, list_tensors, build, nullptr };

} // namespace pds
