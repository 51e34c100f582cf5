// Memory of the machine that this process may use.
#pragma once

#include <cstdint>

namespace pds {

struct host_memory {
    int64_t free;  // bytes; -1 where the system does not tell
    int64_t total; // bytes; -1 where the system does not tell
};

// Container limits (cgroup v1 and v2) count.
host_memory read_host_memory();

} // namespace pds
