#include "spec/draft-block.h"

#include "base/error.h"
#include "model/memory-report.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

constexpr size_t   max_prepared  = 4;
constexpr uint16_t f16_zero      = 0x0000;
constexpr uint16_t f16_minus_inf = 0xFC00;

// Rows of the draft head whose target id may not be emitted.
std::vector<int32_t> banned_rows(const draft_model & model) {
    const target_hparams & target = model.target().hparams;
    std::vector<bool>      banned(static_cast<size_t>(std::max(target.n_vocab_rows, model.hparams.n_vocab)), false);
    for (const int32_t id : target.banned) {
        banned[static_cast<size_t>(id)] = true;
    }
    const std::vector<int32_t> & ids = model.draft_to_ids();
    std::vector<int32_t>         rows;
    for (int32_t row = 0; row < model.n_draft_rows(); row++) {
        const int32_t id = ids.empty() ? row : ids[static_cast<size_t>(row)];
        if (id >= target.n_vocab || banned[static_cast<size_t>(id)]) {
            rows.push_back(row);
        }
    }
    return rows;
}

// The request's settings for rows of the draft head.
sampling_params draft_sampling(const sampling_params & given, const draft_model & model) {
    sampling_params params   = given;
    params.repeat_penalty    = 1.0f;
    params.presence_penalty  = 0.0f;
    params.frequency_penalty = 0.0f;
    params.bias.clear();
    const std::vector<int32_t> & ids = model.draft_to_ids();
    for (const auto & [id, value] : given.bias) {
        const auto    found = std::find(ids.begin(), ids.end(), id);
        const int32_t row   = ids.empty() ? id : static_cast<int32_t>(found - ids.begin());
        if (row < model.n_draft_rows()) {
            params.bias.emplace_back(row, value);
        }
    }
    return params;
}

} // namespace

draft_block::draft_block(const draft_model & model, target_sequence & sequence)
    : model_(model), sequence_(sequence), banned_(banned_rows(model)) {
}

void draft_block::report(pds_memory_report & out) {
    const int32_t     n_kv = sequence_.draft_cache().visible_rows(sequence_.n_ctx() + model_.hparams.block_size);
    const block_graph block =
        model_.build(n_kv, n_slots(), *this, sequence_.draft_cache(), sequence_.block_attention());
    const auto sizes = graph_runner::measure(sequence_.running(), *block.context);
    for (size_t i = 0; i < sizes.size(); i++) {
        const std::string name = ggml_backend_dev_name(ggml_backend_get_device(sequence_.running().all()[i]));
        memory_line_of(out, name).compute += static_cast<int64_t>(sizes[i] * max_prepared);
    }
    memory_line_of(out, cpu_device().name).compute +=
        static_cast<int64_t>(ggml_nbytes(block.context->inputs.mask) * max_prepared);
}

void draft_block::start(draft_rule rule, const sampling_params & params, uint64_t seed) {
    rule_                  = params.temperature <= 0 ? draft_rule::best : rule;
    seed_                  = seed;
    sampling_params mapped = draft_sampling(params, model_);
    mapped.temperature     = rule_ == draft_rule::best ? 0.0f : mapped.temperature;
    sampler_.emplace(mapped, model_.n_draft_rows(), banned_);
}

std::span<const drafted_token> draft_block::propose(int32_t anchor, int32_t n, progress & progress) {
    run(prepared_for(visible_rows(), n), anchor, progress);
    return drafted_;
}

std::span<const drafted_token> draft_block::inspect(int32_t anchor, int32_t n, const std::vector<tensor_tap> & taps,
                                                    progress & progress) {
    prepared p = prepare(visible_rows(), n, tap_names(taps));
    check_taps(p.runner.description(), taps);
    run(p, anchor, progress);
    read_taps(p.runner.description(), taps);
    return drafted_;
}

int32_t draft_block::visible_rows() const {
    return sequence_.draft_cache().visible_rows(sequence_.n_past() + model_.hparams.block_size);
}

draft_block::prepared & draft_block::prepared_for(int32_t n_kv, int32_t n_chain) {
    for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
        const graph_shape & shape = it->runner.description().shape;
        if (shape.n_kv == n_kv && shape.n_outputs == n_chain) {
            prepared_.splice(prepared_.begin(), prepared_, it);
            return prepared_.front();
        }
    }
    if (prepared_.size() == max_prepared) {
        prepared_.pop_back();
    }
    prepared_.push_front(prepare(n_kv, n_chain, {}));
    return prepared_.front();
}

draft_block::prepared draft_block::prepare(int32_t n_kv, int32_t n_chain, std::set<std::string> taps) {
    block_graph block =
        model_.build(n_kv, n_chain, *this, sequence_.draft_cache(), sequence_.block_attention(), std::move(taps));
    graph_runner runner(sequence_.running(), std::move(block.context));
    return { std::move(block), std::move(runner) };
}

void draft_block::set_inputs(const prepared & p, int32_t anchor) {
    const draft_hparams & hp     = model_.hparams;
    const graph_inputs &  inputs = p.runner.description().inputs;
    const auto            n      = static_cast<size_t>(hp.block_size);
    const auto            n_kv   = static_cast<size_t>(p.runner.description().shape.n_kv);
    const int64_t         n_past = sequence_.n_past();

    std::vector<int32_t> tokens(n, hp.mask_embd.empty() ? hp.mask_token_id : 0);
    std::vector<int32_t> pos(n);
    std::vector<int64_t> rows(n);
    tokens[0] = anchor;
    for (size_t i = 0; i < n; i++) {
        rows[i] = n_past + static_cast<int64_t>(i);
        pos[i]  = static_cast<int32_t>(rows[i]);
    }
    ggml_backend_tensor_set(inputs.tokens, tokens.data(), 0, ggml_nbytes(inputs.tokens));
    ggml_backend_tensor_set(inputs.pos, pos.data(), 0, ggml_nbytes(inputs.pos));
    ggml_backend_tensor_set(inputs.kv_rows, rows.data(), 0, ggml_nbytes(inputs.kv_rows));

    // every slot sees the context and the whole block, in both directions; rows behind it are of rejected tokens
    const auto n_visible = static_cast<size_t>(n_past) + n;
    mask_.assign(n_kv * n, f16_minus_inf);
    for (size_t i = 0; i < n; i++) {
        std::fill_n(mask_.begin() + static_cast<int64_t>(i * n_kv), n_visible, f16_zero);
    }
    ggml_backend_tensor_set(inputs.mask, mask_.data(), 0, ggml_nbytes(inputs.mask));
    if (p.block.windowed_mask != nullptr) {
        for (size_t i = 0; i < n; i++) { // a window counts back from each slot
            const int64_t first = std::clamp<int64_t>(rows[i] - hp.window + 1, 0, static_cast<int64_t>(n_visible));
            std::fill_n(mask_.begin() + static_cast<int64_t>(i * n_kv), first, f16_minus_inf);
        }
        ggml_backend_tensor_set(p.block.windowed_mask, mask_.data(), 0, ggml_nbytes(p.block.windowed_mask));
    }
}

void draft_block::run(prepared & p, int32_t anchor, progress & progress) {
    drafted_.resize(p.block.outputs.size());
    set_inputs(p, anchor);
    p.runner.run(sequence_.n_threads(), progress);
    rethrow();
    for (size_t i = 0; i < drafted_.size(); i++) {
        if (p.block.outputs[i].confidence != nullptr) {
            float logit = 0;
            graph_runner::read(p.block.outputs[i].confidence, &logit, 1);
            drafted_[i].confidence = 1.0f / (1.0f + std::exp(-logit));
        }
    }
}

// Runs inside the graph.
int32_t draft_block::draw(std::span<const float> logits, int32_t slot) {
    drafted_token &                token = drafted_[static_cast<size_t>(slot)];
    const std::vector<int32_t> &   ids   = model_.draft_to_ids();
    const std::vector<candidate> & rows  = sampler_->distribution(logits);
    token.q                              = rows;
    for (candidate & c : token.q) {
        c.id = ids.empty() ? c.id : ids[static_cast<size_t>(c.id)];
    }
    token.id = draw_draft(rule_, token.q, { seed_, static_cast<uint64_t>(sequence_.n_past() + 1) }, slot);
    const auto chosen =
        std::find_if(token.q.begin(), token.q.end(), [&](const candidate & c) { return c.id == token.id; });
    const int32_t row = rows[static_cast<size_t>(chosen - token.q.begin())].id;
    if (rule_ != draft_rule::drawn) {
        token.q.clear();
    }
    return row;
}

} // namespace pds
