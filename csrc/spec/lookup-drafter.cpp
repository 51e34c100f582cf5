#include "spec/lookup-drafter.h"

#include <algorithm>
#include <bit>

namespace pds {

namespace {

constexpr double recent = 64; // copied tokens that the mean goes back over
constexpr double prior  = 8;  // of them, those that the first guess is worth

} // namespace

// n / (n + 2) for n tokens that agree, as texts of a small model have it.
copy_acceptance::copy_acceptance() {
    for (size_t step = 0; step < shares_.size(); step++) {
        const auto n_match = static_cast<double>(1 << step);
        shares_[step]      = { n_match / (n_match + 2), prior };
    }
}

size_t copy_acceptance::step_of(int32_t n_match) {
    const auto width = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(n_match, 1))));
    return std::min(width - 1, std::tuple_size_v<decltype(shares_)> - 1);
}

void copy_acceptance::observe(int32_t n_match, bool accepted) {
    share & found = shares_[step_of(n_match)];
    found.seen    = std::min(found.seen + 1, recent);
    found.mean += ((accepted ? 1.0 : 0.0) - found.mean) / found.seen;
}

double copy_acceptance::operator()(int32_t n_match) const {
    return shares_[step_of(n_match)].mean;
}

std::span<const drafted_token> fair_share(std::span<const drafted_token> drafts) {
    const auto first = std::find_if(drafts.begin(), drafts.end(), [](const drafted_token & token) {
        return token.source == proposal_source::lookup;
    });
    if (first == drafts.end()) {
        return drafts;
    }
    const auto n_copied = std::min<int64_t>(std::max(first->n_match / 2, 1), drafts.end() - first);
    return { drafts.begin(), first + n_copied };
}

void lookup_drafter::start(std::span<const int32_t> prompt) {
    lookup_.clear();
    for (const int32_t id : prompt) {
        lookup_.append(id);
    }
}

std::span<const drafted_token> lookup_drafter::propose(int64_t n_max) {
    copied_.clear();
    extended_.clear();
    copy(lookup_.find(), n_max, copied_);
    return copied_;
}

std::span<const drafted_token> lookup_drafter::extend(std::span<const drafted_token> drafts, int64_t n_max) {
    const auto n_text = static_cast<int64_t>(lookup_.text().size());
    for (const drafted_token & token : drafts) {
        lookup_.append(token.id);
    }
    const lookup_match match = lookup_.find();
    if (match.length > 0) {
        extended_.assign(drafts.begin(), drafts.end());
        copy(match, n_max, extended_);
    }
    lookup_.cut(n_text);
    return match.length > 0 ? extended_ : drafts;
}

void lookup_drafter::copy(const lookup_match & match, int64_t n_max, std::vector<drafted_token> & out) const {
    for (int32_t i = 0; match.length > 0 && static_cast<int64_t>(out.size()) < n_max; i++) {
        drafted_token & token = out.emplace_back();
        token.id              = lookup_.following(match, i);
        token.source          = proposal_source::lookup;
        token.n_match         = match.length + i;
        token.confidence      = static_cast<float>(acceptance_(token.n_match));
    }
}

void lookup_drafter::learn(std::span<const int32_t> given) {
    learn(copied_, given);
    learn(extended_, given);
}

void lookup_drafter::learn(std::span<const drafted_token> proposed, std::span<const int32_t> given) {
    for (size_t i = 0; i < std::min(proposed.size(), given.size()); i++) {
        const bool is_right = proposed[i].id == given[i];
        if (proposed[i].source == proposal_source::lookup) {
            acceptance_.observe(proposed[i].n_match, is_right);
        }
        if (!is_right) {
            return;
        }
    }
}

} // namespace pds
