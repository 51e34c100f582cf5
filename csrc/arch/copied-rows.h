// Some rows of a linear layer, copied from its file and held side by side in the same type.
#pragma once

#include "ggml-cpp.h"
#include "gguf/gguf-file.h"
#include "graph/linear.h"
#include "model/device.h"
#include "pydspark.h"

#include <cstdint>
#include <span>

namespace pds {

// A linear layer with the tensor of its file.
struct linear_source {
    linear_weight       whole;
    const gguf_tensor * tensor = nullptr;
};

class copied_rows {
  public:
    // n: rows to make room for. repack: hold them in a faster layout where there is one; such rows are written all at
    // once. Throws PDS_ERR_UNSUPPORTED for a layer with a bias.
    copied_rows(const linear_source & source, int64_t n, const device & owner, bool repack);

    void report(pds_memory_report & out) const;
    // The weight becomes an address that is never read: good for measuring only.
    void pretend();
    // All values are 0 at first.
    void allocate();

    // Row i becomes row rows[i] of the whole layer; one for each.
    void write(std::span<const int32_t> rows);
    // Row to becomes row from of the whole layer.
    void write_one(int64_t to, int32_t from);

    const linear_weight & linear() const { return linear_; } // [n_in, n]

  private:
    const uint8_t * bytes_of(int32_t row) const;

    const gguf_tensor *     tensor_;
    placement               place_;
    size_t                  row_size_; // bytes
    ggml_context_ptr        context_;
    ggml_backend_buffer_ptr buffer_;
    linear_weight           linear_;
};

} // namespace pds
