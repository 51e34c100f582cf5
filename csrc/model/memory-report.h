// What a model and a session take, per device.
#pragma once

#include "base/error.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace pds {

inline pds_memory_line & memory_line_of(pds_memory_report & report, const std::string & device) {
    for (int32_t i = 0; i < report.n_lines; i++) {
        if (device == report.lines[i].device) {
            return report.lines[i];
        }
    }
    constexpr int32_t capacity = sizeof(report.lines) / sizeof(report.lines[0]);
    PDS_REQUIRE(report.n_lines < capacity, PDS_ERR_INTERNAL, "memory report: more than %d devices", capacity);
    pds_memory_line & line = report.lines[report.n_lines++];
    line                   = {};
    std::snprintf(line.device, sizeof(line.device), "%s", device.c_str());
    return line;
}

} // namespace pds
