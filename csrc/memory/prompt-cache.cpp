#include "memory/prompt-cache.h"

#include <algorithm>
#include <set>

namespace pds {

const checkpoint * prompt_cache::find(std::span<const int32_t> prompt, int64_t n_max) {
    auto best = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
        const bool longer = best == kept_.end() || it->n_tokens() > best->n_tokens();
        if (longer && it->n_tokens() <= n_max && it->tokens.size() <= prompt.size() &&
            std::equal(it->tokens.begin(), it->tokens.end(), prompt.begin())) {
            best = it;
        }
    }
    if (best == kept_.end()) {
        return nullptr;
    }
    kept_.splice(kept_.begin(), kept_, best);
    return &kept_.front();
}

void prompt_cache::add(checkpoint added) {
    kept_.remove_if([&](const checkpoint & other) { return other.tokens == added.tokens; });
    kept_.push_front(std::move(added));
    while (!kept_.empty() && n_bytes() > max_bytes_) {
        kept_.pop_back();
    }
}

size_t prompt_cache::n_bytes() const {
    std::set<const cached_rows *> counted;
    size_t                        n = 0;
    for (const checkpoint & c : kept_) {
        n += c.state.size() + c.tokens.size() * sizeof(int32_t);
        for (const cached_rows * rows = c.rows.get(); rows != nullptr && counted.insert(rows).second;
             rows                     = rows->before.get()) {
            n += rows->bytes.size();
        }
    }
    return n;
}

} // namespace pds
