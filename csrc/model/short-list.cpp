#include "model/short-list.h"

#include "gguf/keys.h"

#include <algorithm>

namespace pds {

namespace {

constexpr int64_t token_type_control      = 3;
constexpr int64_t token_type_user_defined = 4;
constexpr size_t  row_step                = 8;

// A set of ids below a limit.
class id_set {
  public:
    explicit id_set(int64_t n) : has_(static_cast<size_t>(n), false) {}

    void add(int64_t id) {
        if (id < static_cast<int64_t>(has_.size()) && !has_[static_cast<size_t>(id)]) {
            has_[static_cast<size_t>(id)] = true;
            n_++;
        }
    }

    void fill_up(size_t step) {
        for (size_t id = 0; id < has_.size() && n_ % step != 0; id++) {
            add(static_cast<int64_t>(id));
        }
    }

    std::vector<int32_t> ascending() const {
        std::vector<int32_t> ids;
        for (size_t id = 0; id < has_.size(); id++) {
            if (has_[id]) {
                ids.push_back(static_cast<int32_t>(id));
            }
        }
        return ids;
    }

  private:
    std::vector<bool> has_;
    size_t            n_ = 0;
};

void add_special_tokens(const gguf_file & target, id_set & out) {
    if (!target.has(keys::token_type)) {
        return;
    }
    const std::vector<int64_t> types = target.get_ints(keys::token_type);
    for (size_t id = 0; id < types.size(); id++) {
        if (types[id] == token_type_control || types[id] == token_type_user_defined) {
            out.add(static_cast<int64_t>(id));
        }
    }
}

} // namespace

std::vector<int32_t> choose_short_list(const draft_hparams & hp, const gguf_file & target, int64_t n_head_rows,
                                       int32_t wanted) {
    const std::vector<int32_t> & list = hp.short_list;
    if (wanted == 0 || (wanted < 0 && list.empty())) {
        return {};
    }
    const int64_t most = list.empty() ? n_head_rows : static_cast<int64_t>(list.size());
    const int64_t n    = wanted < 0 ? most : std::min<int64_t>(wanted, most);
    id_set        ids(n_head_rows);
    for (int64_t i = 0; i < n; i++) {
        ids.add(list.empty() ? i : list[static_cast<size_t>(i)]);
    }
    add_special_tokens(target, ids);
    ids.fill_up(row_step);
    return ids.ascending();
}

} // namespace pds
