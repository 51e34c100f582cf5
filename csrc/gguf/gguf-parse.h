// One GGUF file, checked: whatever comes out of gguf_parse can be used without looking at the file's sizes again.
#pragma once

#include "gguf/gguf-types.h"
#include "gguf/mapped-file.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pds {

struct gguf_contents {
    uint32_t                 version   = 0;
    uint64_t                 alignment = 0; // bytes, a power of two
    std::vector<gguf_value>  values;        // no key twice
    std::vector<gguf_tensor> tensors;       // inside the file, not overlapping
};

// The result points into file. Throws PDS_ERR_FORMAT for what is damaged or not GGUF, and PDS_ERR_UNSUPPORTED for what
// is well-formed but of a version or tensor type that cannot be read.
gguf_contents gguf_parse(const mapped_file & file, int file_index);

// The value of an integer key, or fallback if there is no such key.
// Throws PDS_ERR_FORMAT if it is of another type or does not fit.
int64_t gguf_find_int(const mapped_file & file, const gguf_contents & contents, std::string_view key, int64_t fallback);

// Longest key, in bytes.
inline constexpr size_t gguf_max_key_size = 65535;

} // namespace pds
