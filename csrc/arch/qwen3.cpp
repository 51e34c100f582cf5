// Qwen3: normalised q and k heads, half-split rotation.
#include "arch/dense.h"
#include "base/error.h"

namespace pds {

namespace {

constexpr dense_options dense = { GGML_ROPE_TYPE_NEOX, true, false };

void read_hparams(const gguf_file & gguf, target_hparams & hp) {
    PDS_REQUIRE(hp.n_rot == hp.head_dim_k, PDS_ERR_FORMAT,
                "%s: rope.dimension_count is %d, but heads have %d dimensions", gguf.path().c_str(), hp.n_rot,
                hp.head_dim_k);
}

target_tensors list_tensors(weights & w, const target_hparams & hp) {
    return list_dense_tensors(w, hp, dense);
}

void build(graph_context & g, const target_hparams & hp, const target_tensors & t, const build_options & options) {
    build_dense(g, hp, t, options, dense);
}

} // namespace

const architecture arch_qwen3 = { "qwen3", read_hparams, list_tensors, build, nullptr };

} // namespace pds
