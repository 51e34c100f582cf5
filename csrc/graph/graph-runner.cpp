#include "graph/graph-runner.h"

#include "base/error.h"

namespace pds {

namespace {

ggml_backend_sched_ptr new_scheduler(const backends & backends, const graph_context & description) {
    std::vector<ggml_backend_t> list = backends.all();
    return ggml_backend_sched_ptr(ggml_backend_sched_new(list.data(), nullptr, static_cast<int>(list.size()),
                                                         static_cast<size_t>(ggml_graph_size(description.graph)), false,
                                                         true));
}

} // namespace

graph_runner::graph_runner(backends & backends, std::unique_ptr<graph_context> description)
    : desc_(std::move(description)), backends_(backends) {
    input_buffer_.reset(ggml_backend_alloc_ctx_tensors(desc_->owned_inputs.get(), backends.cpu()));
    bool allocated = input_buffer_ != nullptr;
    if (backends.all().size() == 1) {
        allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backends.cpu())));
        allocated = allocated && ggml_gallocr_alloc_graph(allocator_.get(), desc_->graph);
    } else {
        scheduler_ = new_scheduler(backends, *desc_);
        allocated  = allocated && ggml_backend_sched_alloc_graph(scheduler_.get(), desc_->graph);
    }
    PDS_REQUIRE(allocated, PDS_ERR_MEMORY,
                "the working memory of a graph over %d tokens could not be allocated; lower n_ubatch or n_ctx",
                desc_->shape.n_tokens);
}

std::vector<size_t> graph_runner::measure(const backends & backends, const graph_context & description) {
    std::vector<size_t> sizes(backends.all().size(), 0);
    if (sizes.size() == 1) {
        ggml_gallocr_ptr allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backends.cpu())));
        ggml_gallocr_reserve_n_size(allocator_.get(), description.graph, nullptr, nullptr, sizes.data());
    } else {
        const ggml_backend_sched_ptr scheduler_ = new_scheduler(backends, description);
        ggml_backend_sched_reserve_size(scheduler_.get(), description.graph, sizes.data());
    }
    return sizes;
}

void graph_runner::run(int32_t n_threads, progress & progress) {
    progress.check();
    backends_.set_threads(n_threads);
    backends_.set_progress(&progress);
    const ggml_status status = scheduler_ != nullptr ? ggml_backend_sched_graph_compute(scheduler_.get(), desc_->graph)
                                                     : ggml_backend_graph_compute(backends_.cpu(), desc_->graph);
    backends_.set_progress(nullptr);
    PDS_REQUIRE(status != GGML_STATUS_ABORTED, PDS_ERR_CANCELLED, "cancelled");
    PDS_REQUIRE(status != GGML_STATUS_ALLOC_FAILED, PDS_ERR_MEMORY, "the working memory of a graph is too small");
    PDS_REQUIRE(status == GGML_STATUS_SUCCESS, PDS_ERR_INTERNAL, "a graph failed: %s", ggml_status_to_string(status));
}

void graph_runner::read(const ggml_tensor * tensor, float * out, size_t n) {
    ggml_backend_tensor_get(tensor, out, 0, n * sizeof(float));
}

const float * graph_runner::logits() {
    const ggml_tensor * tensor = desc_->logits;
    if (ggml_backend_buffer_is_host(tensor->buffer)) {
        return static_cast<const float *>(tensor->data);
    }
    copied_.resize(static_cast<size_t>(ggml_nelements(tensor)));
    read(tensor, copied_.data(), copied_.size());
    return copied_.data();
}

} // namespace pds
