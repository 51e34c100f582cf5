#include "spec/sampler.h"

#include "base/error.h"
#include "base/rng.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pds {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

void require_finite(const char * name, float value) {
    PDS_REQUIRE(std::isfinite(value), PDS_ERR_ARGUMENT, "%s is %g: give a finite number", name,
                static_cast<double>(value));
}

void check(const sampling_params & params) {
    require_finite("temperature", params.temperature);
    require_finite("top_p", params.top_p);
    require_finite("min_p", params.min_p);
    require_finite("repeat_penalty", params.repeat_penalty);
    require_finite("presence_penalty", params.presence_penalty);
    require_finite("frequency_penalty", params.frequency_penalty);
    PDS_REQUIRE(params.repeat_penalty > 0, PDS_ERR_ARGUMENT, "repeat_penalty is %g: give a number above 0 (1 = off)",
                static_cast<double>(params.repeat_penalty));
    PDS_REQUIRE(params.repeat_last_n >= -1, PDS_ERR_ARGUMENT,
                "repeat_last_n is %d: give a number of tokens, 0 (none) or -1 (all)", params.repeat_last_n);
}

bool has_penalties(const sampling_params & params) {
    return params.repeat_last_n != 0 &&
           (params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0);
}

[[noreturn]] void throw_no_candidate(std::span<const float> logits, int64_t position) {
    const long long at        = static_cast<long long>(position);
    const bool      model_has = std::any_of(logits.begin(), logits.end(), [](float x) { return x > -infinity; });
    PDS_REQUIRE(!model_has, PDS_ERR_ARGUMENT,
                "the grammar, logit bias and bans leave no token to draw at position %lld: allow at least one", at);
    throw error(PDS_ERR_INTERNAL, format("the model produced no logit above -inf at position %lld", at), position);
}

} // namespace

sampler::sampler(const sampling_params & params, int32_t n_vocab_rows, std::span<const int32_t> banned)
    : params_(params), n_vocab_rows_(n_vocab_rows), penalties_on_(has_penalties(params)),
      truncator_(
          { .temperature = params.temperature, .top_k = params.top_k, .top_p = params.top_p, .min_p = params.min_p }) {
    check(params);
    for (const auto & [id, value] : params.bias) {
        add_bias(id, value);
    }
    for (const int32_t id : banned) {
        add_bias(id, -infinity);
    }
}

void sampler::add_bias(int32_t id, float value) {
    PDS_REQUIRE(id >= 0 && id < n_vocab_rows_, PDS_ERR_ARGUMENT,
                "logit bias for token %d: ids of this model are 0 to %d", id, n_vocab_rows_ - 1);
    float & bias = find_or_add_rule(id)->bias;
    bias += value;
    PDS_REQUIRE(bias < infinity, PDS_ERR_ARGUMENT,
                "logit bias of token %d is %g: give a finite number, or -inf to ban it", id, static_cast<double>(bias));
}

std::vector<sampler::token_rule>::iterator sampler::find_or_add_rule(int32_t id) {
    const auto at = std::lower_bound(rules_.begin(), rules_.end(), id,
                                     [](const token_rule & rule, int32_t wanted) { return rule.id < wanted; });
    return at != rules_.end() && at->id == id ? at : rules_.insert(at, { id, 0.0f, 0 });
}

void sampler::accept(int32_t id) {
    PDS_REQUIRE(id >= 0 && id < n_vocab_rows_, PDS_ERR_ARGUMENT, "token %d is outside this model's ids 0 to %d", id,
                n_vocab_rows_ - 1);
    if (penalties_on_) {
        const int64_t window_size = params_.repeat_last_n;
        if (window_size > 0 && n_accepted_ < window_size) {
            window_.push_back(id);
        } else if (window_size > 0) {
            forget_oldest();
            window_[static_cast<size_t>(n_accepted_ % window_size)] = id;
        }
        ++find_or_add_rule(id)->count;
    }
    ++n_accepted_;
}

// The oldest token lies where the next one goes.
void sampler::forget_oldest() {
    const auto rule = find_or_add_rule(window_[static_cast<size_t>(n_accepted_ % params_.repeat_last_n)]);
    if (--rule->count == 0 && rule->bias == 0) {
        rules_.erase(rule);
    }
}

float sampler::changed_logit(const token_rule & rule, float logit) const {
    if (rule.bias == -infinity) {
        return -infinity;
    }
    logit += rule.bias;
    if (rule.count > 0) {
        logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
        logit -= static_cast<float>(rule.count) * params_.frequency_penalty + params_.presence_penalty;
    }
    return logit;
}

std::span<const float> sampler::masked(std::span<const float> logits, token_mask allowed) {
    if (allowed.empty()) {
        return logits;
    }
    masked_.assign(logits.size(), -infinity);
    for (size_t id = 0; id < logits.size(); id++) {
        if (allows(allowed, static_cast<int32_t>(id))) {
            masked_[id] = logits[id];
        }
    }
    return masked_;
}

const std::vector<candidate> & sampler::distribution(std::span<const float> logits, token_mask allowed) {
    PDS_REQUIRE(logits.size() == static_cast<size_t>(n_vocab_rows_), PDS_ERR_INTERNAL,
                "a row of %zu logits reached a sampler for %d", logits.size(), n_vocab_rows_);
    const std::span<const float> row = masked(logits, allowed);
    patches_.clear();
    for (const token_rule & rule : rules_) {
        patches_.push_back({ rule.id, changed_logit(rule, row[static_cast<size_t>(rule.id)]) });
    }
    const std::vector<candidate> & candidates = truncator_.apply({ row, patches_, n_accepted_ });
    if (candidates.empty()) {
        throw_no_candidate(logits, n_accepted_);
    }
    return candidates;
}

int32_t sampler::draw(std::span<const candidate> candidates, double u) {
    PDS_REQUIRE(!candidates.empty(), PDS_ERR_INTERNAL, "a draw from no candidates");
    double total = 0;
    for (const candidate & c : candidates) {
        total += static_cast<double>(c.p);
    }
    const double wanted = u * total;
    double       sum    = 0;
    for (const candidate & c : candidates) {
        sum += static_cast<double>(c.p);
        if (sum > wanted) {
            return c.id;
        }
    }
    return candidates.back().id; // only by rounding: u < 1, so u * total is at most total
}

int32_t sampler::draw_coupled(std::span<const candidate> candidates, uint64_t seed, uint64_t position) {
    int32_t best       = candidates.front().id;
    double  best_score = -std::numeric_limits<double>::infinity();
    for (const candidate & c : candidates) {
        const double u     = uniform(seed, purpose::gumbel, position, static_cast<uint32_t>(c.id));
        const double score = std::log(static_cast<double>(c.p)) - std::log(-std::log(u));
        if (score > best_score || (score == best_score && c.id < best)) {
            best       = c.id;
            best_score = score;
        }
    }
    return best;
}

void row_logprobs(std::span<const float> logits, int32_t id, int k, float & own, std::vector<token_logprob> & top) {
    const int32_t n_rows = static_cast<int32_t>(logits.size());
    PDS_REQUIRE(id >= 0 && id < n_rows, PDS_ERR_ARGUMENT, "log-probability of token %d: the row has %d", id, n_rows);
    PDS_REQUIRE(k >= 0, PDS_ERR_ARGUMENT, "%d best log-probabilities: give 0 or more", k);

    const logits_row          row = { .logits = logits };
    std::vector<scored_token> best;
    select_best(row, std::clamp(k, 1, n_rows), best);
    PDS_REQUIRE(!best.empty(), PDS_ERR_INTERNAL, "the model produced no logit above -inf");
    std::sort(best.begin(), best.end(), ranks_before);

    const float  max      = best.front().logit;
    const double log_norm = static_cast<double>(max) + std::log(sum_exp(row, max));
    own                   = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_norm);
    top.clear();
    for (int i = 0; i < std::min(k, static_cast<int>(best.size())); ++i) {
        const scored_token & token = best[static_cast<size_t>(i)];
        top.push_back({ token.id, static_cast<float>(static_cast<double>(token.logit) - log_norm) });
    }
}

} // namespace pds
