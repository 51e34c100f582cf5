#include "model/draft-hparams.h"

#include "base/error.h"
#include "gguf/keys.h"
#include "model/hparams.h"

#include <cmath>

namespace pds {

namespace {

constexpr int64_t max_embd         = 1 << 20;
constexpr int64_t max_layer        = 64; // of the drafter; graphs have room for their nodes
constexpr int64_t max_head         = 1 << 16;
constexpr int64_t max_target_layer = 4096;
constexpr int64_t max_block        = 31; // a round then commits at most 32 tokens
constexpr int64_t max_id           = 1 << 24;

std::string key(std::string_view name) {
    return arch_key("dflash", name);
}

// Settings of drafter families that are computed differently. Absent or neutral is fine.
void refuse_other_families(const gguf_file & gguf) {
    const auto refuse_unless = [&](std::string_view name, double neutral) {
        const double value = gguf.get_float(key(name), neutral);
        PDS_REQUIRE(value == neutral || value == 0.0, PDS_ERR_UNSUPPORTED,
                    "%s: '%s' is %g; drafters of that family are not supported", gguf.path().c_str(), key(name).c_str(),
                    value);
    };
    refuse_unless(keys::embedding_scale, 1.0);
    refuse_unless(keys::logit_scale, 1.0);
    refuse_unless(keys::final_logit_softcapping, 0.0);
    refuse_unless(keys::attention_value_scale, 1.0);
    PDS_REQUIRE(!gguf.get_bool(key(keys::attention_causal), false), PDS_ERR_UNSUPPORTED,
                "%s: '%s' is true; drafters with causal blocks are not supported", gguf.path().c_str(),
                key(keys::attention_causal).c_str());
}

void read_windows(const gguf_file & gguf, draft_hparams & hp) {
    hp.windowed.assign(static_cast<size_t>(hp.n_layer), false);
    hp.window = static_cast<int32_t>(hparam_int(gguf, keys::sliding_window, 0, max_id, 0));
    if (hp.window == 0) {
        return;
    }
    hp.windowed.assign(static_cast<size_t>(hp.n_layer), true);
    if (gguf.has(key(keys::sliding_window_pattern))) {
        const std::vector<bool> pattern = gguf.get_bools(key(keys::sliding_window_pattern));
        PDS_REQUIRE(static_cast<int64_t>(pattern.size()) == hp.n_layer, PDS_ERR_FORMAT,
                    "%s: '%s' has %zu entries for %d layers", gguf.path().c_str(),
                    key(keys::sliding_window_pattern).c_str(), pattern.size(), hp.n_layer);
        hp.windowed = pattern;
    }
}

void read_target_layers(const gguf_file & gguf, draft_hparams & hp) {
    for (const int64_t layer : gguf.get_ints(key(keys::target_layers))) {
        PDS_REQUIRE(layer >= 0 && layer < max_target_layer, PDS_ERR_FORMAT, "%s: '%s' names layer %lld",
                    gguf.path().c_str(), key(keys::target_layers).c_str(), static_cast<long long>(layer));
        PDS_REQUIRE(hp.target_layers.empty() || layer > hp.target_layers.back(), PDS_ERR_FORMAT,
                    "%s: '%s' is not in ascending order", gguf.path().c_str(), key(keys::target_layers).c_str());
        hp.target_layers.push_back(static_cast<int32_t>(layer));
    }
    PDS_REQUIRE(!hp.target_layers.empty() && hp.target_layers.size() <= 64, PDS_ERR_FORMAT,
                "%s: '%s' is empty or has more than 64 entries", gguf.path().c_str(), key(keys::target_layers).c_str());
    const gguf_tensor * fc = gguf.find("fc.weight");
    PDS_REQUIRE(fc != nullptr, PDS_ERR_FORMAT, "%s: tensor 'fc.weight' is missing", gguf.path().c_str());
    hp.n_features = static_cast<int32_t>(std::min<int64_t>(fc->ne[0], max_embd * max_target_layer / 8));
    PDS_REQUIRE(hp.n_features % static_cast<int32_t>(hp.target_layers.size()) == 0, PDS_ERR_FORMAT,
                "%s: 'fc.weight' takes %d values, which %zu target layers cannot share evenly", gguf.path().c_str(),
                hp.n_features, hp.target_layers.size());
}

void read_mask_embedding(const gguf_file & gguf, draft_hparams & hp) {
    if (!gguf.has(keys::draft_mask_embd)) {
        return;
    }
    for (const double value : gguf.get_floats(keys::draft_mask_embd)) {
        hp.mask_embd.push_back(static_cast<float>(value));
    }
    PDS_REQUIRE(static_cast<int64_t>(hp.mask_embd.size()) == hp.n_embd, PDS_ERR_FORMAT,
                "%s: '%s' has %zu values for an embedding of %d", gguf.path().c_str(),
                std::string(keys::draft_mask_embd).c_str(), hp.mask_embd.size(), hp.n_embd);
}

void read_short_list(const gguf_file & gguf, draft_hparams & hp) {
    if (!gguf.has(keys::draft_short_list)) {
        return;
    }
    const std::string    name(keys::draft_short_list);
    std::vector<bool>    seen(static_cast<size_t>(hp.n_vocab), false);
    std::vector<int64_t> ids = gguf.get_ints(keys::draft_short_list);
    PDS_REQUIRE(!ids.empty(), PDS_ERR_FORMAT, "%s: '%s' is empty; leave it out for the whole vocabulary",
                gguf.path().c_str(), name.c_str());
    PDS_REQUIRE(gguf.find("d2t") == nullptr, PDS_ERR_FORMAT,
                "%s: has both '%s' and a reduced vocabulary (tensor 'd2t'); only one of them is possible",
                gguf.path().c_str(), name.c_str());
    for (size_t i = 0; i < ids.size(); i++) {
        PDS_REQUIRE(ids[i] >= 0 && ids[i] < hp.n_vocab && !seen[static_cast<size_t>(ids[i])], PDS_ERR_FORMAT,
                    "%s: entry %zu of '%s' is %lld; different ids in 0..%d are needed", gguf.path().c_str(), i,
                    name.c_str(), static_cast<long long>(ids[i]), hp.n_vocab - 1);
        seen[static_cast<size_t>(ids[i])] = true;
        hp.short_list.push_back(static_cast<int32_t>(ids[i]));
    }
}

} // namespace

draft_hparams read_draft_hparams(const gguf_file & gguf) {
    const std::string architecture(gguf.architecture());
    PDS_REQUIRE(architecture == "dflash", PDS_ERR_UNSUPPORTED,
                "%s has architecture '%s', but a DSpark drafter has 'dflash'%s", gguf.path().c_str(),
                architecture.c_str(),
                architecture == "dspark" ? "; it was written by an early converter: convert the checkpoint again with "
                                           "dspark-convert"
                                         : "; were target and drafter swapped?");
    refuse_other_families(gguf);
    draft_hparams hp;
    hp.n_vocab   = static_cast<int32_t>(std::min<int64_t>(gguf.array_size(keys::tokens), max_id));
    hp.n_layer   = static_cast<int32_t>(hparam_int(gguf, keys::n_layer, 1, max_layer));
    hp.n_embd    = static_cast<int32_t>(hparam_int(gguf, keys::n_embd, 1, max_embd));
    hp.n_head    = static_cast<int32_t>(hparam_int(gguf, keys::n_head, 1, max_head));
    hp.n_head_kv = static_cast<int32_t>(hparam_int(gguf, keys::n_head_kv, 1, max_head, hp.n_head));
    hp.head_dim =
        static_cast<int32_t>(hparam_int(gguf, keys::n_embd_head_k, 2, max_embd, std::max(hp.n_embd / hp.n_head, 2)));
    hp.n_ff           = static_cast<int32_t>(hparam_int(gguf, keys::n_ff, 1, max_embd * 16));
    hp.rms_eps        = static_cast<float>(gguf.get_float(key(keys::rms_eps)));
    hp.rope_freq_base = static_cast<float>(gguf.get_float(key(keys::rope_freq_base)));
    hp.block_size     = static_cast<int32_t>(hparam_int(gguf, keys::block_size, 2, max_block));
    hp.mask_token_id  = static_cast<int32_t>(gguf.get_int(keys::mask_token_id));
    PDS_REQUIRE(hp.n_head % hp.n_head_kv == 0 && hp.head_dim % 2 == 0, PDS_ERR_FORMAT,
                "%s: %d heads of %d dimensions over %d key/value heads do not fit together", gguf.path().c_str(),
                hp.n_head, hp.head_dim, hp.n_head_kv);
    PDS_REQUIRE(hp.rms_eps > 0 && hp.rope_freq_base > 0 && std::isfinite(hp.rms_eps) &&
                    std::isfinite(hp.rope_freq_base),
                PDS_ERR_FORMAT, "%s: norm epsilon %g and rope base %g must be positive", gguf.path().c_str(),
                static_cast<double>(hp.rms_eps), static_cast<double>(hp.rope_freq_base));
    PDS_REQUIRE(hp.mask_token_id >= 0 && hp.mask_token_id < hp.n_vocab, PDS_ERR_FORMAT,
                "%s: the mask token %d is outside the vocabulary of %d", gguf.path().c_str(), hp.mask_token_id,
                hp.n_vocab);
    // files that do not say are of the layout that their kind was first trained in
    hp.anchor_first = gguf.get_bool(key(keys::sample_from_anchor), gguf.find("markov_w1.weight") != nullptr);
    read_target_layers(gguf, hp);
    read_windows(gguf, hp);
    read_mask_embedding(gguf, hp);
    read_short_list(gguf, hp);
    return hp;
}

} // namespace pds
