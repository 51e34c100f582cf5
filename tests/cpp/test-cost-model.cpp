// What batches cost, learnt from times with noise, outliers and busy hours.
#include "check.h"
#include "spec/cost-model.h"

#include <random>

namespace {

double true_cost(int n_rows, int64_t depth) {
    return 10.0 + 6.0 * n_rows + 0.002 * n_rows * static_cast<double>(depth);
}

void sizes_in_between_lie_on_lines() {
    pds::cost_model model;
    for (const int n : { 1, 2, 9 }) {
        model.observe(n, 0, true_cost(n, 0));
    }
    const auto curve = model.curve(12, 0);
    for (int n = 1; n <= 9; n++) {
        CHECK_NEAR(curve[static_cast<size_t>(n) - 1], true_cost(n, 0), 1e-9);
    }
    CHECK_NEAR(curve[11], true_cost(9, 0) * 12 / 9, 1e-9); // beyond the last: in proportion
}

void noise_and_outliers_average_out() {
    std::mt19937                     random(3);
    std::normal_distribution<double> noise(1.0, 0.08);
    pds::cost_model                  model;
    for (int i = 0; i < 4000; i++) {
        const int     n     = 1 + static_cast<int>(random() % 9);
        const int64_t depth = static_cast<int64_t>(random() % 4000);
        const double  ms    = true_cost(n, depth) * noise(random);
        model.observe(n, depth, random() % 50 == 0 ? ms * 20 : ms);
    }
    for (const int64_t depth : { 200, 2000, 3800 }) {
        const auto curve = model.curve(9, depth);
        for (int n = 1; n <= 9; n++) {
            CHECK_NEAR(curve[static_cast<size_t>(n) - 1] / true_cost(n, depth), 1.0, 0.1);
        }
    }
}

void the_curve_never_falls() {
    pds::cost_model model;
    const double    seen[] = { 10, 14, 12, 11, 30, 29, 31 };
    for (int n = 1; n <= 7; n++) {
        model.observe(n, 0, seen[n - 1]);
    }
    const auto curve = model.curve(9, 0);
    for (size_t i = 1; i < curve.size(); i++) {
        CHECK(curve[i] >= curve[i - 1]);
    }
    CHECK_NEAR(curve[1], (14 + 12 + 11) / 3.0, 1e-9);
}

// A machine that gets slower while only single rows run: the other sizes are thought to be slower too.
void a_busy_hour_moves_the_whole_curve() {
    pds::cost_model model;
    for (int i = 0; i < 40; i++) {
        for (int n = 1; n <= 9; n++) {
            model.observe(n, 0, true_cost(n, 0));
        }
    }
    for (int i = 0; i < 200; i++) {
        model.observe(1, 0, 2 * true_cost(1, 0));
    }
    const auto curve = model.curve(9, 0);
    CHECK_NEAR(curve[0], 2 * true_cost(1, 0), 0.5);
    CHECK(curve[8] / curve[0] > 0.7 * true_cost(9, 0) / true_cost(1, 0));
}

void the_first_batch_of_a_size_may_be_slow() {
    pds::cost_model model;
    model.observe(4, 0, 500);
    model.observe(4, 0, 34);
    CHECK_NEAR(model.curve(4, 0)[3], 34, 1e-9);
}

void nonsense_is_left_out() {
    pds::cost_model model;
    model.observe(0, 0, 5);
    model.observe(-1, 0, 5);
    model.observe(99, 0, 5);
    model.observe(3, 0, -1);
    model.observe(3, 0, std::nan(""));
    CHECK(!model.knows_any());
    pds_learnt_costs saved = {};
    saved.rows[1]          = { 5, 20, 10 };
    saved.rows[2]          = { -1, 20, 10 };
    saved.rows[3]          = { 5, std::nan(""), 10 };
    saved.rows[4]          = { 1e300, 50, 10 };
    saved.depth_var        = std::nan("");
    pds::cost_model loaded(saved);
    CHECK(loaded.knows(1) && !loaded.knows(2) && !loaded.knows(3) && loaded.knows(4));
    CHECK(loaded.learnt().rows[4].weight < 1000);
    CHECK(loaded.learnt().depth_var == 0);
    const auto curve = loaded.curve(9, 100000);
    CHECK(std::isfinite(curve[8]) && curve[0] > 0);
}

void what_is_saved_comes_back() {
    pds::cost_model model;
    for (int i = 0; i < 100; i++) {
        model.observe(1 + i % 5, i * 10, true_cost(1 + i % 5, i * 10));
    }
    const pds::cost_model again(model.learnt());
    const auto            one = model.curve(9, 500), other = again.curve(9, 500);
    for (size_t i = 0; i < one.size(); i++) {
        CHECK_NEAR(one[i] / other[i], 1.0, 0.1); // the pace of the hour is not saved
    }
}

} // namespace

int main() {
    sizes_in_between_lie_on_lines();
    noise_and_outliers_average_out();
    the_curve_never_falls();
    a_busy_hour_moves_the_whole_curve();
    the_first_batch_of_a_size_may_be_slow();
    nonsense_is_left_out();
    what_is_saved_comes_back();
    return pds_test::check_result();
}
