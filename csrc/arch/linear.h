// Linear layers as files hold them.
#pragma once

#include "graph/linear.h"
#include "graph/moe.h"
#include "model/weights.h"

#include <cstdint>
#include <string>

namespace pds {

// Reads "<prefix><name>.weight" with what belongs to it: "<prefix><name>.scale" (in some files "....weight.scale"), and
// "<prefix><name>.bias".
class linear_reader {
  public:
    linear_reader(weights & w, std::string prefix, int32_t layer, bool biases);

    linear_weight find(const char * name, int64_t n_in, int64_t n_out, weight_use use = weight_use::mul_mat);
    linear_weight require(const char * name, int64_t n_in, int64_t n_out, weight_use use = weight_use::mul_mat);
    // One matrix for each expert.
    expert_matrix find_experts(const char * name, int64_t n_in, int64_t n_out, int64_t n_expert);
    expert_matrix require_experts(const char * name, int64_t n_in, int64_t n_out, int64_t n_expert);
    // A vector that multiplies element by element: [n]
    ggml_tensor * norm(const char * name, int64_t n);

  private:
    weights &   w_;
    std::string prefix_;
    int32_t     layer_;
    bool        biases_;
};

} // namespace pds
