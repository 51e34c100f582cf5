// Which ggml tensor types a file may use.
#pragma once

#include "ggml.h"

#include <cstdint>
#include <string>

namespace pds {

bool tensor_type_known(uint32_t number);
// For a number that is not known: its name if it had one, why it cannot be read and what to do.
std::string tensor_type_problem(uint32_t number);

} // namespace pds
