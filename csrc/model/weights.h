// A model's weights: an architecture names the tensors it wants, this class decides where and in which layout each one
// lies, says what that takes, and fills them.
#pragma once

#include "base/progress.h"
#include "ggml-cpp.h"
#include "gguf/gguf-file.h"
#include "model/device.h"

#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pds {

class weights {
  public:
    weights(std::shared_ptr<const gguf_file> gguf, const pds_model_params & params, int32_t n_layer);

    // The tensor, with this shape (ggml order). layer: its layer, -1 for the input side, n_layer for the output side.
    ggml_tensor * require(const std::string & name, std::initializer_list<int64_t> ne, weight_use use, int32_t layer);
    ggml_tensor * find(const std::string & name, std::initializer_list<int64_t> ne, weight_use use, int32_t layer);

    // The number that a tensor of one F32 value holds. Nothing is placed for it.
    std::optional<float> find_number(const std::string & name);

    // The file, for messages.
    const std::string & path() const { return gguf_->path(); }

    // Where the weights, caches and graphs of a layer belong.
    const device & device_of(int32_t layer) const;

    // Throws error(PDS_ERR_UNSUPPORTED) if the file has tensors that nobody asked for, other than those in known: it
    // would mean that the model is computed differently from what its author meant.
    void refuse_unused(const std::set<std::string> & known) const;

    // Adds what the weights take.
    void report(pds_memory_report & out) const;

    // Gives every tensor an address that is never read, so that graphs can be measured without loading.
    void pretend();

    // Allocates and fills all tensors.
    void load(progress & progress);

  private:
    struct placed_tensor {
        const gguf_tensor * source;
        ggml_tensor *       tensor;
    };

    // tensors that share one buffer
    struct tensor_group {
        const device *             owner;
        ggml_backend_buffer_type_t type;
        int                        mapped_file; // index of the file whose mapping is the buffer, or -1
        ggml_context_ptr           ctx;
        ggml_backend_buffer_ptr    buffer;
        std::vector<placed_tensor> items;
    };

    ggml_tensor *  add(const gguf_tensor & source, weight_use use, int32_t layer);
    tensor_group & group_for(const device & owner, ggml_backend_buffer_type_t type, int mapped_file);
    void           map(tensor_group & group);
    void           allocate(tensor_group & group);
    void           lock_files();

    std::shared_ptr<const gguf_file> gguf_;
    pds_model_params                 params_;
    int32_t                          n_layer_;
    std::vector<tensor_group>        groups_;
    std::set<std::string>            numbers_read_;
};

} // namespace pds
