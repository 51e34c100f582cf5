// Confidences that are too sure or too shy are learnt to be what they are worth.
#include "check.h"
#include "spec/calibration.h"

#include <random>

namespace {

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

// A drafter whose logits are scaled and shifted against the truth.
void learn(pds::calibration & reliability, int32_t slot, double scale, double shift, int n, bool soft) {
    std::mt19937                           random(static_cast<uint32_t>(slot) + 1);
    std::normal_distribution<double>       logits(1.0, 1.5);
    std::uniform_real_distribution<double> uniform;
    for (int i = 0; i < n; i++) {
        const double truth = sigmoid(logits(random));
        const double said  = sigmoid(scale * std::log(truth / (1 - truth)) + shift);
        reliability.observe(slot, said, soft ? truth : uniform(random) < truth ? 1 : 0);
    }
}

// Mean distance of trust and truth over confidences.
double error_of(const pds::calibration & reliability, int32_t slot, double scale, double shift) {
    double sum = 0;
    int    n   = 0;
    for (double x = -1.5; x <= 3.5; x += 0.25, n++) {
        sum += std::abs(reliability.trusted(slot, sigmoid(scale * x + shift)) - sigmoid(x));
    }
    return sum / n;
}

void too_sure_a_drafter_is_seen_through() {
    pds::calibration reliability;
    const double     before = error_of(reliability, 0, 2.0, 0.7);
    learn(reliability, 0, 2.0, 0.7, 600, false);
    CHECK(before > 0.08);
    CHECK(error_of(reliability, 0, 2.0, 0.7) < 0.04);
}

void probabilities_teach_faster_than_outcomes() {
    double soft = 0, hard = 0;
    for (int32_t slot = 0; slot < 16; slot++) {
        pds::calibration by_probability, by_outcome;
        learn(by_probability, slot, 1.7, 0.5, 64, true);
        learn(by_outcome, slot, 1.7, 0.5, 64, false);
        soft += error_of(by_probability, slot, 1.7, 0.5);
        hard += error_of(by_outcome, slot, 1.7, 0.5);
    }
    CHECK(soft < 0.6 * hard);
}

void without_experience_the_confidence_is_believed() {
    const pds::calibration reliability;
    for (const double c : { 0.05, 0.5, 0.9, 0.999 }) {
        CHECK_NEAR(reliability.trusted(3, c), c, 1e-6);
    }
}

void slots_with_little_experience_follow_the_others() {
    pds::calibration reliability;
    for (int32_t slot = 0; slot < 6; slot++) {
        learn(reliability, slot, 2.0, 0.7, 400, true);
    }
    CHECK(error_of(reliability, 7, 2.0, 0.7) < 0.05);
}

void trust_rises_with_confidence_and_stays_a_probability() {
    std::mt19937     random(5);
    pds::calibration reliability;
    for (int i = 0; i < 300; i++) { // labels that contradict the confidence
        const double c = static_cast<double>(random() % 1000) / 1000;
        reliability.observe(0, c, 1 - c);
    }
    double last = 0;
    for (const double c : { 0.0, 1e-12, 0.1, 0.5, 0.9, 1.0 }) {
        const double trust = reliability.trusted(0, c);
        CHECK(trust >= last && trust > 0 && trust < 1);
        last = trust;
    }
}

void a_drafter_that_says_nothing_is_known_by_its_slots() {
    pds::calibration reliability;
    for (int i = 0; i < 400; i++) {
        reliability.observe(0, 0.5, 0.9);
        reliability.observe(1, 0.5, 0.2);
    }
    CHECK_NEAR(reliability.trusted(0, 0.5), 0.9, 0.03);
    CHECK_NEAR(reliability.trusted(1, 0.5), 0.2, 0.03);
    CHECK_NEAR(reliability.mean(0), 0.9, 0.02);
    CHECK_NEAR(reliability.mean(1), 0.2, 0.03);
}

void nonsense_is_left_out() {
    pds_learnt_slots saved = {};
    saved.bins[0][0]       = { std::nan(""), 0, 0 };
    saved.bins[0][1]       = { 5, 0, 50 };   // more accepted than seen
    saved.bins[0][2]       = { 5, 5000, 1 }; // logits out of range
    saved.bins[0][3]       = { -5, 0, 0 };
    const pds::calibration reliability(saved);
    CHECK_NEAR(reliability.trusted(0, 0.7), 0.7, 1e-6);
    pds::calibration other;
    other.observe(-1, 0.5, 1);
    other.observe(PDS_LEARNT_SLOTS, 0.5, 1);
    CHECK_NEAR(other.mean(0), pds::calibration().mean(0), 1e-12);
}

} // namespace

int main() {
    too_sure_a_drafter_is_seen_through();
    probabilities_teach_faster_than_outcomes();
    without_experience_the_confidence_is_believed();
    slots_with_little_experience_follow_the_others();
    trust_rises_with_confidence_and_stays_a_probability();
    a_drafter_that_says_nothing_is_known_by_its_slots();
    nonsense_is_left_out();
    return pds_test::check_result();
}
