#include "graph/stage-times.h"

#include "base/error.h"
#include "base/timing.h"

#include <cstring>
#include <string_view>

namespace pds {

namespace {

struct stage_end {
    std::string_view prefix; // of the name of a stage's last node
    int32_t          stage;
};

constexpr stage_end ends[] = {
    { "inp_embd", PDS_STAGE_EMBEDDING },         { "attn_out-", PDS_STAGE_ATTENTION },
    { "linear_attn_out-", PDS_STAGE_DELTA_NET }, { "l_out-", PDS_STAGE_FEED_FORWARD },
    { "result_output", PDS_STAGE_HEAD },
};

int32_t stage_that_ends(const ggml_tensor * node) {
    const std::string_view name = ggml_get_name(node);
    for (const stage_end & end : ends) {
        if (name.substr(0, end.prefix.size()) == end.prefix) {
            return end.stage;
        }
    }
    return -1;
}

struct stage_watch {
    stage_times & times;
    cpu_stopwatch since_last;

    void lap(int32_t stage) {
        times[static_cast<size_t>(stage)] += since_last.elapsed_ms();
        since_last = cpu_stopwatch();
    }
};

// Asked before a node whether to stop behind it, and told when it is done.
bool on_node(ggml_tensor * node, bool ask, void * user) {
    const int32_t stage = stage_that_ends(node);
    if (!ask && stage >= 0) {
        static_cast<stage_watch *>(user)->lap(stage);
    }
    return ask ? stage >= 0 : true;
}

} // namespace

stage_timed_graph::stage_timed_graph(backends & backends, std::unique_ptr<graph_context> description)
    : desc_(std::move(description)), backends_(backends) {
    std::vector<ggml_backend_t> list = backends.all();
    input_buffer_.reset(ggml_backend_alloc_ctx_tensors(desc_->owned_inputs.get(), backends.cpu()));
    scheduler_.reset(ggml_backend_sched_new(list.data(), nullptr, static_cast<int>(list.size()),
                                            static_cast<size_t>(ggml_graph_size(desc_->graph)), false, true));
    PDS_REQUIRE(input_buffer_ != nullptr && ggml_backend_sched_alloc_graph(scheduler_.get(), desc_->graph),
                PDS_ERR_MEMORY, "the working memory of a graph over %d tokens could not be allocated",
                desc_->shape.n_tokens);
}

void stage_timed_graph::run(int32_t n_threads, stage_times & times) {
    backends_.set_threads(n_threads);
    stage_watch watch = { times, cpu_stopwatch() };
    ggml_backend_sched_set_eval_callback(scheduler_.get(), on_node, &watch);
    const ggml_status status = ggml_backend_sched_graph_compute(scheduler_.get(), desc_->graph);
    PDS_REQUIRE(status == GGML_STATUS_SUCCESS, PDS_ERR_INTERNAL, "a graph failed: %s", ggml_status_to_string(status));
    watch.lap(PDS_STAGE_FEATURES);
}

} // namespace pds
