// The plain twin of truncator and sampler: sorts the whole row and follows the definition line by line.
#pragma once

#include "spec/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pds_test {

struct plain_candidate {
    int32_t id;
    double  p;
};

struct plain_result {
    std::vector<plain_candidate> candidates; // by descending p, ties by lower id
    double                       margin = 1; // how near a top-p or min-p test was to the other answer
};

// The row after bias, bans and penalties. history: the accepted tokens, oldest first.
inline std::vector<double> plain_logits(const std::vector<float> & logits, const pds::sampling_params & params,
                                        const std::vector<int32_t> & banned, const std::vector<int32_t> & history) {
    std::vector<float> row = logits;
    for (const auto & [id, value] : params.bias) {
        row[static_cast<size_t>(id)] += value;
    }
    for (const int32_t id : banned) {
        row[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    }
    const size_t n_window =
        params.repeat_last_n < 0 ? history.size() : std::min(history.size(), static_cast<size_t>(params.repeat_last_n));
    std::vector<int> counts(row.size());
    for (size_t i = history.size() - n_window; i < history.size(); ++i) {
        ++counts[static_cast<size_t>(history[i])];
    }
    for (size_t id = 0; id < row.size(); ++id) {
        if (counts[id] > 0) {
            float & logit = row[id];
            logit         = logit <= 0 ? logit * params.repeat_penalty : logit / params.repeat_penalty;
            logit -= static_cast<float>(counts[id]) * params.frequency_penalty + params.presence_penalty;
        }
    }
    return { row.begin(), row.end() };
}

// exp((logit - best) / temperature) of the n best: probabilities but for their sum.
inline std::vector<double> plain_weights(const std::vector<double> & sorted_logits, size_t n, double temperature) {
    std::vector<double> weights(n);
    for (size_t i = 0; i < n; ++i) {
        weights[i] = std::exp((sorted_logits[i] - sorted_logits[0]) / temperature);
    }
    return weights;
}

inline double plain_sum(const std::vector<double> & values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

inline plain_result plain_distribution(const std::vector<double> & row, const pds::sampling_params & params) {
    std::vector<int32_t> ids(row.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
    std::vector<double> logits;
    for (const int32_t id : ids) {
        if (row[static_cast<size_t>(id)] > -std::numeric_limits<double>::infinity()) {
            logits.push_back(row[static_cast<size_t>(id)]);
        }
    }
    plain_result result;
    if (logits.empty()) {
        return result;
    }
    if (params.temperature <= 0) {
        result.candidates = { { ids[0], 1.0 } };
        return result;
    }
    size_t n_kept = logits.size();
    if (params.top_k > 0) {
        n_kept = std::min(n_kept, static_cast<size_t>(params.top_k));
    }
    const std::vector<double> weights = plain_weights(logits, n_kept, 1.0);
    const auto                passes  = [&](double value, double bound) {
        if (value != bound) {
            result.margin = std::min(result.margin, std::abs(value / bound - 1));
        }
        return value >= bound;
    };
    if (params.top_p < 1) {
        const double wanted = std::max(0.0, static_cast<double>(params.top_p)) * plain_sum(weights);
        double       mass   = 0;
        for (size_t i = 0; i < n_kept; ++i) {
            mass += weights[i];
            if (passes(mass, wanted)) {
                n_kept = i + 1;
            }
        }
    }
    const double least = std::min(1.0, static_cast<double>(params.min_p));
    for (size_t i = 1; i < n_kept && least > 0; ++i) {
        if (!passes(weights[i], least)) {
            n_kept = i;
        }
    }
    const std::vector<double> tempered = plain_weights(logits, n_kept, static_cast<double>(params.temperature));
    const double              sum      = plain_sum(tempered);
    for (size_t i = 0; i < n_kept; ++i) {
        result.candidates.push_back({ ids[i], tempered[i] / sum });
    }
    return result;
}

} // namespace pds_test
