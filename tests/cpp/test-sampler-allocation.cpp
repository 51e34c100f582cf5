// Counts every allocation of the process, so it stands apart from the other tests.
#include "spec/sampler.h"

#include "check.h"
#include "sample.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <random>

namespace {

size_t n_allocations = 0;

} // namespace

void * operator new(size_t size) {
    ++n_allocations;
    void * memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

void operator delete(void * memory) noexcept {
    std::free(memory);
}

void operator delete(void * memory, size_t) noexcept {
    std::free(memory);
}

namespace {

using pds::sampler;
using pds::sampling_params;

// After the first tokens, drawing allocates nothing: no setting copies or sorts into fresh memory.
void drawing_does_not_allocate() {
    std::mt19937                    rng(4);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float>              logits(10000);
    for (const sampling_params & params :
         std::initializer_list<sampling_params>{ { .temperature = 0 },
                                                 { .temperature = 0.8f },
                                                 { .temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 40 },
                                                 { .temperature      = 0.8f,
                                                   .presence_penalty = 1,
                                                   .top_k            = 40,
                                                   .repeat_last_n    = 16,
                                                   .bias             = { { 3, 1.0f } } } }) {
        sampler state(params, 10000, {});
        size_t  n_before = 0;
        for (uint64_t position = 0; position < 100; ++position) {
            std::generate(logits.begin(), logits.end(), [&] { return normal(rng); });
            n_before = position < 50 ? n_allocations : n_before;
            state.accept(pds_test::sample(state, logits, 0, position));
        }
        CHECK(n_allocations == n_before);
    }
}

} // namespace

int main() {
    drawing_does_not_allocate();
    return pds_test::check_result();
}
