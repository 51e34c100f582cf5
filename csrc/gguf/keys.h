// GGUF key names that the core reads, each written once.
#pragma once

#include <string>
#include <string_view>

namespace pds {

namespace keys {

// about the file
inline constexpr std::string_view architecture  = "general.architecture";
inline constexpr std::string_view name          = "general.name";
inline constexpr std::string_view alignment     = "general.alignment";
inline constexpr std::string_view split_no      = "split.no"; // from 0
inline constexpr std::string_view split_count   = "split.count";
inline constexpr std::string_view split_tensors = "split.tensors.count"; // of all parts together

// the vocabulary, as far as the core needs it: how many tokens there are, and which must never be emitted
inline constexpr std::string_view tokens        = "tokenizer.ggml.tokens";
inline constexpr std::string_view merges        = "tokenizer.ggml.merges";
inline constexpr std::string_view pre           = "tokenizer.ggml.pre";
inline constexpr std::string_view token_type    = "tokenizer.ggml.token_type";
inline constexpr std::string_view mask_token_id = "tokenizer.ggml.mask_token_id";

// hyper-parameters; in the file each has "<architecture>." in front, see arch_key
inline constexpr std::string_view n_layer             = "block_count";
inline constexpr std::string_view n_ctx_train         = "context_length";
inline constexpr std::string_view n_embd              = "embedding_length";
inline constexpr std::string_view n_ff                = "feed_forward_length";
inline constexpr std::string_view n_head              = "attention.head_count";
inline constexpr std::string_view n_head_kv           = "attention.head_count_kv";
inline constexpr std::string_view n_embd_head_k       = "attention.key_length";
inline constexpr std::string_view n_embd_head_v       = "attention.value_length";
inline constexpr std::string_view rms_eps             = "attention.layer_norm_rms_epsilon";
inline constexpr std::string_view n_rot               = "rope.dimension_count";
inline constexpr std::string_view rope_freq_base      = "rope.freq_base";
inline constexpr std::string_view rope_scale_linear   = "rope.scale_linear"; // older name of rope_scaling_factor
inline constexpr std::string_view rope_scaling_type   = "rope.scaling.type";
inline constexpr std::string_view rope_scaling_factor = "rope.scaling.factor";
inline constexpr std::string_view rope_sections       = "rope.dimension_sections";
inline constexpr std::string_view n_expert            = "expert_count";
inline constexpr std::string_view n_expert_used       = "expert_used_count";
inline constexpr std::string_view n_ff_expert         = "expert_feed_forward_length";
inline constexpr std::string_view n_ff_shared         = "expert_shared_feed_forward_length";
inline constexpr std::string_view n_extra             = "nextn_predict_layers";
inline constexpr std::string_view recurrent_layers    = "attention.recurrent_layers";
inline constexpr std::string_view attention_interval  = "full_attention_interval";
inline constexpr std::string_view conv_kernel         = "ssm.conv_kernel";
inline constexpr std::string_view state_size          = "ssm.state_size";
inline constexpr std::string_view n_state_group       = "ssm.group_count";    // key heads
inline constexpr std::string_view n_time_step         = "ssm.time_step_rank"; // value heads
inline constexpr std::string_view inner_size          = "ssm.inner_size";

// of a drafter, below "dflash."
inline constexpr std::string_view block_size              = "block_size";
inline constexpr std::string_view target_layers           = "target_layers";
inline constexpr std::string_view sample_from_anchor      = "sample_from_anchor";
inline constexpr std::string_view sliding_window          = "attention.sliding_window";
inline constexpr std::string_view sliding_window_pattern  = "attention.sliding_window_pattern";
inline constexpr std::string_view attention_causal        = "attention.causal";
inline constexpr std::string_view attention_value_scale   = "attention.value_scale";
inline constexpr std::string_view embedding_scale         = "embedding_scale";
inline constexpr std::string_view logit_scale             = "logit_scale";
inline constexpr std::string_view final_logit_softcapping = "final_logit_softcapping";

// ours, in drafter files that dspark-convert wrote
inline constexpr std::string_view draft_mask_embd      = "dspark.noise_embd";
inline constexpr std::string_view draft_short_list     = "dspark.shortlist";
inline constexpr std::string_view draft_target_n_layer = "dspark.target.block_count"; // see target_depth

} // namespace keys

// arch_key("qwen3", keys::n_layer) is "qwen3.block_count".
inline std::string arch_key(std::string_view architecture, std::string_view name) {
    return std::string(architecture) + "." + std::string(name);
}

} // namespace pds
