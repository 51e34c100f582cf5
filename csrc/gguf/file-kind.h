// Tells what a file is that was given in place of a GGUF file.
#pragma once

#include "gguf/mapped-file.h"

#include <string>

namespace pds {

// For a file that does not start with the GGUF magic: what it looks like and what to do about it, as the end of a
// sentence that starts with the file's path.
std::string file_kind(const mapped_file & file);

} // namespace pds
