// Finds the files of a model that was split into several.
#pragma once

#include "gguf/gguf-parse.h"
#include "gguf/mapped-file.h"

#include <string>
#include <vector>

namespace pds {

struct gguf_set {
    std::vector<mapped_file>   files; // in order of split.no; one for a model that is not split
    std::vector<gguf_contents> contents;
};

// path: the only file, or any part of a split set; the parts are found by their names (-00002-of-00003.gguf).
// Throws as gguf_parse, PDS_ERR_FILE for a missing part and PDS_ERR_FORMAT for parts that do not belong together.
gguf_set gguf_open_set(const std::string & path);

} // namespace pds
