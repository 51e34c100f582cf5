#include "graph/graph-context.h"

namespace pds {

graph_context::graph_context(const graph_shape & wanted, size_t max_nodes, std::set<std::string> taps)
    : shape(wanted), taps_(std::move(taps)) {
    owned_inputs.reset(ggml_init({ 12 * ggml_tensor_overhead(), nullptr, true }));
    ggml_context * in = owned_inputs.get();
    inputs.tokens     = ggml_new_tensor_1d(in, GGML_TYPE_I32, shape.n_tokens);
    inputs.pos        = ggml_new_tensor_1d(in, GGML_TYPE_I32, shape.n_tokens);
    inputs.kv_rows    = ggml_new_tensor_1d(in, GGML_TYPE_I64, shape.n_tokens);
    inputs.out_ids    = ggml_new_tensor_1d(in, GGML_TYPE_I32, shape.n_outputs);
    inputs.mask       = ggml_new_tensor_2d(in, GGML_TYPE_F16, shape.n_kv, shape.n_tokens);
    ggml_set_name(inputs.tokens, "inp_tokens");
    ggml_set_name(inputs.pos, "inp_pos");
    ggml_set_name(inputs.kv_rows, "inp_kv_rows");
    ggml_set_name(inputs.out_ids, "inp_out_ids");
    ggml_set_name(inputs.mask, "inp_mask");
    for (ggml_tensor * t = ggml_get_first_tensor(in); t != nullptr; t = ggml_get_next_tensor(in, t)) {
        ggml_set_input(t);
    }

    const size_t n_bytes = max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false);
    owned.reset(ggml_init({ n_bytes, nullptr, true }));
    ctx   = owned.get();
    graph = ggml_new_graph_custom(ctx, max_nodes, false);
}

void graph_context::add_recurrent_inputs(int32_t n_states, int32_t n_rows, int32_t n_rows_out) {
    const auto add = [&](ggml_type type, int32_t n, const char * name) {
        ggml_tensor * tensor = ggml_new_tensor_1d(owned_inputs.get(), type, n);
        ggml_set_name(tensor, name);
        ggml_set_input(tensor);
        return tensor;
    };
    recurrent.slot      = add(GGML_TYPE_I32, 1, "inp_state_slot");
    recurrent.slots_out = add(GGML_TYPE_I64, n_states, "inp_state_slots_out");
    recurrent.rows      = add(GGML_TYPE_I32, n_rows, "inp_conv_rows");
    recurrent.rows_out  = n_rows_out > 0 ? add(GGML_TYPE_I64, n_rows_out, "inp_conv_rows_out") : nullptr;
}

ggml_tensor * graph_context::name(ggml_tensor * tensor, const char * base, int32_t layer) {
    if (layer >= 0) {
        ggml_format_name(tensor, "%s-%d", base, layer);
    } else {
        ggml_set_name(tensor, base);
    }
    if (taps_.count(ggml_get_name(tensor)) != 0) {
        keep(tensor);
    }
    return tensor;
}

void graph_context::keep(ggml_tensor * tensor) {
    ggml_set_output(tensor);
    expand(tensor);
}

void graph_context::set_output(ggml_tensor * tensor) {
    logits = tensor;
    keep(tensor);
}

void graph_context::offer_feature(ggml_tensor * x, int32_t layer) {
    features.resize(feature_layers.size(), nullptr);
    for (size_t i = 0; i < feature_layers.size(); i++) {
        if (feature_layers[i] == layer) {
            features[i] = x;
        }
    }
}

} // namespace pds
