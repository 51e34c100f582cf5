#include "spec/target-sequence.h"

#include "base/error.h"
#include "base/log.h"
#include "base/timing.h"
#include "model/memory-report.h"

#include <algorithm>

namespace pds {

namespace {

constexpr size_t   max_runners   = 16;  // graphs kept for reuse
constexpr int32_t  max_row_batch = 32;  // batches that are attended to row by row when results must be exact
constexpr int32_t  max_threads   = 512; // of ggml
constexpr uint16_t f16_zero      = 0x0000;
constexpr uint16_t f16_minus_inf = 0xFC00;

int32_t in_range(const char * name, int32_t value, int32_t min, int32_t max) {
    PDS_REQUIRE(value >= min && value <= max, PDS_ERR_ARGUMENT, "%s is %d; it must be in %d..%d", name, value, min,
                max);
    return value;
}

void check_cache_type(const char * name, int32_t type) {
    switch (type) {
    case GGML_TYPE_F32:
    case GGML_TYPE_F16:
    case GGML_TYPE_BF16:
    case GGML_TYPE_Q8_0:
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q5_0:
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q4_0:
        return;
    default:
        throw error(PDS_ERR_ARGUMENT, format("%s: ggml type %d cannot hold the cache; use one of f32, f16, bf16, "
                                             "q8_0, q5_1, q5_0, q4_1, q4_0",
                                             name, type));
    }
}

// Plain attention transposes the values, which takes blocks apart.
void check_value_type(const char * name, int32_t type, bool flash_attn) {
    check_cache_type(name, type);
    PDS_REQUIRE(flash_attn || !ggml_is_quantized(static_cast<ggml_type>(type)), PDS_ERR_ARGUMENT,
                "%s: %s needs flash_attn; turn it on, or use f16", name, ggml_type_name(static_cast<ggml_type>(type)));
}

rollback_form rollback_form_of(const pds_session_params & params) {
    return params.rollback == PDS_ROLLBACK_SNAPSHOTS ? rollback_form::snapshots : rollback_form::replay;
}

void set_tensor(ggml_tensor * tensor, const void * data) {
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

} // namespace

pds_session_params checked_session_params(const pds_session_params & given, const target_hparams & hp) {
    pds_session_params params = given;
    params.n_ctx              = params.n_ctx == 0 ? hp.n_ctx_train : in_range("n_ctx", params.n_ctx, 1, 1 << 30);
    params.n_batch            = std::min(in_range("n_batch", params.n_batch, 1, 1 << 20), params.n_ctx);
    PDS_REQUIRE(params.prompt_cache_bytes >= 0, PDS_ERR_ARGUMENT, "prompt_cache_bytes is %lld; it must not be negative",
                static_cast<long long>(params.prompt_cache_bytes));
    params.n_ubatch = std::min(in_range("n_ubatch", params.n_ubatch, 1, 1 << 16), params.n_batch);
    in_range("n_threads", params.n_threads, 1, max_threads);
    in_range("n_threads_batch", params.n_threads_batch, 1, max_threads);
    check_cache_type("type_k", params.type_k);
    check_cache_type("type_k_draft", params.type_k_draft);
    check_value_type("type_v", params.type_v, params.flash_attn != 0);
    check_value_type("type_v_draft", params.type_v_draft, params.flash_attn != 0);
    if (params.n_ctx > hp.n_ctx_train) {
        log_write(log_level::warn, format("n_ctx is %d, but the model was trained for %d tokens: expect worse text "
                                          "beyond them",
                                          params.n_ctx, hp.n_ctx_train));
    }
    return params;
}

std::set<std::string> tap_names(const std::vector<tensor_tap> & taps) {
    std::set<std::string> names;
    for (const tensor_tap & tap : taps) {
        names.insert(tap.name);
    }
    return names;
}

void check_taps(const graph_context & g, const std::vector<tensor_tap> & taps) {
    for (const tensor_tap & tap : taps) {
        const ggml_tensor * tensor = ggml_graph_get_tensor(g.graph, tap.name.c_str());
        PDS_REQUIRE(tensor != nullptr, PDS_ERR_ARGUMENT, "the graph has no tensor '%s'", tap.name.c_str());
        PDS_REQUIRE(tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor), PDS_ERR_ARGUMENT,
                    "tensor '%s' is not plain F32", tap.name.c_str());
        PDS_REQUIRE(static_cast<size_t>(ggml_nelements(tensor)) == tap.n, PDS_ERR_ARGUMENT,
                    "tensor '%s' has %lld values; room for %zu was given", tap.name.c_str(),
                    static_cast<long long>(ggml_nelements(tensor)), tap.n);
    }
}

void read_taps(const graph_context & g, const std::vector<tensor_tap> & taps) {
    for (const tensor_tap & tap : taps) {
        graph_runner::read(ggml_graph_get_tensor(g.graph, tap.name.c_str()), tap.out, tap.n);
    }
}

target_sequence::target_sequence(const target_model & model, const draft_model * draft,
                                 const pds_session_params & given)
    : model_(model), draft_(draft), params_(checked_session_params(given, model.hparams)),
      cache_(model.kv_shapes(), params_.n_ctx,
             { static_cast<ggml_type>(params_.type_k), static_cast<ggml_type>(params_.type_v), "type_k", "type_v" }),
      recurrent_(model.recurrent_owners(), model.hparams.delta_net, draft == nullptr ? 1 : draft->hparams.n_slots() + 1,
                 rollback_form_of(params_)),
      prompt_cache_(static_cast<size_t>(params_.prompt_cache_bytes)),
      running_(model.used_devices(), std::max(params_.n_threads, params_.n_threads_batch)) {
    if (draft_ != nullptr) {
        const kv_types types = { static_cast<ggml_type>(params_.type_k_draft),
                                 static_cast<ggml_type>(params_.type_v_draft), "type_k_draft", "type_v_draft" };
        draft_cache_ =
            std::make_unique<kv_cache>(draft_->kv_shapes(), params_.n_ctx + draft_->hparams.block_size, types);
    }
}

void target_sequence::report(pds_memory_report & out) {
    out.n_ctx            = params_.n_ctx;
    out.checkpoint_bytes = static_cast<int64_t>(recurrent_.n_bytes());
    out.token_bytes      = static_cast<int64_t>(cache_.row_bytes());
    if (draft_cache_ != nullptr) {
        out.token_bytes += static_cast<int64_t>(draft_cache_->row_bytes());
    }
    cache_.report(out);
    cache_.pretend();
    recurrent_.report(out);
    recurrent_.pretend();
    if (draft_cache_ != nullptr) {
        draft_cache_->report(out);
        draft_cache_->pretend();
    }
    const int32_t     n_kv     = cache_.visible_rows(params_.n_ctx);
    const graph_shape shapes[] = { { params_.n_ubatch, 1, n_kv }, { 1, 1, n_kv } };
    for (const graph_shape & shape : shapes) {
        const auto g      = build(shape);
        const auto sizes  = graph_runner::measure(running_, *g);
        const auto copies = shape.n_tokens == 1 ? static_cast<int64_t>(max_runners) - 1 : int64_t(1);
        for (size_t i = 0; i < sizes.size(); i++) {
            const std::string name = ggml_backend_dev_name(ggml_backend_get_device(running_.all()[i]));
            memory_line_of(out, name).compute += static_cast<int64_t>(sizes[i]) * copies;
        }
        memory_line_of(out, cpu_device().name).compute += static_cast<int64_t>(ggml_nbytes(g->inputs.mask)) * copies;
    }
    for (const device & device : devices()) {
        memory_line_of(out, device.name).free = memory_of(device).free;
    }
}

void target_sequence::allocate(const pds_memory_report & wanted) {
    for (int32_t i = 0; i < wanted.n_lines; i++) {
        const pds_memory_line & line  = wanted.lines[i];
        const double            mebi  = 1 << 20;
        const int64_t           needs = line.kv + line.state + line.compute;
        if (needs > line.free) {
            throw error(PDS_ERR_MEMORY,
                        format("%s: a context of %d tokens takes %.1f MiB, and graphs %.1f MiB more, but %.1f MiB are "
                               "free; lower n_ctx, or take a smaller type_k and type_v such as q8_0",
                               line.device, params_.n_ctx, static_cast<double>(line.kv + line.state) / mebi,
                               static_cast<double>(line.compute) / mebi, static_cast<double>(line.free) / mebi),
                        needs, line.free);
        }
    }
    cache_.allocate();
    recurrent_.allocate();
    if (draft_cache_ != nullptr) {
        draft_cache_->allocate();
    }
}

void target_sequence::cut(int64_t n) {
    if (n < n_past()) {
        held_.resize(static_cast<size_t>(recurrent_.cut(cache_.cut(n))));
    }
}

void target_sequence::resume(std::span<const int32_t> prompt) {
    const auto    n_max  = static_cast<int64_t>(prompt.size()) - 1; // the last row is what the first new token is from
    const auto    parted = std::mismatch(held_.begin(), held_.end(), prompt.begin(), prompt.end()).first;
    const int64_t n_same = parted - held_.begin();
    const int64_t n_cut  = recurrent_.reach(std::min(n_same, n_max));
    const pds::checkpoint * found = recurrent_.empty() ? nullptr : prompt_cache_.find(prompt, n_max);
    if (found == nullptr || found->n_tokens() <= n_cut) {
        cut(n_cut);
        return;
    }
    load_rows(*found->rows, n_same);
    recurrent_.load(found->state, found->n_tokens());
    held_ = found->tokens;
}

// Rows of the first n_held positions are at hand.
void target_sequence::load_rows(const cached_rows & rows, int64_t n_held) {
    if (rows.before != nullptr) {
        load_rows(*rows.before, n_held);
    }
    if (rows.end <= n_held) {
        return;
    }
    cache_.load(rows.begin, rows.end, rows.bytes.data());
    if (draft_cache_ != nullptr) {
        const size_t n_target = static_cast<size_t>(rows.end - rows.begin) * cache_.row_bytes();
        draft_cache_->load(rows.begin, rows.end, rows.bytes.data() + n_target);
    }
}

void target_sequence::checkpoint() {
    const pds::checkpoint * before = prompt_cache_.find(held_, n_past());
    if (before != nullptr && before->n_tokens() == n_past()) {
        return;
    }
    const int64_t begin    = before == nullptr ? 0 : before->n_tokens();
    const auto    n_rows   = static_cast<size_t>(n_past() - begin);
    const size_t  n_target = n_rows * cache_.row_bytes();
    const size_t  n_draft  = draft_cache_ == nullptr ? 0 : n_rows * draft_cache_->row_bytes();
    const size_t  n_bytes  = n_target + n_draft + recurrent_.n_bytes();
    const auto    n_free   = static_cast<size_t>(std::max<int64_t>(memory_of(cpu_device()).free, 0));
    if (n_bytes > prompt_cache_.max_bytes() || n_bytes > n_free / 2) {
        return;
    }
    auto rows = std::make_shared<cached_rows>(before == nullptr ? nullptr : before->rows, begin, n_past(),
                                              std::vector<uint8_t>(n_target + n_draft));
    cache_.save(begin, n_past(), rows->bytes.data());
    if (draft_cache_ != nullptr) {
        draft_cache_->save(begin, n_past(), rows->bytes.data() + n_target);
    }
    replay();
    pds::checkpoint added = { held_, {}, std::move(rows) };
    recurrent_.save(added.state);
    prompt_cache_.add(std::move(added));
}

void target_sequence::clear() {
    held_.clear();
    cache_.clear();
    recurrent_.clear();
    if (draft_cache_ != nullptr) {
        draft_cache_->clear();
    }
}

attention_form target_sequence::block_attention() const {
    return params_.flash_attn != 0 ? attention_form::fused : attention_form::plain;
}

attention_form target_sequence::attention_of(const graph_shape & shape) const {
    if (params_.flash_attn == 0) {
        return attention_form::plain; // its rows do not depend on the batch
    }
    return params_.verify_exact != 0 && shape.n_tokens <= max_row_batch ? attention_form::fused_by_row
                                                                        : attention_form::fused;
}

build_options target_sequence::options_for(const graph_shape & shape) const {
    return { cache_, recurrent_, attention_of(shape),
             params_.fused_experts != 0 ? expert_form::fused : expert_form::plain };
}

std::unique_ptr<graph_context> target_sequence::build(const graph_shape & shape, std::set<std::string> taps) const {
    const build_options options = options_for(shape);
    if (draft_ == nullptr) {
        return model_.build(shape, options, std::move(taps));
    }
    auto g = model_.build(shape, options, std::move(taps), draft_->hparams.target_layers);
    draft_->inject(*g, *draft_cache_);
    return g;
}

graph_shape target_sequence::shape_for(size_t n_tokens, int32_t n_outputs) const {
    const int64_t n_end = n_past() + static_cast<int64_t>(n_tokens);
    graph_shape   shape = { static_cast<int32_t>(n_tokens), n_outputs, cache_.visible_rows(n_end) };
    if (attention_of(shape) == attention_form::fused_by_row) {
        shape.n_low = static_cast<int32_t>(std::max<int64_t>(shape.n_kv - kv_cache::row_step - n_past(), 0));
    }
    return shape;
}

const float * target_sequence::append(std::span<const int32_t> tokens, int32_t n_outputs, progress & progress) {
    graph_runner & runner = runner_for(shape_for(tokens.size(), n_outputs));
    run(runner, tokens, progress);
    return runner.logits();
}

void target_sequence::inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps,
                              progress & progress) {
    const graph_shape shape = shape_for(tokens.size(), static_cast<int32_t>(tokens.size()));
    graph_runner      runner(running_, build(shape, tap_names(taps)));
    check_taps(runner.description(), taps);
    run(runner, tokens, progress);
    read_taps(runner.description(), taps);
}

// The last state and the caches' rows behind the sequence are written, which the next batch does anyway.
void target_sequence::measure_stages(std::span<const int32_t> tokens, std::span<stage_times> times) {
    const graph_shape shape = shape_for(tokens.size(), static_cast<int32_t>(tokens.size()));
    stage_timed_graph graph(running_, build(shape));
    replay();
    for (stage_times & once : times) {
        once = {};
        set_inputs(graph.description(), tokens);
        graph.run(params_.n_threads, once);
    }
}

graph_runner & target_sequence::runner_for(const graph_shape & shape) {
    for (auto it = runners_.begin(); it != runners_.end(); ++it) {
        if (it->description().shape == shape) {
            runners_.splice(runners_.begin(), runners_, it);
            return runners_.front();
        }
    }
    if (shape.n_tokens >= large_batch) {
        runners_.remove_if([](const graph_runner & r) { return r.description().shape.n_tokens >= large_batch; });
    }
    if (runners_.size() == max_runners) {
        runners_.pop_back();
    }
    runners_.emplace_front(running_, build(shape));
    return runners_.front();
}

graph_runner & target_sequence::replay_runner_for(int32_t n_tokens) {
    for (graph_runner & runner : replay_runners_) {
        if (runner.description().shape.n_tokens == n_tokens) {
            return runner;
        }
    }
    replay_runners_.emplace_back(running_, model_.build_replay(n_tokens, options_for({ n_tokens, 1, 0 })));
    return replay_runners_.back();
}

// Not to be cancelled: it is short, and what it does was promised by a cut.
void target_sequence::replay() {
    const int32_t n_tokens = recurrent_.n_to_replay();
    if (n_tokens > 0) {
        graph_runner &           runner = replay_runner_for(n_tokens);
        const recurrent_inputs & in     = runner.description().recurrent;
        const int32_t            slot   = recurrent_.slot_to_read();
        set_tensor(in.slot, &slot);
        set_tensor(in.slots_out, recurrent_.slots_to_write(n_tokens).data());
        set_tensor(in.rows, recurrent_.inputs_to_replay(n_tokens).data());
        const stage_timer timer(graph_ms_total_);
        const stage_timer rollback_timer(rollback_ms_total_);
        progress          nobody;
        runner.run(params_.n_threads, nobody);
    }
    recurrent_.settle();
}

void target_sequence::set_inputs(const graph_context & g, std::span<const int32_t> tokens) {
    const auto           n_tokens = static_cast<size_t>(g.shape.n_tokens);
    std::vector<int32_t> pos(n_tokens);
    std::vector<int64_t> rows(n_tokens);
    for (size_t i = 0; i < n_tokens; i++) {
        rows[i] = n_past() + static_cast<int64_t>(i);
        pos[i]  = static_cast<int32_t>(rows[i]);
    }
    set_tensor(g.inputs.tokens, tokens.data());
    set_tensor(g.inputs.pos, pos.data());
    set_tensor(g.inputs.kv_rows, rows.data());

    std::vector<int32_t> out_ids(static_cast<size_t>(g.shape.n_outputs));
    for (size_t i = 0; i < out_ids.size(); i++) {
        out_ids[i] = static_cast<int32_t>(n_tokens - out_ids.size() + i);
    }
    set_tensor(g.inputs.out_ids, out_ids.data());

    if (!recurrent_.empty()) {
        const int32_t slot = recurrent_.slot_to_read();
        set_tensor(g.recurrent.slot, &slot);
        set_tensor(g.recurrent.slots_out, recurrent_.slots_to_write(g.shape.n_tokens).data());
        set_tensor(g.recurrent.rows, recurrent_.inputs_to_read().data());
        set_tensor(g.recurrent.rows_out, recurrent_.inputs_to_write(g.shape.n_tokens).data());
    }
    set_mask(g);
}

void target_sequence::set_mask(const graph_context & g) {
    const auto n_kv = static_cast<size_t>(g.shape.n_kv);
    mask_row_.assign(n_kv, f16_minus_inf); // row i sees positions 0 .. n_past + i
    std::fill_n(mask_row_.begin(), n_past(), f16_zero);
    for (size_t i = 0; i < static_cast<size_t>(g.shape.n_tokens); i++) {
        mask_row_[static_cast<size_t>(n_past()) + i] = f16_zero;
        ggml_backend_tensor_set(g.inputs.mask, mask_row_.data(), i * n_kv * sizeof(uint16_t), n_kv * sizeof(uint16_t));
    }
}

void target_sequence::run(graph_runner & runner, std::span<const int32_t> tokens, progress & progress) {
    PDS_REQUIRE(n_past() + static_cast<int64_t>(tokens.size()) <= params_.n_ctx, PDS_ERR_INTERNAL,
                "%zu tokens do not fit after %lld in a context of %d", tokens.size(), static_cast<long long>(n_past()),
                params_.n_ctx);
    replay();
    set_inputs(runner.description(), tokens);
    const bool is_prompt = static_cast<int32_t>(tokens.size()) >= large_batch;
    {
        const stage_timer timer(graph_ms_total_);
        runner.run(is_prompt ? params_.n_threads_batch : params_.n_threads, progress);
    }
    held_.insert(held_.end(), tokens.begin(), tokens.end());
    recurrent_.advance(static_cast<int32_t>(tokens.size()));
}

} // namespace pds
