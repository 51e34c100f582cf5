#include "spec/depth-chooser.h"

#include <algorithm>

namespace pds {

namespace {

constexpr double unknown_confidence = 0.5;

double confidence_of(const drafted_token & token, const depth_settings & settings) {
    return settings.has_confidence ? static_cast<double>(token.confidence) : unknown_confidence;
}

} // namespace

std::vector<int32_t> depth_chooser::rows_to_measure(const depth_settings & settings) {
    if (settings.n_slots == 0) {
        return {};
    }
    if (settings.schedule != PDS_SCHEDULE_AUTO) {
        return { 1 }; // what is saved is told against plain steps
    }
    std::vector<int32_t> rows;
    for (int32_t n = 1; n <= settings.n_slots; n *= 2) {
        rows.push_back(n);
    }
    rows.push_back(settings.n_slots + 1);
    return rows;
}

bool depth_chooser::knows_costs(const depth_settings & settings) const {
    const std::vector<int32_t> rows = rows_to_measure(settings);
    return std::all_of(rows.begin(), rows.end(), [&](int32_t n) { return verify_.knows(n); }) &&
           (settings.schedule != PDS_SCHEDULE_AUTO || settings.n_slots == 0 || draft_.knows(settings.n_slots));
}

void depth_chooser::observe_verify(int32_t n_rows, int64_t depth, double ms) {
    if (!is_frozen_) {
        verify_.observe(n_rows, depth, ms);
    }
}

void depth_chooser::observe_draft(int32_t n_chain, int64_t depth, double ms) {
    if (!is_frozen_) {
        draft_.observe(n_chain, depth, ms);
    }
}

void depth_chooser::start(const depth_settings & settings) {
    settings_ = settings;
    saved_ms_ = 0;
    plan_     = scheduler::round_plan::plain;
    last_.reset();
    trust_.clear();
    std::vector<double> means;
    for (int32_t slot = 0; slot < settings.n_slots; slot++) {
        means.push_back(kinds_[static_cast<size_t>(settings.kind)].mean(slot));
    }
    scheduler_.emplace(std::move(means));
}

round_costs depth_chooser::costs_at(int64_t depth) const {
    round_costs costs;
    if (verify_.knows_any()) {
        costs.verify = verify_.curve(settings_.n_slots + 1, depth);
    }
    if (draft_.knows_any() && settings_.n_slots > 0) {
        costs.draft = draft_.curve(settings_.n_slots, depth).back();
    }
    return costs;
}

bool depth_chooser::before(int32_t n_max, int64_t depth) {
    costs_ = costs_at(depth);
    plan_  = settings_.schedule == PDS_SCHEDULE_AUTO && !costs_.verify.empty() ? scheduler_->before(costs_, n_max)
                                                                               : scheduler::round_plan::draft;
    return plan_ != scheduler::round_plan::plain;
}

depth_choice depth_chooser::choose(std::span<const drafted_token> drafts) {
    const calibration & reliability = kinds_[static_cast<size_t>(settings_.kind)];
    trust_.clear();
    for (size_t i = 0; i < drafts.size(); i++) {
        trust_.push_back(reliability.trusted(static_cast<int32_t>(i), confidence_of(drafts[i], settings_)));
    }
    const auto   n      = static_cast<int32_t>(drafts.size());
    depth_choice choice = { n, plan_ == scheduler::round_plan::probe ? depth_reason::probed : depth_reason::whole };
    if (settings_.schedule == PDS_SCHEDULE_AUTO && !costs_.verify.empty()) {
        choice.n_drafts = judged_by_match() ? scheduler_->admit_by_gain(trust_, costs_, plan_)
                                            : scheduler_->admit(trust_, costs_, plan_);
        if (choice.n_drafts < n && plan_ != scheduler::round_plan::probe) {
            choice.reason = depth_reason::cost;
        }
    }
    const auto trusted = static_cast<int32_t>(trusted_drafts(drafts, n, settings_.conf_min).size());
    if (trusted < choice.n_drafts) {
        choice = { trusted, depth_reason::confidence };
    }
    return choice;
}

void depth_chooser::after(const round_outcome & outcome) {
    const auto n_drafts = static_cast<int32_t>(outcome.drafts.size());
    if (last_) {
        observe_verify(last_->n_rows, last_->depth, last_->ms + outcome.rollback_ms);
    }
    last_ = { n_drafts + 1, outcome.depth, outcome.verify_ms - outcome.rollback_ms };
    if (n_drafts == 0) {
        observe_verify(last_->n_rows, last_->depth, last_->ms);
        last_.reset();
    }
    const bool drafted = outcome.draft_ms > 0;
    if (drafted) {
        observe_draft(settings_.n_slots, outcome.depth, outcome.draft_ms);
        learn_slots(outcome);
    }
    if (!costs_.verify.empty() && scheduler_) {
        scheduler_->after(drafted ? plan_ : scheduler::round_plan::plain, n_drafts, outcome.n_tokens, costs_);
        if (drafted) {
            saved_ms_ += outcome.n_tokens * costs_.verify[0] - outcome.draft_ms - outcome.verify_ms;
        }
    }
    plan_ = scheduler::round_plan::plain;
}

void depth_chooser::learn_slots(const round_outcome & outcome) {
    calibration & reliability = kinds_[static_cast<size_t>(settings_.kind)];
    for (size_t i = 0; i < outcome.labels.size(); i++) {
        const auto slot = static_cast<int32_t>(i);
        scheduler_->learn(slot, outcome.labels[i]);
        if (!is_frozen_) {
            reliability.observe(slot, confidence_of(outcome.drafts[i], settings_), outcome.labels[i]);
        }
    }
    for (size_t i = outcome.drafts.size(); i < trust_.size(); i++) {
        scheduler_->guess(static_cast<int32_t>(i), trust_[i]);
    }
}

pds_learnt depth_chooser::learnt() const {
    pds_learnt out = {};
    out.verify     = verify_.learnt();
    out.draft      = draft_.learnt();
    for (size_t kind = 0; kind < kinds_.size(); kind++) {
        out.kinds[kind] = kinds_[kind].learnt();
    }
    return out;
}

void depth_chooser::set_learnt(const pds_learnt & learnt, bool frozen) {
    verify_ = cost_model(learnt.verify);
    draft_  = cost_model(learnt.draft);
    for (size_t kind = 0; kind < kinds_.size(); kind++) {
        kinds_[kind] = calibration(learnt.kinds[kind]);
    }
    is_frozen_ = frozen;
}

} // namespace pds
