#include "arch/copied-rows.h"

#include "base/error.h"
#include "model/memory-report.h"

#include <cstring>
#include <vector>

namespace pds {

namespace {

placement place_rows(const linear_source & source, int64_t n, const device & owner, bool repack) {
    PDS_REQUIRE(source.whole.bias == nullptr, PDS_ERR_UNSUPPORTED,
                "tensor '%s' comes with a bias, and so cannot be used with a short list; use draft_shortlist 0",
                source.tensor->name.c_str());
    const int64_t ne[4] = { source.tensor->ne[0], n, 1, 1 };
    const auto    place = place_weight(owner, repack, weight_use::mul_mat, source.tensor->type, ne);
    PDS_REQUIRE(place, PDS_ERR_UNSUPPORTED, "rows of tensor '%s' (%s) cannot be used in a matrix product",
                source.tensor->name.c_str(), ggml_type_name(source.tensor->type));
    return *place;
}

} // namespace

copied_rows::copied_rows(const linear_source & source, int64_t n, const device & owner, bool repack)
    : tensor_(source.tensor), place_(place_rows(source, n, owner, repack)),
      row_size_(ggml_row_size(tensor_->type, tensor_->ne[0])),
      context_(ggml_init({ ggml_tensor_overhead(), nullptr, true })), linear_(source.whole) {
    linear_.weight = ggml_new_tensor_2d(context_.get(), tensor_->type, tensor_->ne[0], n);
    ggml_set_name(linear_.weight, tensor_->name.c_str());
}

void copied_rows::report(pds_memory_report & out) const {
    memory_line_of(out, place_.owner->name).weights +=
        static_cast<int64_t>(ggml_backend_buft_get_alloc_size(place_.type, linear_.weight));
}

void copied_rows::pretend() {
    static char nowhere[64];
    linear_.weight->data = nowhere;
}

void copied_rows::allocate() {
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), place_.type));
    PDS_REQUIRE(buffer_ != nullptr, PDS_ERR_MEMORY, "%s: %.1f MiB for rows of '%s' could not be allocated",
                place_.owner->name.c_str(), static_cast<double>(ggml_nbytes(linear_.weight)) / (1 << 20),
                tensor_->name.c_str());
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_clear(buffer_.get(), 0);
}

void copied_rows::write(std::span<const int32_t> rows) {
    std::vector<uint8_t> bytes(rows.size() * row_size_);
    for (size_t i = 0; i < rows.size(); i++) {
        std::memcpy(bytes.data() + i * row_size_, bytes_of(rows[i]), row_size_);
    }
    ggml_backend_tensor_set(linear_.weight, bytes.data(), 0, bytes.size());
}

void copied_rows::write_one(int64_t to, int32_t from) {
    ggml_backend_tensor_set(linear_.weight, bytes_of(from), static_cast<size_t>(to) * row_size_, row_size_);
}

const uint8_t * copied_rows::bytes_of(int32_t row) const {
    return tensor_->data + static_cast<size_t>(row) * row_size_;
}

} // namespace pds
