// One graph on the CPU, with tensors that are filled before it is built.
#pragma once

#include "graph/graph-runner.h"

#include <initializer_list>
#include <random>
#include <vector>

namespace pds_test {

class cpu_graph {
  public:
    explicit cpu_graph(int32_t n_tokens, int32_t n_threads = 1)
        : n_threads_(n_threads), backends_({ &pds::cpu_device() }, n_threads),
          data_(ggml_init({ 64 * ggml_tensor_overhead(), nullptr, true })),
          description_(std::make_unique<pds::graph_context>(pds::graph_shape{ n_tokens, n_tokens, 256 }, 1024)) {}

    pds::graph_context & g() { return *description_; }

    // Bytes of a tensor in its own type. layout: null for the CPU's plain one.
    ggml_tensor * tensor(ggml_type type, std::initializer_list<int64_t> ne, const void * bytes,
                         ggml_backend_buffer_type_t layout = nullptr) {
        ggml_tensor * tensor = ggml_new_tensor(data_.get(), type, static_cast<int>(ne.size()), ne.begin());
        layout               = layout != nullptr ? layout : ggml_backend_get_default_buffer_type(backends_.cpu());
        buffers_.emplace_back(ggml_backend_buft_alloc_buffer(layout, ggml_nbytes(tensor) + 64));
        ggml_backend_tensor_alloc(buffers_.back().get(), tensor, ggml_backend_buffer_get_base(buffers_.back().get()));
        ggml_backend_tensor_set(tensor, bytes, 0, ggml_nbytes(tensor));
        return tensor;
    }
    ggml_tensor * tensor(std::initializer_list<int64_t> ne, const std::vector<float> & values) {
        return tensor(GGML_TYPE_F32, ne, values.data());
    }

    // Ends the description: these results are wanted.
    void finish(std::initializer_list<ggml_tensor *> results) {
        for (ggml_tensor * result : results) {
            description_->keep(result);
        }
        runner_ = std::make_unique<pds::graph_runner>(backends_, std::move(description_));
    }

    void compute() {
        pds::progress nobody;
        runner_->run(n_threads_, nobody);
    }

    // Finishes and computes the graph. Returns the values of the result.
    template <typename value = float> std::vector<value> run(ggml_tensor * result) {
        finish({ result });
        compute();
        std::vector<value> values(static_cast<size_t>(ggml_nelements(result)));
        ggml_backend_tensor_get(result, values.data(), 0, ggml_nbytes(result));
        return values;
    }

  private:
    int32_t                              n_threads_;
    pds::backends                        backends_;
    ggml_context_ptr                     data_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::unique_ptr<pds::graph_context>  description_;
    std::unique_ptr<pds::graph_runner>   runner_;
};

inline std::vector<float> normal_values(std::mt19937 & rng, int64_t n, float sigma) {
    std::normal_distribution<float> normal(0, sigma);
    std::vector<float>              values(static_cast<size_t>(n));
    for (float & value : values) {
        value = normal(rng);
    }
    return values;
}

} // namespace pds_test
