// Re-quantizes a model file: the same model with its weights in another type.
#pragma once

#include "base/progress.h"
#include "gguf/gguf-file.h"

#include <cstdint>
#include <string>

namespace pds {

// Writes source, which may be a split set, as one file with its weights in the wanted type (ggml type number).
//
// Kept as they are: tensors of one dimension, norms, the router of a mixture of experts, convolutions over time, and
// what is of an integer type. Weights whose rows do not fit the type's blocks become Q8_0, or F16 where that does not
// fit either. The token embedding and the output head become Q8_0 where the wanted type is smaller. A weight that has
// its new type already is copied byte for byte, as is all metadata but the file type and what tells of a split.
//
// Throws PDS_ERR_ARGUMENT for a type that cannot be written or a path of source itself, PDS_ERR_FORMAT for a weight
// that is not a finite number or too large for F16, PDS_ERR_FILE, and PDS_ERR_CANCELLED; path is not touched then.
void quantize(const gguf_file & source, const std::string & path, int32_t type, bool replace, progress & progress);

} // namespace pds
