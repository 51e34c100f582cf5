// One graph under construction: pure description, no data. A shape decides everything that is baked in; tokens,
// positions, cache rows and the mask are inputs, so that the graph can be run again and again.
#pragma once

#include "ggml-cpp.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pds {

struct graph_shape {
    int32_t n_tokens;  // rows of the batch
    int32_t n_outputs; // rows whose logits are wanted
    int32_t n_kv;      // cache rows that attention reads
    int32_t n_low = 0; // leading batch rows that, decoded alone, would read one step of cache rows less

    bool operator==(const graph_shape &) const = default;
};

struct graph_inputs {
    ggml_tensor * tokens;  // I32 [n_tokens]
    ggml_tensor * pos;     // I32 [n_tokens]
    ggml_tensor * kv_rows; // I64 [n_tokens]  cache row of each token
    ggml_tensor * out_ids; // I32 [n_outputs] batch rows whose logits are wanted
    ggml_tensor * mask;    // F16 [n_kv, n_tokens] 0 or -inf, added to the attention scores
};

// Where recurrent layers read and write. Null without such layers.
struct recurrent_inputs {
    ggml_tensor * slot      = nullptr; // I32 [1]        state to start from
    ggml_tensor * slots_out = nullptr; // I64 [n_states] states to write, newest first
    ggml_tensor * rows      = nullptr; // I32 [n]        inputs of the convolution to read
    ggml_tensor * rows_out  = nullptr; // I64 [n]        those to write
};

class graph_context {
  public:
    // taps: names of tensors ("l_out-3") that stay readable after the graph has run.
    graph_context(const graph_shape & shape, size_t max_nodes, std::set<std::string> taps = {});

    // n_rows_out: 0 for a graph that leaves the inputs of the convolution alone.
    void add_recurrent_inputs(int32_t n_states, int32_t n_rows, int32_t n_rows_out);

    // Names a tensor as llama.cpp does ("attn_norm-3"), which also makes it tappable.
    ggml_tensor * name(ggml_tensor * tensor, const char * base, int32_t layer = -1);
    // Puts a tensor, and what it needs, in the order of execution.
    void expand(ggml_tensor * tensor) { ggml_build_forward_expand(graph, tensor); }
    // Keeps a tensor readable after the graph has run.
    void keep(ggml_tensor * tensor);
    void set_output(ggml_tensor * logits);
    // The residual stream x [n_embd, n_tokens] in front of a layer: kept if a drafter asked for it.
    void offer_feature(ggml_tensor * x, int32_t layer);

    const graph_shape shape;
    graph_inputs      inputs;
    recurrent_inputs  recurrent;
    ggml_context_ptr  owned_inputs; // holds the input tensors, which get a buffer of their own
    ggml_context_ptr  owned;
    ggml_context *    ctx;
    ggml_cgraph *     graph;
    ggml_tensor *     logits = nullptr; // F32 [n_vocab_rows, n_outputs]

    std::vector<int32_t>       feature_layers; // layers whose input is wanted
    std::vector<ggml_tensor *> features;       // those inputs, in that order: F32 [n_embd, n_tokens]

  private:
    std::set<std::string> taps_;
};

} // namespace pds
