#include "spec/text-rows.h"

#include "base/error.h"

#include <algorithm>
#include <limits>

namespace pds {

namespace {

constexpr int64_t most_rows = 256;
constexpr float   infinity  = std::numeric_limits<float>::infinity();

int64_t n_rows_for(const draft_model & model) {
    return std::min(most_rows, model.whole_output().tensor->ne[1]);
}

} // namespace

text_rows::text_rows(const draft_model & model)
    : model_(model), has_row_(static_cast<size_t>(model.whole_output().tensor->ne[1]), false),
      ids_(static_cast<size_t>(n_rows_for(model)), -1),
      output_(model.whole_output(), n_rows_for(model), model.output_device(), false),
      context_(ggml_init({ ggml_tensor_overhead(), nullptr, true })) {
    output_.allocate();
    tensors_.output = output_.linear();
    if (model.whole_markov_w2().tensor != nullptr) {
        markov_w2_.emplace(model.whole_markov_w2(), n_rows_for(model), model.output_device(), false);
        markov_w2_->allocate();
        tensors_.markov_w2 = markov_w2_->linear();
    }
    tensors_.offset = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, n_rows_for(model));
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(),
                                                           ggml_backend_dev_buffer_type(model.output_device().dev)));
    PDS_REQUIRE(buffer_ != nullptr, PDS_ERR_MEMORY, "%zu values beside the short list could not be allocated",
                ids_.size());
    start();
}

void text_rows::report(pds_memory_report & out) const {
    output_.report(out);
    if (markov_w2_) {
        markov_w2_->report(out);
    }
}

void text_rows::start() {
    std::fill(has_row_.begin(), has_row_.end(), false);
    for (const int32_t id : model_.draft_to_ids()) {
        has_row_[static_cast<size_t>(id)] = true;
    }
    for (const int32_t id : model_.target().hparams.banned) { // never drafted, so a row would be wasted
        if (static_cast<size_t>(id) < has_row_.size()) {
            has_row_[static_cast<size_t>(id)] = true;
        }
    }
    std::fill(ids_.begin(), ids_.end(), -1);
    const std::vector<float> offsets(ids_.size(), -infinity);
    ggml_backend_tensor_set(tensors_.offset, offsets.data(), 0, ggml_nbytes(tensors_.offset));
    n_seen_ = 0;
    next_   = 0;
}

void text_rows::see(int32_t id) {
    n_seen_++;
    if (static_cast<size_t>(id) >= has_row_.size() || has_row_[static_cast<size_t>(id)]) {
        return;
    }
    int32_t & held = ids_[next_];
    if (held >= 0) {
        has_row_[static_cast<size_t>(held)] = false;
    }
    held                              = id;
    has_row_[static_cast<size_t>(id)] = true;
    output_.write_one(static_cast<int64_t>(next_), id);
    if (markov_w2_) {
        markov_w2_->write_one(static_cast<int64_t>(next_), id);
    }
    const float offset = 0;
    ggml_backend_tensor_set(tensors_.offset, &offset, next_ * sizeof(offset), sizeof(offset));
    next_ = (next_ + 1) % ids_.size();
}

} // namespace pds
