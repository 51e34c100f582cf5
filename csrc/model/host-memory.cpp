#include "model/host-memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace pds {

namespace {

// "max" and the absurd numbers that mean "no limit" count as no value
std::optional<int64_t> read_number(const char * path) {
    std::ifstream file(path);
    int64_t       value = 0;
    if (!(file >> value) || value <= 0 || value > (int64_t(1) << 60)) {
        return std::nullopt;
    }
    return value;
}

std::optional<int64_t> read_meminfo(const std::string & field) {
    std::ifstream file("/proc/meminfo");
    std::string   name;
    int64_t       kilobytes = 0;
    std::string   rest;
    while (file >> name >> kilobytes) {
        std::getline(file, rest);
        if (name == field + ":") {
            return kilobytes * 1024;
        }
    }
    return std::nullopt;
}

} // namespace

host_memory read_host_memory() {
    host_memory memory = { read_meminfo("MemAvailable").value_or(-1), read_meminfo("MemTotal").value_or(-1) };
    const std::pair<const char *, const char *> limits[] = {
        { "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current" },
        { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes" },
    };
    for (const auto & [limit_path, usage_path] : limits) {
        const auto limit = read_number(limit_path);
        if (limit && memory.free >= 0) {
            const int64_t used = read_number(usage_path).value_or(0);
            memory.total       = std::min(memory.total, *limit);
            memory.free        = std::min(memory.free, std::max<int64_t>(*limit - used, 0));
        }
    }
    return memory;
}

} // namespace pds
