// The short list: the rows of a big head that a drafter chooses from. Reading them alone is the largest saving there
// is, and costs nothing in exactness, since the distribution that drafts are drawn from is known all the same.
#pragma once

#include "model/draft-hparams.h"

#include <cstdint>
#include <vector>

namespace pds {

// Ids in ascending order, or none for the whole head.
//
// wanted: -1 = the drafter's own list if it has one; 0 = the whole head; n = the first n of its list, or where it has
// none the n lowest ids, which byte-pair vocabularies give to what was most frequent. The target's special tokens are
// always added, and ids up to a multiple of 8, which some layouts of weights need.
std::vector<int32_t> choose_short_list(const draft_hparams & hp, const gguf_file & target, int64_t n_head_rows,
                                       int32_t wanted);

} // namespace pds
