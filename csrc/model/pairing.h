// Do a target and a drafter belong together?
#pragma once

#include "gguf/gguf-file.h"
#include "model/draft-hparams.h"

#include <string>
#include <vector>

namespace pds {

// Every mismatch as one line: what was seen, and what was wanted. Empty when the pair fits.
std::vector<std::string> pair_mismatches(const gguf_file & target, const gguf_file & draft, const draft_hparams & hp);

// Throws error(PDS_ERR_PAIR) that lists every mismatch.
void require_pair(const gguf_file & target, const gguf_file & draft, const draft_hparams & hp);

} // namespace pds
