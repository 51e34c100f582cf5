// Acceptance is exact: the distribution of the text is computed in closed form, not sampled. For a fixed drafted path
// the answer is a step function of each uniform, so the lengths of its steps are the probabilities.
#include "spec/accept.h"

#include "check.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using pds::accept_draws;
using pds::candidate;
using pds::proposal;
using pds::verdict;

using distribution = std::vector<candidate>;
using path         = std::vector<int32_t>;
using rule         = verdict (*)(std::span<const proposal>, pds::target_rows &, const accept_draws &);

constexpr double tolerance = 2e-6; // the p of a candidate is a float, and its distribution's sum is rounded

// ---- a target and a drafter, as tables ----

// Where the tokens of a path lead. The path of no token is node 0, its one-token paths are nodes 1 to n_vocab, ...
size_t node_after(size_t node, int32_t id, int32_t n_vocab) {
    return node * static_cast<size_t>(n_vocab) + static_cast<size_t>(id) + 1;
}

struct toy_pair {
    int32_t                   n_vocab;
    int32_t                   depth;                 // most drafts
    std::vector<distribution> p;                     // target's next token, by node
    std::vector<distribution> q;                     // drafter's next token, by node
    std::vector<bool>         certain;               // the drafter's only token is passed without a distribution
    std::vector<bool>         stops;                 // no draft is verified behind this node
    bool                      retrospective = false; // a draft is not verified when its own node stops: forbidden
};

// Checks the order in which rows are asked for.
class table_rows : public pds::target_rows {
  public:
    explicit table_rows(const toy_pair & tables) : tables_(tables) {}

    const distribution & row(int32_t i) override {
        CHECK(i == n_accepted_);
        return tables_.p[node_];
    }
    void accept(int32_t id) override {
        node_ = node_after(node_, id, tables_.n_vocab);
        n_accepted_++;
    }

  private:
    const toy_pair & tables_;
    size_t           node_       = 0;
    int32_t          n_accepted_ = 0;
};

// ---- exact probabilities of verdicts ----

struct piece {
    double from;
    double to;

    double width() const { return to - from; }
    double middle() const { return (from + to) / 2; }
};

// Where a step function on (0, 1) is constant. No value may come back after another one.
template <typename fn_t> std::vector<piece> pieces(fn_t && f) {
    constexpr double   resolution = 1e-11;
    std::vector<piece> found;
    double             from = 0;
    while (from < 1 - resolution) {
        const auto value = f(from + resolution / 2);
        double     low   = from;
        double     high  = 1;
        if (f(1 - resolution / 2) != value) {
            while (high - low > resolution / 2) {
                const double middle               = (low + high) / 2;
                (f(middle) == value ? low : high) = middle;
            }
        }
        found.push_back({ from, high });
        from = high;
    }
    return found;
}

// One drafted path under judgement.
class trial {
  public:
    trial(const toy_pair & tables, rule method, const path & ids) : tables_(tables), judge_(method) {
        size_t node = 0;
        for (const int32_t id : ids) {
            const bool certain = tables.certain[node];
            drafts_.push_back(
                { id, certain ? std::span<const candidate>() : std::span<const candidate>(tables.q[node]) });
            node = node_after(node, id, tables.n_vocab);
        }
    }

    // Calls visit(probability, verdict) for every verdict that can be.
    template <typename visit_t> void enumerate(visit_t && visit) const { split(visit, {}, 1.0); }

  private:
    // acceptance: uniforms of the first drafts; those of the others are `rest`. u: whatever draws a token.
    verdict judge(const std::vector<double> & acceptance, double rest, double u) const {
        table_rows         rows(tables_);
        const accept_draws draws = {
            [&](int32_t i) {
                const auto at = static_cast<size_t>(i);
                return at < acceptance.size() ? acceptance[at] : rest;
            },
            [&](int32_t) { return u; },
            u,
        };
        return judge_(drafts_, rows, draws);
    }

    template <typename visit_t>
    void split(visit_t && visit, const std::vector<double> & acceptance, double probability) const {
        if (acceptance.size() == drafts_.size()) {
            draw_next(visit, acceptance, probability);
            return;
        }
        std::vector<double> longer = acceptance;
        longer.push_back(0);
        const auto n_accepted = [&](double u) {
            longer.back() = u;
            return std::pair(judge(longer, 0x1p-53, 0.5).n_accepted, judge(longer, 1 - 0x1p-53, 0.5).n_accepted);
        };
        for (const piece & step : pieces(n_accepted)) {
            longer.back() = step.middle();
            split(visit, longer, probability * step.width());
        }
    }

    template <typename visit_t>
    void draw_next(visit_t && visit, const std::vector<double> & acceptance, double probability) const {
        const int32_t n_accepted = judge(acceptance, 0, 0.5).n_accepted;
        for (const piece & step : pieces([&](double u) { return judge(acceptance, 0, u).next; })) {
            const verdict result = judge(acceptance, 0, step.middle());
            CHECK(result.n_accepted == n_accepted);
            visit(probability * step.width(), result);
        }
    }

    const toy_pair &      tables_;
    rule                  judge_;
    std::vector<proposal> drafts_;
};

// ---- exact distribution of a text ----

// Of the next depth + 1 tokens: [n_vocab^(depth + 1)], the last token varies fastest.
struct outcome {
    std::vector<double> joint;
    double              n_accepted = 0; // mean
};

size_t n_texts(const toy_pair & tables) {
    size_t n = 1;
    for (int32_t i = 0; i <= tables.depth; i++) {
        n *= static_cast<size_t>(tables.n_vocab);
    }
    return n;
}

// Continues a text with the target's own tokens.
void add_plain(const toy_pair & tables, size_t node, size_t text, int32_t length, double probability, outcome & out) {
    if (length == tables.depth + 1) {
        out.joint[text] += probability;
        return;
    }
    for (const candidate & c : tables.p[node]) {
        add_plain(tables, node_after(node, c.id, tables.n_vocab),
                  text * static_cast<size_t>(tables.n_vocab) + static_cast<size_t>(c.id), length + 1,
                  probability * static_cast<double>(c.p), out);
    }
}

void add_verdict(const toy_pair & tables, const path & drafts, const verdict & result, double probability,
                 outcome & out) {
    path text(drafts.begin(), drafts.begin() + result.n_accepted);
    text.push_back(result.next);
    size_t node   = 0;
    size_t number = 0;
    for (const int32_t id : text) {
        node   = node_after(node, id, tables.n_vocab);
        number = number * static_cast<size_t>(tables.n_vocab) + static_cast<size_t>(id);
    }
    out.n_accepted += probability * result.n_accepted;
    add_plain(tables, node, number, static_cast<int32_t>(text.size()), probability, out);
}

void add_drafts(const toy_pair & tables, rule judge, size_t node, path & drafts, double probability, outcome & out) {
    const bool full    = static_cast<int32_t>(drafts.size()) == tables.depth;
    const bool stopped = tables.stops[node];
    if (full || stopped) {
        path verified = drafts;
        if (tables.retrospective && stopped && !verified.empty()) {
            verified.pop_back();
        }
        trial(tables, judge, verified).enumerate([&](double chance, const verdict & result) {
            add_verdict(tables, verified, result, probability * chance, out);
        });
        return;
    }
    for (const candidate & c : tables.q[node]) {
        drafts.push_back(c.id);
        add_drafts(tables, judge, node_after(node, c.id, tables.n_vocab), drafts,
                   probability * static_cast<double>(c.p), out);
        drafts.pop_back();
    }
}

outcome speculative(const toy_pair & tables, rule judge) {
    outcome out{ std::vector<double>(n_texts(tables)) };
    path    drafts;
    add_drafts(tables, judge, 0, drafts, 1.0, out);
    return out;
}

outcome plain(const toy_pair & tables) {
    outcome out{ std::vector<double>(n_texts(tables)) };
    add_plain(tables, 0, 0, 0, 1.0, out);
    return out;
}

double total_variation(const outcome & a, const outcome & b) {
    double sum = 0;
    for (size_t i = 0; i < a.joint.size(); i++) {
        sum += std::abs(a.joint[i] - b.joint[i]);
    }
    return sum / 2;
}

// ---- random pairs ----

enum class kind { unlike, equal, disjoint, point_draft, certain_draft, point_target, eighths };

distribution normalized(const std::vector<double> & weights) {
    double sum = 0;
    for (const double w : weights) {
        sum += w;
    }
    distribution result;
    for (size_t id = 0; id < weights.size(); id++) {
        if (weights[id] > 0) {
            result.push_back({ static_cast<int32_t>(id), static_cast<float>(weights[id] / sum) });
        }
    }
    return result;
}

class maker {
  public:
    explicit maker(uint32_t seed) : rng_(seed) {}

    toy_pair make(kind what, int32_t n_vocab, int32_t depth) {
        size_t n_nodes = 1;
        for (int32_t i = 0; i < depth; i++) {
            n_nodes = n_nodes * static_cast<size_t>(n_vocab) + 1;
        }
        toy_pair made{ n_vocab, depth, {}, {}, {}, std::vector<bool>(n_nodes), false };
        for (size_t node = 0; node < n_nodes; node++) {
            fill(what, made);
        }
        return made;
    }

    void stop_at_random(toy_pair & tables) {
        for (size_t node = 0; node < tables.stops.size(); node++) {
            tables.stops[node] = rng_() % 3 == 0;
        }
    }

  private:
    void fill(kind what, toy_pair & made) {
        const int32_t n_vocab = made.n_vocab;
        distribution  p       = random(n_vocab);
        distribution  q       = random(n_vocab);
        if (what == kind::equal) {
            q = p;
        } else if (what == kind::disjoint) {
            const int32_t border = 1 + static_cast<int32_t>(rng_() % static_cast<uint32_t>(n_vocab - 1));
            p                    = random(n_vocab, 0, border);
            q                    = random(n_vocab, border, n_vocab);
        } else if (what == kind::point_draft || what == kind::certain_draft) {
            q = point(n_vocab);
        } else if (what == kind::point_target) {
            p = point(n_vocab);
        } else if (what == kind::eighths) {
            p = eighths(n_vocab);
            q = eighths(n_vocab);
        }
        made.p.push_back(p);
        made.q.push_back(q);
        made.certain.push_back(what == kind::certain_draft);
    }

    distribution random(int32_t n_vocab) { return random(n_vocab, 0, n_vocab); }

    // Ids outside of [from, to), and some inside, have no probability.
    distribution random(int32_t n_vocab, int32_t from, int32_t to) {
        std::exponential_distribution<double> weight(1);
        std::vector<double>                   weights(static_cast<size_t>(n_vocab));
        for (int32_t id = from; id < to; id++) {
            weights[static_cast<size_t>(id)] = rng_() % 3 == 0 ? 0 : weight(rng_);
        }
        weights[static_cast<size_t>(from) + rng_() % static_cast<uint32_t>(to - from)] += 0.1;
        return normalized(weights);
    }

    distribution point(int32_t n_vocab) {
        return { { static_cast<int32_t>(rng_() % static_cast<uint32_t>(n_vocab)), 1.0f } };
    }

    // Few values, exact in a float: ratios are often exactly 1, and running ratios come back to it.
    distribution eighths(int32_t n_vocab) {
        std::vector<double> weights(static_cast<size_t>(n_vocab));
        for (int i = 0; i < 8; i++) {
            weights[rng_() % weights.size()] += 1;
        }
        return normalized(weights);
    }

    std::mt19937 rng_;
};

constexpr kind all_kinds[] = { kind::unlike,        kind::equal,        kind::disjoint, kind::point_draft,
                               kind::certain_draft, kind::point_target, kind::eighths };

// ---- tests ----

void check_pair(const toy_pair & tables) {
    const outcome wanted   = plain(tables);
    const outcome by_token = speculative(tables, pds::accept_by_token);
    const outcome by_block = speculative(tables, pds::accept_by_block);
    CHECK_NEAR(total_variation(by_token, wanted), 0, tolerance);
    CHECK_NEAR(total_variation(by_block, wanted), 0, tolerance);
    CHECK(by_block.n_accepted >= by_token.n_accepted - tolerance);
}

void texts_have_the_distribution_of_the_target() {
    maker random(5);
    for (const kind what : all_kinds) {
        for (int32_t n_vocab = 2; n_vocab <= 6; n_vocab++) {
            for (int32_t depth = 1; depth <= 3; depth++) {
                check_pair(random.make(what, n_vocab, depth));
            }
        }
    }
}

// How many drafts are verified may depend on the drafts before.
void a_depth_that_drafts_in_front_decide_changes_nothing() {
    maker random(6);
    for (const kind what : all_kinds) {
        for (int32_t n_vocab = 2; n_vocab <= 4; n_vocab++) {
            toy_pair tables = random.make(what, n_vocab, 3);
            random.stop_at_random(tables);
            check_pair(tables);
        }
    }
}

// p = (0.7, 0.3), q = (0.5, 0.5), and a draft of token 1 is dropped instead of verified: token 0 then comes with
// 0.5 + 0.5 * 0.7. Shows that the comparison has teeth.
void a_depth_that_looks_at_the_draft_itself_is_found() {
    toy_pair tables{ 2, 1, {}, {}, { false, false, false }, { false, false, true }, true };
    tables.p.assign(3, { { 0, 0.7f }, { 1, 0.3f } });
    tables.q.assign(3, { { 0, 0.5f }, { 1, 0.5f } });
    for (const rule judge : { pds::accept_by_token, pds::accept_by_block }) {
        CHECK_NEAR(total_variation(speculative(tables, judge), plain(tables)), 0.15, tolerance);
    }
}

void a_block_accepts_more_where_it_can() {
    // p = (1/3, 2/3) and q = (2/3, 1/3) at every step: 10/9 tokens one by one, 11/9 as a block
    maker    random(8);
    toy_pair tables = random.make(kind::unlike, 2, 2);
    std::fill(tables.p.begin(), tables.p.end(), distribution{ { 0, 1.0f / 3 }, { 1, 2.0f / 3 } });
    std::fill(tables.q.begin(), tables.q.end(), distribution{ { 0, 2.0f / 3 }, { 1, 1.0f / 3 } });
    CHECK_NEAR(speculative(tables, pds::accept_by_token).n_accepted, 10.0 / 9, tolerance);
    CHECK_NEAR(speculative(tables, pds::accept_by_block).n_accepted, 11.0 / 9, tolerance);
}

// Rounding can leave every q a little above its p. A rejected draft is then replaced by a token of p.
void without_excess_the_target_itself_is_drawn_from() {
    toy_pair tables{ 2, 1, {}, {}, { false, false, false }, { false, false, false }, false };
    tables.p.assign(3, { { 0, 0.5f }, { 1, 0.49f } });
    tables.q.assign(3, { { 0, 0.51f }, { 1, 0.5f } });
    for (const rule judge : { pds::accept_by_token, pds::accept_by_block }) {
        double share_of_0 = 0;
        double rejected   = 0;
        trial(tables, judge, { 0 }).enumerate([&](double probability, const verdict & result) {
            if (result.n_accepted == 0) {
                rejected += probability;
                share_of_0 += result.next == 0 ? probability : 0;
            }
        });
        CHECK_NEAR(rejected, 1 - 0.5 / 0.51, tolerance);
        CHECK_NEAR(share_of_0 / rejected, 0.5 / 0.99, 1e-4);
    }
}

void a_draft_that_the_target_cannot_give_never_stands() {
    toy_pair tables{ 3, 1, {}, {}, { false, false, false, false }, { false, false, false, false }, false };
    tables.p.assign(4, { { 1, 1.0f } });
    tables.q.assign(4, { { 0, 0.75f }, { 1, 0.25f } });
    for (const rule judge : { pds::accept_by_token, pds::accept_by_block }) {
        trial(tables, judge, { 0 }).enumerate([&](double, const verdict & result) {
            CHECK(result.n_accepted == 0 && result.next == 1);
        });
    }
}

} // namespace

int main() {
    texts_have_the_distribution_of_the_target();
    a_depth_that_drafts_in_front_decide_changes_nothing();
    a_depth_that_looks_at_the_draft_itself_is_found();
    a_block_accepts_more_where_it_can();
    without_excess_the_target_itself_is_drawn_from();
    a_draft_that_the_target_cannot_give_never_stands();
    return pds_test::check_result();
}
