#include "spec/session.h"

#include "base/error.h"
#include "base/timing.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

constexpr int32_t max_top_logprobs = 20;

sampling_params read_sampling(const pds_request & request) {
    sampling_params params;
    params.temperature       = request.temperature;
    params.top_k             = request.top_k;
    params.top_p             = request.top_p;
    params.min_p             = request.min_p;
    params.repeat_penalty    = request.repeat_penalty;
    params.presence_penalty  = request.presence_penalty;
    params.frequency_penalty = request.frequency_penalty;
    params.repeat_last_n     = request.repeat_last_n;
    params.seed              = request.seed;
    for (int64_t i = 0; i < request.n_bias; i++) {
        params.bias.emplace_back(request.bias_ids[i], request.bias_values[i]);
    }
    return params;
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

} // namespace

session::session(std::shared_ptr<const target_model> model, const pds_session_params & params)
    : model_(std::move(model)), sequence_(*model_, params) {
    model_->report_weights(memory_);
    sequence_.report(memory_);
    sequence_.allocate(memory_);
}

progress session::make_progress(pds_progress_fn fn, void * user) {
    cancelled_.store(false, std::memory_order_relaxed);
    return progress(fn, user, &cancelled_);
}

void session::check_prompt(const pds_request & request) const {
    PDS_REQUIRE(request.n_tokens > 0, PDS_ERR_ARGUMENT, "the prompt is empty; at least one token is needed");
    for (int64_t i = 0; i < request.n_tokens; i++) {
        PDS_REQUIRE(request.tokens[i] >= 0 && request.tokens[i] < model_->hparams.n_vocab, PDS_ERR_ARGUMENT,
                    "token %lld of the prompt is %d; ids of this model are 0..%d", static_cast<long long>(i),
                    request.tokens[i], model_->hparams.n_vocab - 1);
    }
    if (request.n_tokens >= sequence_.n_ctx()) {
        throw error(PDS_ERR_CONTEXT_FULL,
                    format("the prompt has %lld tokens, and the context holds %d together with the answer; shorten the "
                           "prompt or raise n_ctx",
                           static_cast<long long>(request.n_tokens), sequence_.n_ctx()),
                    request.n_tokens, sequence_.n_ctx());
    }
    PDS_REQUIRE(request.top_logprobs >= 0 && request.top_logprobs <= max_top_logprobs, PDS_ERR_ARGUMENT,
                "top_logprobs is %d; it must be in 0..%d", request.top_logprobs, max_top_logprobs);
}

void session::start(const pds_request & request, progress & progress) {
    finish_ = PDS_FINISH_LENGTH; // until the prompt is in, there is nothing to step
    check_prompt(request);
    sampler_.emplace(read_sampling(request), model_->hparams.n_vocab_rows, model_->hparams.banned);
    stop_ids_.assign(request.stop_ids, request.stop_ids + request.n_stop_ids);
    n_predict_    = request.n_predict;
    logprobs_     = request.logprobs;
    top_logprobs_ = request.top_logprobs;
    logits_       = nullptr;
    pending_.reset();
    stats_ = {};

    const std::span<const int32_t> prompt(request.tokens, static_cast<size_t>(request.n_tokens));
    if (request.reuse_prefix == 0) {
        sequence_.cut(0);
    }
    // the last token always runs: its row is what the first new token is drawn from
    sequence_.cut(static_cast<int64_t>(std::min(common_prefix(sequence_.tokens(), prompt), prompt.size() - 1)));
    stats_.cache_n = sequence_.n_past();
    {
        const stage_timer timer(stats_.prompt_ms);
        prefill(prompt, progress);
    }
    for (const int32_t id : prompt) {
        sampler_->accept(id);
    }
    finish_ = n_predict_ == 0 ? PDS_FINISH_LENGTH : PDS_FINISH_NONE;
}

void session::prefill(std::span<const int32_t> prompt, progress & progress) {
    const int64_t n_new = static_cast<int64_t>(prompt.size()) - sequence_.n_past();
    while (sequence_.n_past() < static_cast<int64_t>(prompt.size())) {
        const auto rest = prompt.subspan(static_cast<size_t>(sequence_.n_past()));
        const auto part = rest.first(std::min(rest.size(), static_cast<size_t>(sequence_.batch_rows())));
        logits_         = sequence_.append(part, 1, progress);
        stats_.prompt_n += static_cast<int64_t>(part.size());
        progress.set_fraction(static_cast<double>(stats_.prompt_n) / static_cast<double>(n_new));
    }
}

pds_step session::step(progress & progress) {
    pds_step out = {};
    out.stop_id  = -1;
    if (finish_ != PDS_FINISH_NONE) {
        out.finish = finish_;
        return out;
    }
    const stage_timer timer(stats_.predicted_ms);
    const stopwatch   watch;
    const double      graph_ms = sequence_.graph_ms();
    if (pending_) {
        logits_  = sequence_.append({ &*pending_, 1 }, 1, progress);
        pending_ = std::nullopt;
    }
    const std::span<const float> row(logits_, static_cast<size_t>(model_->hparams.n_vocab_rows));
    const int32_t                id = sampler_->sample(row, static_cast<uint64_t>(sequence_.n_past()));
    stats_.n_rounds++;
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
        out.stop_id = id;
        finish_     = PDS_FINISH_STOP_ID;
    } else {
        out.tokens[out.n_tokens] = id;
        report_logprobs(out, out.n_tokens);
        out.n_tokens++;
        stats_.predicted_n++;
        sampler_->accept(id);
        pending_ = id;
        if (stats_.predicted_n == n_predict_) {
            finish_ = PDS_FINISH_LENGTH;
        } else if (sequence_.n_past() + 1 == sequence_.n_ctx()) {
            finish_ = PDS_FINISH_CONTEXT;
        }
    }
    out.finish = finish_;
    stats_.host_ms += watch.elapsed_ms() - (sequence_.graph_ms() - graph_ms);
    return out;
}

void session::report_logprobs(pds_step & out, int32_t index) const {
    if (logprobs_ == 0) {
        return;
    }
    const std::span<const float> row(logits_, static_cast<size_t>(model_->hparams.n_vocab));
    std::vector<token_logprob>   top;
    row_logprobs(row, out.tokens[index], top_logprobs_, out.logprob[index], top);
    for (int32_t i = 0; i < max_top_logprobs; i++) {
        const auto slot       = static_cast<size_t>(index * max_top_logprobs + i);
        const bool used       = static_cast<size_t>(i) < top.size();
        out.top_ids[slot]     = used ? top[static_cast<size_t>(i)].id : -1;
        out.top_logprob[slot] = used ? top[static_cast<size_t>(i)].logprob : 0.0f;
    }
}

void session::reset() {
    sequence_.clear();
    sampler_.reset();
    pending_.reset();
    logits_ = nullptr;
    finish_ = PDS_FINISH_LENGTH;
}

void session::end_request() {
    finish_ = PDS_FINISH_LENGTH;
    pending_.reset();
}

void session::inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress) {
    end_request();
    for (const int32_t id : tokens) {
        PDS_REQUIRE(id >= 0 && id < model_->hparams.n_vocab, PDS_ERR_ARGUMENT, "token id %d is not in 0..%d", id,
                    model_->hparams.n_vocab - 1);
    }
    PDS_REQUIRE(!tokens.empty() && sequence_.n_past() + static_cast<int64_t>(tokens.size()) <= sequence_.n_ctx(),
                PDS_ERR_ARGUMENT, "%zu tokens cannot be appended to %lld in a context of %d", tokens.size(),
                static_cast<long long>(sequence_.n_past()), sequence_.n_ctx());
    sequence_.inspect(tokens, taps, progress);
}

void session::measure(int32_t n_tokens, std::span<double> ms, progress & progress) {
    end_request();
    const int64_t n_past = sequence_.n_past();
    PDS_REQUIRE(n_tokens >= 1 && n_tokens <= sequence_.batch_rows() && n_past + n_tokens <= sequence_.n_ctx(),
                PDS_ERR_ARGUMENT, "a batch of %d cannot be measured after %lld tokens, with n_ubatch %d and n_ctx %d",
                n_tokens, static_cast<long long>(n_past), sequence_.batch_rows(), sequence_.n_ctx());
    const std::vector<int32_t> tokens(static_cast<size_t>(n_tokens), 0);
    for (double & value : ms) {
        const stopwatch watch;
        sequence_.append(tokens, n_tokens, progress);
        value = watch.elapsed_ms();
        sequence_.cut(n_past);
    }
}

} // namespace pds
