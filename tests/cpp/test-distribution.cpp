// Texts of a toy pair, generated the way a session does it but without a model, have the distribution of the target:
// the frequencies of the first tokens lie as near to their exact joint probabilities as those of a perfect sampler.
#include "spec/lookup-drafter.h"
#include "spec/round-draws.h"

#include "base/rng.h"
#include "check.h"
#include "plain-truncation.h"
#include "spec/draft-sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace {

using pds::accept_rule;
using pds::draft_rule;
using pds::drafted_token;
using pds::sampler;
using pds::sampling_params;

using text   = std::vector<int32_t>;
using floats = std::vector<float>;

constexpr int32_t n_vocab       = 6;
constexpr int32_t n_tokens      = 3;                           // of a text
constexpr int32_t n_texts       = n_vocab * n_vocab * n_vocab; // that there can be
constexpr int32_t n_generations = 30000;
const text        prompt        = { 3, 0, 2, 2 };

// ---- the pair ----

// Both predict from the last token alone; the drafter's rows are a low-rank copy of the target's, and noise.
struct bigram_pair {
    std::vector<floats> target;     // [n_vocab, n_vocab] logits
    std::vector<floats> draft;      // [n_vocab, n_vocab] logits
    std::vector<floats> base;       // [depth, n_vocab] logits that candidates are chosen by, one row for each slot
    floats              confidence; // [n_vocab] of a draft, by the token before it

    bigram_pair() {
        constexpr int32_t               rank = 2;
        std::mt19937                    rng(20);
        std::normal_distribution<float> normal;
        const auto                      matrix = [&](int32_t n_columns) {
            std::vector<floats> rows(n_vocab, floats(static_cast<size_t>(n_columns)));
            for (floats & row : rows) {
                std::generate(row.begin(), row.end(), [&] { return normal(rng); });
            }
            return rows;
        };
        const auto left  = matrix(rank);
        const auto right = matrix(rank);
        target           = matrix(n_vocab);
        draft            = matrix(n_vocab);
        for (size_t i = 0; i < n_vocab; i++) {
            for (size_t j = 0; j < n_vocab; j++) {
                const float shared = std::inner_product(left[i].begin(), left[i].end(), right[j].begin(), 0.0f);
                target[i][j]       = shared + 0.6f * target[i][j];
                draft[i][j]        = shared + 0.4f * draft[i][j];
            }
        }
        base       = matrix(n_vocab);
        confidence = { 0.9f, 0.3f, 0.8f, 0.6f, 0.2f, 0.7f };
    }
};

const bigram_pair & toy() {
    static const bigram_pair pair;
    return pair;
}

// ---- generation ----

struct setting {
    const char *    name;
    sampling_params sampling = {};
    float           conf_min = 0;
};

// Ways to get it wrong, which the test has to find.
enum class flaw {
    none,
    softmax_q,     // the likeliest token, said to be drawn at random
    whole_q,       // drawn from candidates, said to be drawn from all tokens
    retrospective, // a draft is dropped when the confidence behind it is low
    no_slot,       // a position that is drafted again is drafted with the same uniform
    unlike_copy,   // a draft is dropped when it is not what would be copied
};

struct method {
    const char * name;
    draft_rule   draft;
    accept_rule  accept;
    int32_t      depth        = 3; // of the drafter
    int32_t      n_candidates = 0; // tokens that a draft is chosen from; 0 = all
    flaw         wrong        = flaw::none;
    int32_t      n_match      = 0; // tokens that must agree before text is copied; 0 = no lookup
};

struct counts {
    int64_t offered  = 0; // drafts
    int64_t verified = 0;
    int64_t accepted = 0;
    int64_t copied   = 0; // of those verified
    int64_t behind   = 0; // of those copied, behind drafts of the drafter
};

// Without penalties, and with the bias in order.
pds::draft_sampler make_draft_sampler(const sampling_params & given, draft_rule rule) {
    std::vector<pds::scored_token> bias;
    for (const auto & [id, value] : given.bias) {
        bias.push_back({ id, value });
    }
    std::sort(bias.begin(), bias.end(), [](const auto & a, const auto & b) { return a.id < b.id; });
    return { { .temperature = rule == draft_rule::best ? 0.0f : given.temperature,
               .top_k       = given.top_k,
               .top_p       = given.top_p,
               .min_p       = given.min_p },
             std::move(bias) };
}

class generator {
  public:
    generator(const setting & setting, const method & method, uint64_t seed)
        : setting_(setting), method_(method), seed_(seed), target_(setting.sampling, n_vocab, {}),
          draft_(make_draft_sampler(setting.sampling, method.draft)), lookup_(std::max(method.n_match, 1)),
          text_(prompt) {
        for (const int32_t id : prompt) {
            target_.accept(id);
        }
        lookup_.start(prompt);
    }

    text run(counts & counts) {
        while (text_.size() < prompt.size() + n_tokens) {
            round(counts);
        }
        return { text_.begin() + static_cast<int64_t>(prompt.size()),
                 text_.begin() + static_cast<int64_t>(prompt.size()) + n_tokens };
    }

  private:
    pds::round_keys keys() const { return { seed_, text_.size() }; }

    void round(counts & counts) {
        const std::vector<drafted_token> offered = propose();
        const auto                       drafts  = with_copies(offered);
        sampler                          ahead   = target_;
        pds::token_masks                 masks;
        pds::sampled_rows                rows(ahead, masks, [&](int32_t i) {
            const int32_t last = i == 0 ? text_.back() : drafts[static_cast<size_t>(i - 1)].id;
            return std::span<const float>(toy().target[static_cast<size_t>(last)]);
        });
        const pds::verdict               verdict = pds::accept_drafts(method_.accept, drafts, rows, keys());
        for (int32_t i = 0; i < verdict.n_accepted; i++) {
            emit(drafts[static_cast<size_t>(i)].id);
        }
        emit(verdict.next);
        counts.offered += static_cast<int64_t>(offered.size());
        counts.verified += static_cast<int64_t>(drafts.size());
        counts.accepted += verdict.n_accepted;
        const auto n_copied = std::count_if(drafts.begin(), drafts.end(), [](const drafted_token & token) {
            return token.source == pds::proposal_source::lookup;
        });
        counts.copied += n_copied;
        counts.behind += n_copied < static_cast<int64_t>(drafts.size()) ? n_copied : 0;
    }

    // Copied tokens instead of the drafter's, or behind them.
    std::span<const drafted_token> with_copies(std::span<const drafted_token> offered) {
        constexpr int32_t n_max = 4;
        if (method_.n_match == 0) {
            return verified(offered);
        }
        const auto copied = lookup_.propose(n_max);
        if (method_.wrong == flaw::unlike_copy && !copied.empty()) {
            const bool is_copy = !offered.empty() && offered.front().id == copied.front().id;
            return offered.first(is_copy ? offered.size() : 0);
        }
        return copied.empty() ? lookup_.extend(verified(offered), n_max) : copied;
    }

    std::vector<drafted_token> propose() {
        std::vector<drafted_token> offered;
        int32_t                    last = text_.back();
        for (int32_t slot = 0; slot < method_.depth; slot++) {
            drafted_token token;
            token.confidence      = toy().confidence[static_cast<size_t>(last)];
            const floats & logits = toy().draft[static_cast<size_t>(last)];
            token.q               = distribution(logits, slot);
            token.id              = choose(token.q, slot);
            last                  = token.id;
            if (method_.wrong == flaw::whole_q) {
                token.q = draft_.distribution(logits);
            }
            if (method_.draft != draft_rule::drawn) {
                token.q.clear();
            }
            offered.push_back(std::move(token));
        }
        return offered;
    }

    // What a slot draws from. Its candidates are chosen without knowing the token before it.
    std::vector<pds::candidate> distribution(const floats & logits, int32_t slot) {
        if (method_.n_candidates == 0) {
            return draft_.distribution(logits);
        }
        std::vector<int32_t> rows;
        draft_.choose(toy().base[static_cast<size_t>(slot)], static_cast<size_t>(method_.n_candidates), rows);
        floats some;
        for (const int32_t row : rows) {
            some.push_back(logits[static_cast<size_t>(row)]);
        }
        return draft_.distribution(rows, some);
    }

    int32_t choose(std::span<const pds::candidate> q, int32_t slot) const {
        if (method_.wrong == flaw::softmax_q) {
            return std::max_element(q.begin(), q.end(), [](const auto & a, const auto & b) { return a.p < b.p; })->id;
        }
        if (method_.wrong == flaw::no_slot) {
            const uint64_t position = text_.size() + static_cast<uint64_t>(slot);
            return sampler::draw(q, pds::uniform(seed_, pds::purpose::draft_draw, position));
        }
        return pds::draw_draft(method_.draft, q, keys(), slot);
    }

    std::span<const drafted_token> verified(std::span<const drafted_token> offered) const {
        if (method_.wrong != flaw::retrospective) {
            return pds::trusted_drafts(offered, method_.depth, setting_.conf_min);
        }
        const auto last = std::find_if(offered.begin(), offered.end(), [&](const drafted_token & token) {
            return toy().confidence[static_cast<size_t>(token.id)] < setting_.conf_min;
        });
        return { offered.begin(), last };
    }

    void emit(int32_t id) {
        target_.accept(id);
        lookup_.append(id);
        text_.push_back(id);
    }

    const setting & setting_;
    const method &  method_;
    uint64_t        seed_;
    sampler         target_;

    pds::draft_sampler  draft_;
    pds::lookup_drafter lookup_;

    text text_;
};

// ---- comparison with exact probabilities ----

using joint = std::vector<double>; // [n_texts], the last token varies fastest

size_t number_of(const text & ids) {
    return std::accumulate(ids.begin(), ids.end(), size_t(0),
                           [](size_t sum, int32_t id) { return sum * n_vocab + static_cast<size_t>(id); });
}

void add_texts(const setting & setting, text & ids, double probability, joint & out) {
    if (ids.size() == prompt.size() + n_tokens) {
        out[number_of({ ids.begin() + static_cast<int64_t>(prompt.size()), ids.end() })] = probability;
        return;
    }
    const floats &               logits = toy().target[static_cast<size_t>(ids.back())];
    const pds_test::plain_result next =
        pds_test::plain_distribution(pds_test::plain_logits(logits, setting.sampling, {}, ids), setting.sampling);
    for (const pds_test::plain_candidate & c : next.candidates) {
        ids.push_back(c.id);
        add_texts(setting, ids, probability * c.p, out);
        ids.pop_back();
    }
}

joint exact_joint(const setting & setting) {
    joint out(n_texts);
    text  ids = prompt;
    add_texts(setting, ids, 1.0, out);
    return out;
}

double total_variation(const std::vector<int64_t> & seen, const joint & exact) {
    double sum = 0;
    for (size_t i = 0; i < seen.size(); i++) {
        sum += std::abs(static_cast<double>(seen[i]) / n_generations - exact[i]);
    }
    return sum / 2;
}

// Five standard deviations above the mean distance of a perfect sampler.
double noise_bound(const joint & exact) {
    constexpr int                       n_repeats = 100;
    std::mt19937                        rng(1);
    std::discrete_distribution<int32_t> perfect(exact.begin(), exact.end());
    double                              sum     = 0;
    double                              squares = 0;
    for (int i = 0; i < n_repeats; i++) {
        std::vector<int64_t> seen(n_texts);
        for (int32_t n = 0; n < n_generations; n++) {
            seen[static_cast<size_t>(perfect(rng))]++;
        }
        const double distance = total_variation(seen, exact);
        sum += distance;
        squares += distance * distance;
    }
    const double mean = sum / n_repeats;
    return mean + 5 * std::sqrt(std::max(squares / n_repeats - mean * mean, 0.0));
}

struct result {
    double distance;
    counts drafts;
};

result measure(const setting & setting, const method & method, const joint & exact) {
    result               out = {};
    std::vector<int64_t> seen(n_texts);
    for (uint64_t seed = 0; seed < n_generations; seed++) {
        seen[number_of(generator(setting, method, seed).run(out.drafts))]++;
    }
    out.distance = total_variation(seen, exact);
    return out;
}

// ---- tests ----

const setting settings[] = {
    { "temperature 1" },
    { "temperature 0.7, top-k 4, top-p 0.9", { .temperature = 0.7f, .top_p = 0.9f, .top_k = 4 } },
    { "min-p 0.1", { .min_p = 0.1f } },
    { "penalties",
      { .repeat_penalty = 1.4f, .presence_penalty = 0.3f, .frequency_penalty = 0.4f, .repeat_last_n = 5 } },
    { "bias and bans", { .bias = { { 1, 1.5f }, { 4, -std::numeric_limits<float>::infinity() }, { 2, -0.7f } } } },
    { "confidence threshold", {}, 0.5f },
    { "all together",
      { .temperature      = 0.8f,
        .top_p            = 0.95f,
        .min_p            = 0.05f,
        .repeat_penalty   = 1.2f,
        .presence_penalty = 0.2f,
        .top_k            = 5,
        .bias             = { { 1, 0.5f } } },
      0.5f },
};

const method methods[] = {
    { "plain", draft_rule::drawn, accept_rule::by_block, 0 },
    { "plain, coupled", draft_rule::coupled, accept_rule::coupled, 0 },
    { "drawn, by token", draft_rule::drawn, accept_rule::by_token },
    { "drawn, by block", draft_rule::drawn, accept_rule::by_block },
    { "candidates, by token", draft_rule::drawn, accept_rule::by_token, 3, 4 },
    { "candidates, by block", draft_rule::drawn, accept_rule::by_block, 3, 4 },
    { "likeliest, by token", draft_rule::best, accept_rule::by_token },
    { "likeliest, by block", draft_rule::best, accept_rule::by_block },
    { "coupled", draft_rule::coupled, accept_rule::coupled },
    { "copied, by token", draft_rule::drawn, accept_rule::by_token, 0, 0, flaw::none, 1 },
    { "copied, by block", draft_rule::drawn, accept_rule::by_block, 0, 0, flaw::none, 1 },
    { "with copies, by token", draft_rule::drawn, accept_rule::by_token, 2, 0, flaw::none, 2 },
    { "with copies, by block", draft_rule::drawn, accept_rule::by_block, 2, 0, flaw::none, 2 },
};

void texts_have_the_distribution_of_the_target() {
    for (const setting & setting : settings) {
        const joint  exact = exact_joint(setting);
        const double bound = noise_bound(exact);
        for (const method & method : methods) {
            const result seen = measure(setting, method, exact);
            std::printf("%-36s %-20s distance %.4f, bound %.4f\n", setting.name, method.name, seen.distance, bound);
            CHECK(seen.distance < bound);
            if (method.depth > 0) { // the drafts took part
                CHECK(seen.drafts.accepted > n_generations / 4);
                CHECK(seen.drafts.verified > seen.drafts.accepted + n_generations / 4);
            }
            if (method.n_match == 0) {
                CHECK(method.depth == 0 || (seen.drafts.verified < seen.drafts.offered) == (setting.conf_min > 0));
                CHECK(seen.drafts.copied == 0);
            } else { // so did the copies
                CHECK(seen.drafts.copied > n_generations / 4);
                CHECK((seen.drafts.behind > n_generations / 10) == (method.depth > 0));
            }
        }
    }
}

// Each under a setting that brings it out.
void flaws_are_found() {
    struct trap {
        setting where;
        flaw    wrong;
        int32_t n_match = 0;
    };
    const trap traps[] = {
        { { "softmax q" }, flaw::softmax_q },
        { { "whole q" }, flaw::whole_q },
        { { "retrospective", {}, 0.5f }, flaw::retrospective },
        { { "no slot", { .repeat_penalty = 1.4f, .presence_penalty = 0.3f, .frequency_penalty = 0.4f } },
          flaw::no_slot },
        { { "unlike copy" }, flaw::unlike_copy, 1 },
    };
    for (const trap & trap : traps) {
        const joint  exact = exact_joint(trap.where);
        const double bound = noise_bound(exact);
        const method wrong = { "wrong",    draft_rule::drawn, accept_rule::by_block, 3, trap.n_match > 0 ? 0 : 4,
                               trap.wrong, trap.n_match };
        const result seen  = measure(trap.where, wrong, exact);
        std::printf("%-36s %-20s distance %.4f, bound %.4f\n", trap.where.name, wrong.name, seen.distance, bound);
        CHECK(seen.distance > bound);
    }
}

// Whatever is drafted, however deep: the same seed gives the same text.
void coupled_texts_do_not_depend_on_drafts() {
    counts drafts;
    for (const setting & setting : settings) {
        const method plain = { "plain", draft_rule::coupled, accept_rule::coupled, 0 };
        for (uint64_t seed = 0; seed < 1000; seed++) {
            const text wanted = generator(setting, plain, seed).run(drafts);
            for (int32_t depth = 1; depth <= 4; depth++) {
                const method coupled = { "coupled", draft_rule::coupled, accept_rule::coupled, depth };
                CHECK(generator(setting, coupled, seed).run(drafts) == wanted);
                const method copying = { "copied", draft_rule::coupled, accept_rule::coupled, depth, 4, flaw::none, 2 };
                CHECK(generator(setting, copying, seed).run(drafts) == wanted);
            }
        }
    }
}

} // namespace

int main() {
    texts_have_the_distribution_of_the_target();
    flaws_are_found();
    coupled_texts_do_not_depend_on_drafts();
    return pds_test::check_result();
}
