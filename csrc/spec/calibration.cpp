#include "spec/calibration.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

namespace pds {

namespace {

constexpr double  most_logit  = 8; // confidences beyond it count as this
constexpr int32_t n_bins      = PDS_LEARNT_BINS;
constexpr double  memory      = 0.998; // share of a slot's history that an observation leaves
constexpr int32_t fit_every   = 16;    // observations
constexpr double  prior_all   = 8;     // observations that the untouched confidence is worth
constexpr double  prior_slot  = 16;    // observations that the line of all slots is worth
constexpr double  prior_mean  = 4;
constexpr double  mean_before = 0.7; // acceptance before anything is known

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

double logit_of(double confidence) {
    const double p = std::clamp(confidence, 1e-9, 1 - 1e-9);
    return std::clamp(std::log(p / (1 - p)), -most_logit, most_logit);
}

int32_t bin_of(double logit) {
    const double at = (logit + most_logit) / (2 * most_logit) * n_bins;
    return std::clamp(static_cast<int32_t>(at), 0, n_bins - 1);
}

bool is_sane(const pds_learnt_bin & bin) {
    const double slack = 1e-6 * (1 + bin.weight);
    return std::isfinite(bin.weight) && std::isfinite(bin.logits) && bin.weight >= 0 && bin.labels >= 0 &&
           bin.labels <= bin.weight + slack && std::abs(bin.logits) <= most_logit * bin.weight + slack;
}

// Newton's method on the log-likelihood with a normal prior around the start.
reliability_line fit_line(std::span<const pds_learnt_bin> bins, reliability_line prior, double prior_weight) {
    reliability_line at         = prior;
    const double     stiff      = prior_weight / 4; // the curvature of that many observations at p = 1/2
    constexpr int    most_steps = 12;
    for (int step = 0; step < most_steps; step++) {
        double grad_a = stiff * (prior.a - at.a), grad_b = stiff * (prior.b - at.b);
        double h_aa = stiff, h_ab = 0, h_bb = stiff;
        for (const pds_learnt_bin & bin : bins) {
            if (bin.weight <= 0) {
                continue;
            }
            const double x     = bin.logits / bin.weight;
            const double p     = sigmoid(at.a * x + at.b);
            const double error = bin.labels - bin.weight * p;
            const double curve = bin.weight * std::max(p * (1 - p), 1e-3);
            grad_a += error * x;
            grad_b += error;
            h_aa += curve * x * x;
            h_ab += curve * x;
            h_bb += curve;
        }
        const double det    = h_aa * h_bb - h_ab * h_ab;
        const double step_a = (grad_a * h_bb - grad_b * h_ab) / det;
        const double step_b = (grad_b * h_aa - grad_a * h_ab) / det;
        at.a                = std::clamp(at.a + std::clamp(step_a, -1.0, 1.0), 0.0, 8.0); // more trust, never less
        at.b += std::clamp(step_b, -2.0, 2.0);
        if (std::abs(step_a) + std::abs(step_b) < 1e-6) {
            break;
        }
    }
    return at;
}

} // namespace

calibration::calibration() {
    fit();
}

calibration::calibration(const pds_learnt_slots & learnt) {
    for (int32_t slot = 0; slot < PDS_LEARNT_SLOTS; slot++) {
        std::copy_if(std::begin(learnt.bins[slot]), std::end(learnt.bins[slot]), std::begin(learnt_.bins[slot]),
                     is_sane);
    }
    fit();
}

void calibration::observe(int32_t slot, double confidence, double label) {
    if (slot < 0 || slot >= PDS_LEARNT_SLOTS) {
        return;
    }
    for (pds_learnt_bin & bin : learnt_.bins[slot]) {
        bin.weight *= memory;
        bin.logits *= memory;
        bin.labels *= memory;
    }
    const double     logit = logit_of(confidence);
    pds_learnt_bin & bin   = learnt_.bins[slot][bin_of(logit)];
    bin.weight += 1;
    bin.logits += logit;
    bin.labels += std::clamp(label, 0.0, 1.0);
    if (++n_new_ >= fit_every) {
        fit();
    }
}

void calibration::fit() {
    n_new_ = 0;
    std::vector<pds_learnt_bin> all;
    for (const auto & slot : learnt_.bins) {
        all.insert(all.end(), std::begin(slot), std::end(slot));
    }
    const reliability_line common = fit_line(all, { 1, 0 }, prior_all);
    for (size_t slot = 0; slot < lines_.size(); slot++) {
        lines_[slot] = fit_line(learnt_.bins[slot], common, prior_slot);
    }
}

double calibration::trusted(int32_t slot, double confidence) const {
    const reliability_line & line = lines_[static_cast<size_t>(std::clamp(slot, 0, PDS_LEARNT_SLOTS - 1))];
    return sigmoid(line.a * logit_of(confidence) + line.b);
}

double calibration::mean(int32_t slot) const {
    double weight = prior_mean;
    double labels = prior_mean * mean_before;
    for (const pds_learnt_bin & bin : learnt_.bins[std::clamp(slot, 0, PDS_LEARNT_SLOTS - 1)]) {
        weight += bin.weight;
        labels += bin.labels;
    }
    return labels / weight;
}

} // namespace pds
