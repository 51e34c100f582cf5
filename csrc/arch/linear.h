// Linear layers as files hold them: a weight, perhaps a scale and a bias.
#pragma once

#include "graph/graph-context.h"
#include "model/weights.h"

#include <cstdint>
#include <string>

namespace pds {

// y = (weight x) * scale + bias; bias and scale are null where the file has none.
struct linear_weight {
    ggml_tensor * weight = nullptr; // [n_in, n_out]
    ggml_tensor * scale  = nullptr; // [1]
    ggml_tensor * bias   = nullptr; // [n_out]
};

// x [n_in, n_tokens] -> [n_out, n_tokens]
ggml_tensor * apply(graph_context & g, const linear_weight & linear, ggml_tensor * x);

// Reads "<prefix><name>.weight" with its optional scale and bias.
class linear_reader {
  public:
    linear_reader(weights & w, std::string prefix, int32_t layer, bool biases);

    linear_weight find(const char * name, int64_t n_in, int64_t n_out);
    linear_weight require(const char * name, int64_t n_in, int64_t n_out);
    // A vector that multiplies element by element: [n]
    ggml_tensor * norm(const char * name, int64_t n);

  private:
    weights &   w_;
    std::string prefix_;
    int32_t     layer_;
    bool        biases_;
};

} // namespace pds
