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
    for (int64_t i = 0; i < request.n_bias; i++) {
        params.bias.emplace_back(request.bias_ids[i], request.bias_values[i]);
    }
    return params;
}

// Tokens that are far apart, so that a batch of them needs the experts that different tokens need.
std::vector<int32_t> spread_tokens(int32_t n_tokens, int32_t n_vocab) {
    std::vector<int32_t> tokens(static_cast<size_t>(n_tokens));
    for (int32_t i = 0; i < n_tokens; i++) {
        tokens[static_cast<size_t>(i)] = static_cast<int32_t>(int64_t{ n_vocab } * i / n_tokens);
    }
    return tokens;
}

draft_rule read_draft_rule(const pds_request & request) {
    switch (request.draft_sampling) {
    case PDS_DRAFT_GREEDY:
        return draft_rule::best;
    case PDS_DRAFT_COUPLED:
        return draft_rule::coupled;
    default:
        return draft_rule::drawn;
    }
}

accept_rule read_accept_rule(const pds_request & request) {
    if (request.draft_sampling == PDS_DRAFT_COUPLED) {
        return accept_rule::coupled;
    }
    return request.block_verify != 0 ? accept_rule::by_block : accept_rule::by_token;
}

int32_t learnt_kind(const pds_request & request) {
    if (request.temperature <= 0) {
        return PDS_LEARNT_GREEDY;
    }
    switch (request.draft_sampling) {
    case PDS_DRAFT_GREEDY:
        return PDS_LEARNT_CERTAIN;
    case PDS_DRAFT_COUPLED:
        return PDS_LEARNT_COUPLED;
    default:
        return PDS_LEARNT_DRAWN;
    }
}

// Where the prompt is likely to be shared: as the request says, or before its last token.
std::vector<int64_t> read_boundaries(const pds_request & request) {
    std::vector<int64_t> boundaries(request.boundaries, request.boundaries + request.n_boundaries);
    for (size_t i = 0; i < boundaries.size(); i++) {
        const int64_t low = i == 0 ? 1 : boundaries[i - 1] + 1;
        PDS_REQUIRE(boundaries[i] >= low && boundaries[i] <= request.n_tokens, PDS_ERR_ARGUMENT,
                    "boundary %zu is %lld; boundaries are ascending, in 1..%lld", i,
                    static_cast<long long>(boundaries[i]), static_cast<long long>(request.n_tokens));
    }
    return boundaries.empty() ? std::vector<int64_t>{ request.n_tokens - 1 } : boundaries;
}

} // namespace

session::session(std::shared_ptr<const target_model> model, std::shared_ptr<const draft_model> draft,
                 const pds_session_params & params)
    : model_(std::move(model)), draft_model_(std::move(draft)), sequence_(*model_, draft_model_.get(), params) {
    model_->report_weights(memory_);
    sequence_.report(memory_);
    if (draft_model_ != nullptr) {
        draft_model_->report_weights(memory_);
        block_.emplace(*draft_model_, sequence_);
        block_->report(memory_);
    }
    if (params.lookup_match > 0) {
        lookup_.emplace(params.lookup_match);
    }
    sequence_.allocate(memory_);
}

progress session::make_progress(pds_progress_fn fn, void * user) {
    cancelled_.store(false, std::memory_order_relaxed);
    return progress(fn, user, &cancelled_);
}

void session::check_ids(std::span<const int32_t> tokens) const {
    for (size_t i = 0; i < tokens.size(); i++) {
        PDS_REQUIRE(tokens[i] >= 0 && tokens[i] < model_->hparams.n_vocab, PDS_ERR_ARGUMENT,
                    "token %zu is %d; ids of this model are 0..%d", i, tokens[i], model_->hparams.n_vocab - 1);
    }
}

void session::check_prompt(const pds_request & request) const {
    PDS_REQUIRE(request.n_tokens > 0, PDS_ERR_ARGUMENT, "the prompt is empty; at least one token is needed");
    check_ids({ request.tokens, static_cast<size_t>(request.n_tokens) });
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

depth_settings session::read_depth_settings(const pds_request & request) const {
    depth_settings settings;
    settings.schedule = request.draft_schedule;
    settings.conf_min = request.draft_conf_min;
    settings.kind     = learnt_kind(request);
    PDS_REQUIRE(request.n_lookup_max >= 0 && request.n_lookup_max <= most_copied_tokens, PDS_ERR_ARGUMENT,
                "n_lookup_max is %d; it must be in 0..%d", request.n_lookup_max, most_copied_tokens);
    settings.n_lookup = lookup_ && request.n_draft_max != 0 ? request.n_lookup_max : 0;
    if (!block_ || request.n_draft_max == 0) {
        return settings;
    }
    settings.has_confidence = draft_model_->has_confidence();
    PDS_REQUIRE(settings.conf_min <= 0 || settings.has_confidence, PDS_ERR_ARGUMENT,
                "draft_conf_min is %g, but this drafter has no confidence head; use 0",
                static_cast<double>(settings.conf_min));
    settings.n_slots = request.n_draft_max < 0 ? block_->n_slots() : std::min(request.n_draft_max, block_->n_slots());
    return settings;
}

void session::start(const pds_request & request, progress & progress) {
    end_request();
    check_prompt(request);
    sampling_params      sampling = read_sampling(request);
    const depth_settings depths   = read_depth_settings(request);
    n_draft_max_                  = depths.n_slots;
    n_lookup_max_                 = depths.n_lookup;
    accept_rule_                  = read_accept_rule(request);
    boundaries_                   = read_boundaries(request);
    sampler_.emplace(sampling, model_->hparams.n_vocab_rows, model_->hparams.banned);
    masks_.start(request.mask, request.mask_user, model_->hparams.n_vocab_rows);
    if (n_draft_max_ > 0) {
        block_->start(read_draft_rule(request), sampling, request.seed, masks_);
    }
    seed_ = request.seed;
    stop_ids_.assign(request.stop_ids, request.stop_ids + request.n_stop_ids);
    n_predict_    = request.n_predict;
    logprobs_     = request.logprobs;
    top_logprobs_ = request.top_logprobs;
    stats_        = {};

    const std::span<const int32_t> prompt(request.tokens, static_cast<size_t>(request.n_tokens));
    if (request.reuse_prefix != 0) {
        sequence_.resume(prompt);
    } else {
        sequence_.cut(0);
    }
    stats_.cache_n = sequence_.n_past();
    if (!chooser_.knows_costs(depths)) {
        measure_costs(depths, progress);
    }
    chooser_.start(depths);
    {
        const stage_timer timer(stats_.prompt_ms);
        prefill(prompt, progress);
    }
    for (const int32_t id : prompt) {
        sampler_->accept(id);
    }
    if (n_lookup_max_ > 0) {
        lookup_->start(prompt);
    }
    finish_ = n_predict_ == 0 ? PDS_FINISH_LENGTH : PDS_FINISH_NONE;
}

// Once per session with nothing known: batches of a few sizes, and blocks. Short ones twice, for the first one also
// builds its graph.
void session::measure_costs(const depth_settings & settings, progress & progress) {
    constexpr double long_ms = 50;
    const int64_t    n_past  = sequence_.n_past();
    const auto       twice   = [](auto && once) {
        const double first = once();
        return first < long_ms ? std::min(first, once()) : first;
    };
    for (const int32_t n_rows : depth_chooser::rows_to_measure(settings)) {
        if (n_rows > sequence_.batch_rows() || n_past + n_rows > sequence_.n_ctx()) {
            continue;
        }
        const std::vector<int32_t> tokens = spread_tokens(n_rows, model_->hparams.n_vocab);
        chooser_.observe_verify(n_rows, n_past, twice([&] {
                                    const stopwatch watch;
                                    sequence_.append(tokens, n_rows, progress);
                                    const double ms = watch.elapsed_ms();
                                    sequence_.cut(n_past);
                                    return ms;
                                }));
    }
    if (depth_chooser::must_know_drafting(settings) && n_past + settings.n_slots < sequence_.n_ctx()) {
        chooser_.observe_draft(settings.n_slots, n_past, twice([&] {
                                   const stopwatch watch;
                                   block_->propose(0, settings.n_slots, progress);
                                   return watch.elapsed_ms();
                               }));
    }
}

void session::prefill(std::span<const int32_t> prompt, progress & progress) {
    const int64_t n_new = static_cast<int64_t>(prompt.size()) - sequence_.n_past();
    while (sequence_.n_past() < static_cast<int64_t>(prompt.size())) {
        const auto rest = prompt.subspan(static_cast<size_t>(sequence_.n_past()));
        const auto n_to = static_cast<size_t>(next_boundary(static_cast<int64_t>(prompt.size())) - sequence_.n_past());
        const auto part = rest.first(std::min(n_to, static_cast<size_t>(sequence_.batch_rows())));
        logits_         = sequence_.append(part, 1, progress);
        if (sequence_.needs_checkpoints() &&
            std::binary_search(boundaries_.begin(), boundaries_.end(), sequence_.n_past())) {
            sequence_.checkpoint();
        }
        stats_.prompt_n += static_cast<int64_t>(part.size());
        progress.set_fraction(static_cast<double>(stats_.prompt_n) / static_cast<double>(n_new));
    }
    base_ = sequence_.n_past() - 1;
}

// Batches end at boundaries, so that a prompt is evaluated in the same parts whether its beginning was held or not.
int64_t session::next_boundary(int64_t n_prompt) const {
    if (sequence_.needs_checkpoints()) {
        for (const int64_t boundary : boundaries_) {
            if (boundary > sequence_.n_past()) {
                return boundary;
            }
        }
    }
    return n_prompt;
}

pds_step session::step(progress & progress) {
    pds_step out = {};
    out.stop_id  = -1;
    if (finish_ == PDS_FINISH_NONE) {
        const stage_timer timer(stats_.predicted_ms);
        const stopwatch   watch;
        const double      graph_ms    = sequence_.graph_ms() + stats_.draft_ms;
        const double      rollback_ms = sequence_.rollback_ms();
        const double      draft_ms    = stats_.draft_ms;
        const bool        is_round    = pending_.has_value(); // not the prompt's last row
        const auto        drafts      = draft(progress);
        const stopwatch   verify_watch;
        verify(drafts, progress);
        try {
            const verdict verdict = accept(drafts);
            commit(drafts, verdict, out);
            if (is_round) {
                learn(drafts, verdict.n_accepted, verdict.n_accepted + 1,
                      { stats_.draft_ms - draft_ms, verify_watch.elapsed_ms(), sequence_.rollback_ms() - rollback_ms });
            }
        } catch (...) { // rows that cannot be drawn from: forget them, and the request
            sequence_.cut(base_ + 1);
            end_request();
            throw;
        }
        stats_.host_ms += watch.elapsed_ms() - (sequence_.graph_ms() + stats_.draft_ms - graph_ms);
    }
    out.finish = finish_;
    return out;
}

// What the rest of the context and of the answer leave of a wanted number of drafts.
int64_t session::most_drafts(int32_t wanted) const {
    const int64_t room = sequence_.n_ctx() - sequence_.n_past() - 2;
    const int64_t left = n_predict_ < 0 ? room : n_predict_ - stats_.predicted_n - 1;
    return std::min({ static_cast<int64_t>(wanted), room, left });
}

// The tokens to verify.
std::span<const drafted_token> session::draft(progress & progress) {
    choice_ = {};
    if (!pending_) {
        return {};
    }
    const int64_t n_max    = most_drafts(n_draft_max_);
    const int64_t n_lookup = most_drafts(n_lookup_max_);
    const auto    copied   = n_lookup > 0 ? lookup_->propose(n_lookup) : std::span<const drafted_token>();
    if (n_max <= 0 && copied.empty()) {
        return {};
    }
    switch (chooser_.before(static_cast<int32_t>(std::max<int64_t>(n_max, 0)), copied, sequence_.n_past())) {
    case draft_source::nobody:
        choice_.reason = depth_reason::parked;
        return {};
    case draft_source::lookup:
        stats_.draft_rounds++;
        choice_ = chooser_.choose_copied(copied, 0);
        return copied.first(static_cast<size_t>(choice_.n_drafts));
    default:
        return draft_by_block(n_max, n_lookup, progress);
    }
}

// The drafter's tokens, and behind them, if all of them are verified, what followed these earlier in the text.
std::span<const drafted_token> session::draft_by_block(int64_t n_max, int64_t n_lookup, progress & progress) {
    const stage_timer timer(stats_.draft_ms);
    auto              drafts = block_->propose(*pending_, n_draft_max_, progress);
    drafts                   = drafts.first(std::min(drafts.size(), static_cast<size_t>(n_max)));
    if (synthetic_) {
        drafts = synthetic_->with_confidence(drafts);
    }
    stats_.draft_rounds++;
    choice_ = chooser_.choose(drafts);
    if (choice_.n_drafts == n_draft_max_ && n_lookup > n_draft_max_) {
        drafts  = lookup_->extend(drafts, n_lookup);
        choice_ = chooser_.choose_copied(drafts, n_draft_max_);
    }
    return drafts.first(static_cast<size_t>(choice_.n_drafts));
}

void session::verify(std::span<const drafted_token> drafts, progress & progress) {
    if (!pending_) {
        return; // the prompt's last row is at hand
    }
    const stage_timer    timer(stats_.verify_ms);
    std::vector<int32_t> batch = { *pending_ };
    for (const drafted_token & token : drafts) {
        batch.push_back(token.id);
    }
    const int64_t n_past = sequence_.n_past();
    logits_              = sequence_.append(batch, static_cast<int32_t>(batch.size()), progress);
    base_                = n_past;
    pending_.reset();
}

verdict session::accept(std::span<const drafted_token> drafts) {
    ahead_ = *sampler_;
    sampled_rows  rows(*ahead_, masks_, [this](int32_t row) { return logits_row(row); });
    noted_rows    noted(rows, drafts);
    const auto    position = static_cast<uint64_t>(base_ + 1);
    const verdict verdict  = synthetic_ ? synthetic_->judge(drafts, noted, position)
                                        : accept_drafts(accept_rule_, drafts, noted, { seed_, position });
    labels_.assign(noted.labels().begin(), noted.labels().end());
    return verdict;
}

// Slots behind the first rejected one were judged after a text that did not come about: they teach nothing.
void session::learn(std::span<const drafted_token> drafts, int32_t n_accepted, int32_t n_tokens,
                    const round_times & times) {
    stats_.depths[drafts.size()]++;
    stats_.reasons[static_cast<size_t>(choice_.reason)]++;
    labels_.resize(std::min({ labels_.size(), drafts.size(), static_cast<size_t>(n_accepted) + 1 }));
    if (synthetic_ || accept_rule_ == accept_rule::coupled) { // shared noise accepts by more than chance
        for (size_t i = 0; i < labels_.size(); i++) {
            labels_[i] = static_cast<int32_t>(i) < n_accepted ? 1 : 0;
        }
    }
    chooser_.after({ drafts, labels_, n_tokens, base_, times.draft, times.verify, times.rollback });
    stats_.saved_ms = chooser_.saved_ms();
}

// Emits up to the first end of generation, and leaves the caches as if only what was emitted had been decoded.
void session::commit(std::span<const drafted_token> drafts, const verdict & verdict, pds_step & out) {
    count(drafts, out);
    for (int32_t i = 0; i < verdict.n_accepted && finish_ == PDS_FINISH_NONE; i++) {
        emit(drafts[static_cast<size_t>(i)].id, i, out);
        if (finish_ != PDS_FINISH_STOP_ID) {
            stats_.draft_n_accepted++;
            stats_.accepted_at[i]++;
            stats_.lookup_accepted_at[i] += i < out.n_by_drafter ? 0 : 1;
        }
    }
    if (finish_ == PDS_FINISH_NONE) {
        emit(verdict.next, verdict.n_accepted, out);
    }
    if (n_lookup_max_ > 0) {
        lookup_->learn({ out.tokens, static_cast<size_t>(out.n_tokens) });
    }
    sequence_.cut(base_ + 1 + out.n_tokens - (pending_ ? 1 : 0));
}

void session::count(std::span<const drafted_token> drafts, pds_step & out) {
    stats_.n_rounds++;
    out.n_by_drafter = n_by_drafter(drafts);
    for (size_t i = 0; i < drafts.size(); i++) {
        stats_.draft_n++;
        stats_.drafted_at[i]++;
        stats_.lookup_drafted_at[i] += static_cast<int32_t>(i) < out.n_by_drafter ? 0 : 1;
    }
    stats_.lookup_rounds += static_cast<size_t>(out.n_by_drafter) < drafts.size() ? 1 : 0;
}

void session::emit(int32_t id, int32_t row, pds_step & out) {
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
        out.stop_id = id;
        finish_     = PDS_FINISH_STOP_ID;
        pending_.reset();
        return;
    }
    out.tokens[out.n_tokens] = id;
    report_logprobs(out, out.n_tokens, row);
    out.n_tokens++;
    stats_.predicted_n++;
    sampler_->accept(id);
    masks_.commit(id);
    if (n_lookup_max_ > 0) {
        lookup_->append(id);
    }
    pending_ = id;
    if (stats_.predicted_n == n_predict_) {
        finish_ = PDS_FINISH_LENGTH;
    } else if (base_ + 1 + out.n_tokens == sequence_.n_ctx()) {
        finish_ = PDS_FINISH_CONTEXT;
    }
}

std::span<const float> session::logits_row(int32_t row) const {
    const auto n_rows = static_cast<size_t>(model_->hparams.n_vocab_rows);
    return { logits_ + static_cast<size_t>(row) * n_rows, n_rows };
}

void session::report_logprobs(pds_step & out, int32_t index, int32_t row) const {
    if (logprobs_ == 0) {
        return;
    }
    const auto                 named = logits_row(row).first(static_cast<size_t>(model_->hparams.n_vocab));
    std::vector<token_logprob> top;
    row_logprobs(named, out.tokens[index], top_logprobs_, out.logprob[index], top);
    for (int32_t i = 0; i < max_top_logprobs; i++) {
        const auto slot       = static_cast<size_t>(index * max_top_logprobs + i);
        const bool used       = static_cast<size_t>(i) < top.size();
        out.top_ids[slot]     = used ? top[static_cast<size_t>(i)].id : -1;
        out.top_logprob[slot] = used ? top[static_cast<size_t>(i)].logprob : 0.0f;
    }
}

void session::end_request() {
    finish_ = PDS_FINISH_LENGTH;
    pending_.reset();
    logits_ = nullptr;
}

void session::set_synthetic(std::span<const float> by_slot, uint64_t seed) {
    end_request();
    synthetic_.reset();
    if (!by_slot.empty()) {
        synthetic_.emplace(by_slot, seed);
    }
}

void session::cut(int64_t n) {
    end_request();
    sequence_.cut(std::max<int64_t>(n, 0));
}

void session::reset() {
    end_request();
    sequence_.clear();
}

void session::inspect(std::span<const int32_t> tokens, const std::vector<tensor_tap> & taps, progress & progress) {
    end_request();
    check_ids(tokens);
    PDS_REQUIRE(!tokens.empty() && sequence_.n_past() + static_cast<int64_t>(tokens.size()) <= sequence_.n_ctx(),
                PDS_ERR_ARGUMENT, "%zu tokens cannot be appended to %lld in a context of %d", tokens.size(),
                static_cast<long long>(sequence_.n_past()), sequence_.n_ctx());
    sequence_.inspect(tokens, taps, progress);
}

std::vector<int32_t> session::inspect_draft(int32_t anchor, int32_t n, const std::vector<tensor_tap> & taps,
                                            progress & progress) {
    end_request();
    check_ids({ &anchor, 1 });
    PDS_REQUIRE(block_ && n >= 1 && n <= block_->n_slots(), PDS_ERR_ARGUMENT,
                "a session with a drafter and at most %d tokens are needed to draft %d", block_ ? block_->n_slots() : 0,
                n);
    masks_.start(nullptr, nullptr, 0);
    block_->start(draft_rule::best, {}, 0, masks_);
    std::vector<int32_t> ids;
    for (const drafted_token & token : block_->inspect(anchor, n, taps, progress)) {
        ids.push_back(token.id);
    }
    return ids;
}

void session::check_measured(int32_t n_tokens) const {
    const int64_t n_past = sequence_.n_past();
    PDS_REQUIRE(n_tokens >= 1 && n_tokens <= sequence_.batch_rows() && n_past + n_tokens <= sequence_.n_ctx(),
                PDS_ERR_ARGUMENT, "a batch of %d cannot be measured after %lld tokens, with n_ubatch %d and n_ctx %d",
                n_tokens, static_cast<long long>(n_past), sequence_.batch_rows(), sequence_.n_ctx());
}

void session::measure(int32_t n_tokens, std::span<double> ms, progress & progress) {
    end_request();
    check_measured(n_tokens);
    const int64_t              n_past = sequence_.n_past();
    const std::vector<int32_t> tokens = spread_tokens(n_tokens, model_->hparams.n_vocab);
    for (double & value : ms) {
        const stopwatch watch;
        sequence_.append(tokens, n_tokens, progress);
        value = watch.elapsed_ms();
        sequence_.cut(n_past);
    }
}

void session::measure_stages(int32_t n_tokens, std::span<stage_times> times) {
    end_request();
    check_measured(n_tokens);
    sequence_.measure_stages(spread_tokens(n_tokens, model_->hparams.n_vocab), times);
}

} // namespace pds
