#include "spec/draft-block.h"

#include "base/error.h"
#include "model/memory-report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pds {

namespace {

constexpr size_t   max_prepared  = 4;
constexpr uint16_t f16_zero      = 0x0000;
constexpr uint16_t f16_minus_inf = 0xFC00;
constexpr float    infinity      = std::numeric_limits<float>::infinity();

// Target id of each row of the draft head.
std::vector<int32_t> ids_of_rows(const draft_model & model) {
    std::vector<int32_t> ids = model.draft_to_ids();
    if (ids.empty()) {
        ids.resize(static_cast<size_t>(model.n_draft_rows()));
        std::iota(ids.begin(), ids.end(), 0);
    }
    return ids;
}

// What a request adds to the logits of the draft head's rows, for their target ids. Its penalties stay out of it.
std::vector<scored_token> row_bias(const sampling_params & params, const target_hparams & target,
                                   std::span<const int32_t> row_ids) {
    std::vector<float> bias_of(static_cast<size_t>(std::max(target.n_vocab_rows, target.n_vocab)), 0.0f);
    for (const auto & [id, value] : params.bias) {
        bias_of[static_cast<size_t>(id)] += value;
    }
    for (const int32_t id : target.banned) {
        bias_of[static_cast<size_t>(id)] = -infinity;
    }
    std::vector<scored_token> bias;
    for (size_t row = 0; row < row_ids.size(); row++) {
        const int32_t id    = row_ids[row];
        const float   value = id < target.n_vocab ? bias_of[static_cast<size_t>(id)] : -infinity;
        if (value != 0) {
            bias.push_back({ static_cast<int32_t>(row), value });
        }
    }
    return bias;
}

} // namespace

draft_block::draft_block(const draft_model & model, target_sequence & sequence)
    : model_(model), sequence_(sequence), row_ids_(ids_of_rows(model)), candidates_(static_cast<size_t>(n_slots())) {
    if (model.has_short_list()) {
        text_rows_.emplace(model);
    }
}

void draft_block::report(pds_memory_report & out) {
    const int32_t     n_kv  = sequence_.draft_cache().visible_rows(sequence_.n_ctx() + model_.hparams.block_size);
    const block_graph block = build(n_kv, n_slots(), {});
    const auto        sizes = graph_runner::measure(sequence_.running(), *block.context);
    for (size_t i = 0; i < sizes.size(); i++) {
        const std::string name = ggml_backend_dev_name(ggml_backend_get_device(sequence_.running().all()[i]));
        memory_line_of(out, name).compute += static_cast<int64_t>(sizes[i] * max_prepared);
    }
    memory_line_of(out, cpu_device().name).compute +=
        static_cast<int64_t>(ggml_nbytes(block.context->inputs.mask) * max_prepared);
    if (text_rows_) {
        text_rows_->report(out);
    }
}

void draft_block::start(draft_rule rule, const sampling_params & params, uint64_t seed, token_masks & masks) {
    masks_ = &masks;
    rule_  = params.temperature <= 0 ? draft_rule::best : rule;
    seed_  = seed;
    sampler_.emplace(truncation{ .temperature = rule_ == draft_rule::best ? 0.0f : params.temperature,
                                 .top_k       = params.top_k,
                                 .top_p       = params.top_p,
                                 .min_p       = params.min_p },
                     row_bias(params, model_.target().hparams, row_ids_));
    if (text_rows_) {
        text_rows_->start();
    }
}

std::span<const drafted_token> draft_block::propose(int32_t anchor, int32_t n, progress & progress) {
    return run(prepared_for(visible_rows(), n), anchor, progress);
}

std::span<const drafted_token> draft_block::inspect(int32_t anchor, int32_t n, const std::vector<tensor_tap> & taps,
                                                    progress & progress) {
    prepared p = prepare(visible_rows(), n, tap_names(taps));
    check_taps(p.runner.description(), taps);
    const auto drafts = run(p, anchor, progress);
    read_taps(p.runner.description(), taps);
    return drafts;
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

block_graph draft_block::build(int32_t n_kv, int32_t n_chain, std::set<std::string> taps) {
    return model_.build(n_kv, n_chain, *this, sequence_.draft_cache(), sequence_.block_attention(),
                        text_rows_ ? text_rows_->tensors() : nullptr, std::move(taps));
}

draft_block::prepared draft_block::prepare(int32_t n_kv, int32_t n_chain, std::set<std::string> taps) {
    block_graph  block = build(n_kv, n_chain, std::move(taps));
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

// Gives rows to the tokens that the text has used since the last block.
void draft_block::read_text(int32_t anchor) {
    const std::span<const int32_t> held = sequence_.tokens();
    while (text_rows_->n_seen() < static_cast<int64_t>(held.size())) {
        text_rows_->see(held[static_cast<size_t>(text_rows_->n_seen())]);
    }
    if (text_rows_->n_seen() == static_cast<int64_t>(held.size())) {
        text_rows_->see(anchor);
    }
}

std::span<const drafted_token> draft_block::run(prepared & p, int32_t anchor, progress & progress) {
    if (text_rows_) {
        read_text(anchor);
    }
    drafted_.resize(p.block.outputs.size());
    n_drafted_ = drafted_.size();
    path_.clear();
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
    return std::span<const drafted_token>(drafted_).first(n_drafted_);
}

int32_t draft_block::id_of(int32_t row) const {
    const auto at = static_cast<size_t>(row);
    return at < row_ids_.size() ? row_ids_[at] : text_rows_->ids()[at - row_ids_.size()];
}

// Runs inside the graph.
void draft_block::choose(std::span<const float> base, int32_t slot, std::span<int32_t> rows,
                         std::span<int32_t> table_rows) {
    std::vector<int32_t> & chosen = candidates_[static_cast<size_t>(slot)];
    sampler_->choose(base, rows.size(), chosen);
    std::copy(chosen.begin(), chosen.end(), rows.begin()); // those behind are not looked at
    for (size_t i = 0; i < chosen.size(); i++) {
        table_rows[i] = model_.has_short_list() ? id_of(chosen[i]) : chosen[i];
    }
}

// What a slot draws from: rows, without those that may not follow what was drawn before.
const std::vector<candidate> & draft_block::distribution(std::span<const float> logits, int32_t slot) {
    const bool                   is_some = model_.n_candidates() > 0;
    const std::vector<int32_t> & some    = candidates_[static_cast<size_t>(slot)];
    std::span<const float>       scores  = is_some ? logits.first(some.size()) : logits;
    const token_mask             allowed = masks_->after(path_);
    if (!allowed.empty()) {
        masked_.assign(scores.begin(), scores.end());
        for (size_t i = 0; i < masked_.size(); i++) {
            if (!allows(allowed, id_of(is_some ? some[i] : static_cast<int32_t>(i)))) {
                masked_[i] = -infinity;
            }
        }
        scores = masked_;
    }
    return is_some ? sampler_->distribution(some, scores) : sampler_->distribution(scores);
}

// Runs inside the graph.
int32_t draft_block::draw(std::span<const float> logits, int32_t slot) {
    if (static_cast<size_t>(slot) >= n_drafted_) {
        return 0;
    }
    drafted_token & token = drafted_[static_cast<size_t>(slot)];
    token.q               = distribution(logits, slot);
    for (candidate & c : token.q) {
        c.id = id_of(c.id);
    }
    if (token.q.empty()) { // every row is banned or masked: only the target can tell what is left
        n_drafted_ = std::min(n_drafted_, static_cast<size_t>(slot));
        return 0;
    }
    token.id = draw_draft(rule_, token.q, { seed_, static_cast<uint64_t>(sequence_.n_past() + 1) }, slot);
    if (rule_ != draft_rule::drawn) {
        token.q.clear();
    }
    path_.push_back(token.id);
    return token.id;
}

} // namespace pds
