#include "model/pairing.h"

#include "base/error.h"
#include "gguf/keys.h"
#include "model/hparams.h"

#include <algorithm>

namespace pds {

namespace {

constexpr int32_t token_type_normal = 1;
constexpr int32_t token_type_unused = 5;

using lines = std::vector<std::string>;

void compare_sizes(const gguf_file & target, const draft_hparams & hp, const gguf_file & draft, lines & out) {
    const int64_t n_layer    = read_target_depth(target).n_layer;
    const int64_t n_embd     = hparam_int(target, keys::n_embd, 1, INT32_MAX);
    const int64_t n_wanted   = draft.get_int(keys::draft_target_n_layer, n_layer);
    const auto    n_taps     = static_cast<int64_t>(hp.target_layers.size());
    const auto    last_layer = static_cast<int64_t>(hp.target_layers.back());
    if (n_embd * n_taps != hp.n_features) {
        out.push_back(format("hidden size: the drafter takes %d values from %lld layers, that is %lld each, but the "
                             "target's hidden states have %lld",
                             hp.n_features, static_cast<long long>(n_taps),
                             static_cast<long long>(hp.n_features / n_taps), static_cast<long long>(n_embd)));
    }
    if (n_wanted != n_layer) {
        out.push_back(format("depth: the drafter was made for a target of %lld layers, the target has %lld",
                             static_cast<long long>(n_wanted), static_cast<long long>(n_layer)));
    }
    if (last_layer > n_layer - 1) {
        out.push_back(format("target layers: the drafter wants the output of layer %lld, but of the target's %lld "
                             "layers only 0..%lld can be used",
                             static_cast<long long>(last_layer - 1), static_cast<long long>(n_layer),
                             static_cast<long long>(n_layer - 2)));
    }
    const bool borrows = draft.find("token_embd.weight") == nullptr || draft.find("output.weight") == nullptr;
    if (borrows && hp.n_embd != n_embd) {
        out.push_back(format("embedding size: the drafter has %d and no embedding or head of its own, so it needs a "
                             "target of the same size, not %lld",
                             hp.n_embd, static_cast<long long>(n_embd)));
    }
}

void compare_rows(const gguf_file & target, const draft_hparams & hp, const gguf_file & draft, lines & out) {
    const gguf_tensor * embedding = target.find("token_embd.weight");
    const int64_t       n_rows    = embedding != nullptr ? embedding->ne[1] : 0;
    if (draft.find("token_embd.weight") == nullptr && hp.mask_embd.empty() && hp.mask_token_id >= n_rows) {
        out.push_back(format("mask id: %d is not a row of the target's embedding, which has %lld", hp.mask_token_id,
                             static_cast<long long>(n_rows)));
    }
    const gguf_tensor * head     = target.find("output.weight") != nullptr ? target.find("output.weight") : embedding;
    const gguf_tensor * own_head = draft.find("output.weight");
    const gguf_tensor * map      = draft.find("d2t");
    const int64_t       n_draft  = own_head != nullptr ? own_head->ne[1]
                                   : map != nullptr    ? map->ne[0]
                                   : head != nullptr   ? head->ne[1]
                                                       : 0;
    if (own_head == nullptr && head != nullptr && n_draft != head->ne[1]) {
        out.push_back(format("head: the drafter's map has %lld entries and no head of its own, but the target's head "
                             "has %lld rows",
                             static_cast<long long>(n_draft), static_cast<long long>(head->ne[1])));
    }
    const auto highest = std::max_element(hp.short_list.begin(), hp.short_list.end());
    if (highest != hp.short_list.end() && *highest >= n_draft) {
        out.push_back(format("short list: it names token %d, but the head has %lld rows", *highest,
                             static_cast<long long>(n_draft)));
    }
    const gguf_tensor * w2 = draft.find("markov_w2.weight");
    if (w2 != nullptr && w2->ne[1] != n_draft) {
        out.push_back(format("Markov head: it has %lld rows, but the head it adds to has %lld",
                             static_cast<long long>(w2->ne[1]), static_cast<long long>(n_draft)));
    }
}

// Padding is left out: exporters differ in how much of it they write.
size_t n_real_tokens(const gguf_file & gguf, size_t n_tokens) {
    if (!gguf.has(keys::token_type)) {
        return n_tokens;
    }
    const std::vector<int64_t> types = gguf.get_ints(keys::token_type);
    size_t                     n     = std::min(types.size(), n_tokens);
    while (n > 0 && types[n - 1] == token_type_unused) {
        n--;
    }
    return n;
}

void compare_vocabularies(const gguf_file & target, const gguf_file & draft, lines & out) {
    const auto   ours     = draft.get_strings(keys::tokens);
    const auto   theirs   = target.get_strings(keys::tokens);
    const size_t n_ours   = n_real_tokens(draft, ours.size());
    const size_t n_theirs = n_real_tokens(target, theirs.size());
    if (n_ours != n_theirs) {
        out.push_back(
            format("vocabulary: the drafter's has %zu tokens without padding, the target's %zu", n_ours, n_theirs));
    }
    size_t n_different = 0;
    size_t first       = 0;
    for (size_t id = 0; id < std::min(n_ours, n_theirs); id++) {
        if (ours[id] != theirs[id]) {
            first = n_different++ == 0 ? id : first;
        }
    }
    if (n_different > 0) {
        out.push_back(format("token texts: %zu differ, first id %zu: the drafter has %s, the target %s", n_different,
                             first, quoted(ours[first]).c_str(), quoted(theirs[first]).c_str()));
    }
}

void compare_tokenizers(const gguf_file & target, const gguf_file & draft, lines & out) {
    const auto pre = [](const gguf_file & gguf) { return gguf.get_string(keys::pre, ""); };
    if (draft.has(keys::pre) && pre(draft) != pre(target)) {
        out.push_back(format("pre-tokenizer: the drafter was made for %s, the target has %s",
                             quoted(pre(draft)).c_str(), quoted(pre(target)).c_str()));
    }
    if (draft.has(keys::merges) && target.has(keys::merges) &&
        draft.get_strings(keys::merges) != target.get_strings(keys::merges)) {
        out.push_back("tokenizer merges: the lists differ");
    }
}

void check_mask(const gguf_file & target, const draft_hparams & hp, lines & out) {
    const int64_t n_tokens = target.array_size(keys::tokens);
    if (hp.mask_token_id >= n_tokens || !target.has(keys::token_type)) {
        return;
    }
    const int64_t type = target.get_ints(keys::token_type)[static_cast<size_t>(hp.mask_token_id)];
    const int64_t eos  = target.get_int("tokenizer.ggml.eos_token_id", -1);
    if (type == token_type_normal || hp.mask_token_id == eos) {
        out.push_back(format("mask id: %d is %s in the target, a token that text may hold; a padding or control token "
                             "is needed",
                             hp.mask_token_id,
                             quoted(target.get_strings(keys::tokens)[static_cast<size_t>(hp.mask_token_id)]).c_str()));
    }
}

} // namespace

std::vector<std::string> pair_mismatches(const gguf_file & target, const gguf_file & draft, const draft_hparams & hp) {
    lines out;
    compare_sizes(target, hp, draft, out);
    compare_rows(target, hp, draft, out);
    compare_vocabularies(target, draft, out);
    compare_tokenizers(target, draft, out);
    check_mask(target, hp, out);
    return out;
}

void require_pair(const gguf_file & target, const gguf_file & draft, const draft_hparams & hp) {
    const lines mismatches = pair_mismatches(target, draft, hp);
    if (mismatches.empty()) {
        return;
    }
    std::string text = format("%s was not made for %s:", draft.path().c_str(), target.path().c_str());
    for (const std::string & line : mismatches) {
        text += "\n  - " + line;
    }
    throw error(PDS_ERR_PAIR, text + "\nConvert the drafter for this target with dspark-convert, or pass the target "
                                     "that it was made for");
}

} // namespace pds
