#include "model/hparams.h"

#include "base/error.h"
#include "gguf/keys.h"

#include <algorithm>
#include <cmath>

namespace pds {

namespace {

constexpr int64_t max_embd  = 1 << 20;
constexpr int64_t max_layer = 4096;
constexpr int64_t max_head  = 1 << 16;
constexpr int64_t max_vocab = 1 << 24;
constexpr int64_t max_ctx   = 1 << 30;

constexpr int64_t max_expert = 1024;

constexpr int32_t token_type_unused = 5;

std::string full_key(const gguf_file & gguf, std::string_view name) {
    return arch_key(gguf.architecture(), name);
}

int64_t checked(const gguf_file & gguf, const std::string & key, int64_t value, int64_t min, int64_t max) {
    PDS_REQUIRE(value >= min && value <= max, PDS_ERR_FORMAT, "%s: '%s' is %lld, outside %lld..%lld",
                gguf.path().c_str(), key.c_str(), static_cast<long long>(value), static_cast<long long>(min),
                static_cast<long long>(max));
    return value;
}

float positive_float(const gguf_file & gguf, std::string_view name, double fallback) {
    const std::string key   = full_key(gguf, name);
    const double      value = gguf.get_float(key, fallback);
    PDS_REQUIRE(std::isfinite(value) && value > 0, PDS_ERR_FORMAT, "%s: '%s' is %g; a positive number is needed",
                gguf.path().c_str(), key.c_str(), value);
    return static_cast<float>(value);
}

float read_rope_freq_scale(const gguf_file & gguf) {
    const std::string type_key = full_key(gguf, keys::rope_scaling_type);
    const std::string type     = gguf.has(type_key) ? std::string(gguf.get_string(type_key)) : "linear";
    const double      factor   = gguf.get_float(full_key(gguf, keys::rope_scaling_factor),
                                                gguf.get_float(full_key(gguf, keys::rope_scale_linear), 0.0));
    if (factor == 0 || factor == 1 || type == "none") {
        return 1;
    }
    PDS_REQUIRE(std::isfinite(factor) && factor > 0, PDS_ERR_FORMAT, "%s: rope scaling factor %g is not usable",
                gguf.path().c_str(), factor);
    PDS_REQUIRE(type == "linear", PDS_ERR_UNSUPPORTED,
                "%s: rope scaling of type '%s' is not supported (supported: none, linear)", gguf.path().c_str(),
                type.c_str());
    return static_cast<float>(1.0 / factor);
}

void read_vocabulary(const gguf_file & gguf, target_hparams & hp) {
    const gguf_tensor * embedding = gguf.find("token_embd.weight");
    PDS_REQUIRE(embedding != nullptr, PDS_ERR_FORMAT, "%s: tensor 'token_embd.weight' is missing", gguf.path().c_str());
    const gguf_tensor * output = gguf.find("output.weight");
    const int64_t       rows   = output != nullptr ? output->ne[1] : embedding->ne[1];
    hp.n_vocab_rows            = static_cast<int32_t>(checked(gguf, "rows of the output", rows, 1, max_vocab));
    hp.n_vocab = static_cast<int32_t>(checked(gguf, std::string(keys::tokens), gguf.array_size(keys::tokens), 1,
                                              std::min<int64_t>(rows, embedding->ne[1])));

    if (gguf.has(keys::token_type)) {
        const std::vector<int64_t> types = gguf.get_ints(keys::token_type);
        for (size_t id = 0; id < types.size() && id < static_cast<size_t>(hp.n_vocab); id++) {
            if (types[id] == token_type_unused) {
                hp.banned.push_back(static_cast<int32_t>(id));
            }
        }
    }
    const int64_t mask = gguf.get_int(keys::mask_token_id, -1);
    if (mask >= 0 && mask < hp.n_vocab) {
        hp.banned.push_back(static_cast<int32_t>(mask));
    }
    for (int32_t id = hp.n_vocab; id < hp.n_vocab_rows; id++) {
        hp.banned.push_back(id);
    }
}

} // namespace

// In the file, the layers that only predict further tokens are counted with the others.
target_depth read_target_depth(const gguf_file & gguf) {
    const auto n_block = static_cast<int32_t>(hparam_int(gguf, keys::n_layer, 1, max_layer));
    const auto n_extra = static_cast<int32_t>(hparam_int(gguf, keys::n_extra, 0, max_layer, 0));
    const bool whole   = n_extra == 0 || gguf.find("blk.0.attn_norm.weight") != nullptr;
    PDS_REQUIRE(n_extra < n_block && whole, PDS_ERR_UNSUPPORTED,
                "%s: all that this file holds of '%s' are layers that predict further tokens (%d of %d blocks); a "
                "file with the model itself is needed",
                gguf.path().c_str(), std::string(gguf.architecture()).c_str(), n_extra, n_block);
    return { n_block - n_extra, n_extra };
}

int64_t hparam_int(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max) {
    const std::string key = full_key(gguf, name);
    return checked(gguf, key, gguf.get_int(key), min, max);
}

int64_t hparam_int(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max, int64_t fallback) {
    const std::string key = full_key(gguf, name);
    return gguf.has(key) ? checked(gguf, key, gguf.get_int(key), min, max) : fallback;
}

std::vector<int32_t> hparam_per_layer(const gguf_file & gguf, std::string_view name, int64_t min, int64_t max,
                                      int64_t n_layer, int64_t fallback) {
    const std::string    key = full_key(gguf, name);
    std::vector<int32_t> result(static_cast<size_t>(n_layer), static_cast<int32_t>(fallback));
    if (!gguf.has(key)) {
        return result;
    }
    const std::vector<int64_t> values = gguf.get_ints(key);
    PDS_REQUIRE(values.size() == 1 || static_cast<int64_t>(values.size()) >= n_layer, PDS_ERR_FORMAT,
                "%s: '%s' has %zu entries for %lld layers", gguf.path().c_str(), key.c_str(), values.size(),
                static_cast<long long>(n_layer));
    for (size_t il = 0; il < result.size(); il++) {
        result[il] = static_cast<int32_t>(checked(gguf, key, values[values.size() == 1 ? 0 : il], min, max));
    }
    return result;
}

void check_heads(const gguf_file & gguf, const target_hparams & hp) {
    for (size_t il = 0; il < hp.n_head.size(); il++) {
        PDS_REQUIRE(hp.recurrent[il] || (hp.n_head[il] > 0 && hp.n_head_kv[il] > 0), PDS_ERR_FORMAT,
                    "%s: layer %zu has %d attention heads and %d key/value heads; at least one of each is needed",
                    gguf.path().c_str(), il, hp.n_head[il], hp.n_head_kv[il]);
        PDS_REQUIRE(hp.recurrent[il] || hp.n_head[il] % hp.n_head_kv[il] == 0, PDS_ERR_FORMAT,
                    "%s: layer %zu has %d attention heads, not a multiple of its %d key/value heads",
                    gguf.path().c_str(), il, hp.n_head[il], hp.n_head_kv[il]);
    }
}

void read_expert_hparams(const gguf_file & gguf, target_hparams & hp) {
    expert_hparams & experts = hp.experts;
    experts.n_expert         = static_cast<int32_t>(hparam_int(gguf, keys::n_expert, 1, max_expert));
    experts.n_used           = hparam_per_layer(gguf, keys::n_expert_used, 1, max_expert_used, hp.n_layer, 0);
    experts.n_ff             = hparam_per_layer(gguf, keys::n_ff_expert, 1, max_embd * 16, hp.n_layer, 0);
    for (size_t il = 0; il < experts.n_used.size(); il++) {
        const int32_t n_used = experts.n_used[il];
        PDS_REQUIRE(n_used >= 1 && n_used <= experts.n_expert, PDS_ERR_FORMAT,
                    "%s: layer %zu uses %d of %d experts for a token; 1..%d is possible ('%s')", gguf.path().c_str(),
                    il, n_used, experts.n_expert, experts.n_expert, full_key(gguf, keys::n_expert_used).c_str());
        experts.n_ff[il] = experts.n_ff[il] > 0 ? experts.n_ff[il] : hp.n_ff[il] / n_used;
        PDS_REQUIRE(experts.n_ff[il] > 0, PDS_ERR_FORMAT, "%s: '%s' is missing", gguf.path().c_str(),
                    full_key(gguf, keys::n_ff_expert).c_str());
    }
}

void read_shared_expert_hparams(const gguf_file & gguf, target_hparams & hp) {
    const int32_t n_ff     = *std::max_element(hp.n_ff.begin(), hp.n_ff.end());
    const int64_t n_shared = hparam_int(gguf, keys::n_ff_shared, 1, max_embd * 16, n_ff);
    PDS_REQUIRE(n_shared > 0, PDS_ERR_FORMAT, "%s: '%s' is missing", gguf.path().c_str(),
                full_key(gguf, keys::n_ff_shared).c_str());
    hp.experts.n_ff_shared = static_cast<int32_t>(n_shared);
}

target_hparams read_common_hparams(const gguf_file & gguf) {
    target_hparams hp;
    hp.architecture          = gguf.architecture();
    const target_depth depth = read_target_depth(gguf);
    hp.n_layer               = depth.n_layer;
    hp.n_extra               = depth.n_extra;
    hp.n_ctx_train           = static_cast<int32_t>(hparam_int(gguf, keys::n_ctx_train, 1, max_ctx));
    hp.n_embd                = static_cast<int32_t>(hparam_int(gguf, keys::n_embd, 1, max_embd));
    hp.n_ff                  = hparam_per_layer(gguf, keys::n_ff, 0, max_embd * 16, hp.n_layer, 0);
    hp.n_head                = hparam_per_layer(gguf, keys::n_head, 0, max_head, hp.n_layer, 0);
    hp.n_head_kv             = gguf.has(full_key(gguf, keys::n_head_kv))
                                   ? hparam_per_layer(gguf, keys::n_head_kv, 0, max_head, hp.n_layer, 0)
                                   : hp.n_head;
    hp.recurrent.assign(static_cast<size_t>(hp.n_layer), false);
    const int32_t n_head = *std::max_element(hp.n_head.begin(), hp.n_head.end());
    PDS_REQUIRE(n_head > 0, PDS_ERR_FORMAT, "%s: '%s.attention.head_count' is missing or 0", gguf.path().c_str(),
                hp.architecture.c_str());
    const int64_t head_dim = std::max(hp.n_embd / n_head, 1);
    hp.head_dim_k          = static_cast<int32_t>(hparam_int(gguf, keys::n_embd_head_k, 2, max_embd, head_dim));
    hp.head_dim_v          = static_cast<int32_t>(hparam_int(gguf, keys::n_embd_head_v, 2, max_embd, head_dim));
    hp.n_rot               = static_cast<int32_t>(hparam_int(gguf, keys::n_rot, 2, hp.head_dim_k, hp.head_dim_k));
    PDS_REQUIRE(hp.n_rot % 2 == 0, PDS_ERR_FORMAT, "%s: '%s.rope.dimension_count' is %d, an odd number",
                gguf.path().c_str(), hp.architecture.c_str(), hp.n_rot);
    hp.rope_freq_base  = positive_float(gguf, keys::rope_freq_base, 10000.0);
    hp.rope_freq_scale = read_rope_freq_scale(gguf);
    PDS_REQUIRE(gguf.has(full_key(gguf, keys::rms_eps)), PDS_ERR_FORMAT,
                "%s: '%s.attention.layer_norm_rms_epsilon' is missing", gguf.path().c_str(), hp.architecture.c_str());
    hp.rms_eps = positive_float(gguf, keys::rms_eps, 0.0);
    read_vocabulary(gguf, hp);
    return hp;
}

} // namespace pds
