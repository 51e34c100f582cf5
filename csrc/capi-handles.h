// What the opaque handles of the C API hold.
#pragma once

#include "gguf/gguf-file.h"

#include <memory>

struct pds_gguf {
    std::shared_ptr<pds::gguf_file> file;
};
