#include "base/log.h"

#include <cstring>
#include <deque>
#include <mutex>

namespace pds {

namespace {

constexpr size_t max_lines     = 512;
constexpr size_t max_line_size = 2000;

std::mutex              mutex;
std::deque<std::string> lines;

} // namespace

void log_write(log_level level, const std::string & text) {
    std::string line = { static_cast<char>(level), ' ' };
    for (const char c : text.substr(0, max_line_size)) {
        line += c == '\n' || c == '\0' ? ' ' : c;
    }
    line += '\n';
    const std::lock_guard<std::mutex> lock(mutex);
    if (lines.size() == max_lines) {
        lines.pop_front();
    }
    lines.push_back(std::move(line));
}

int64_t log_take(char * buffer, int64_t size) {
    const std::lock_guard<std::mutex> lock(mutex);
    int64_t                           used = 0;
    while (!lines.empty() && used + static_cast<int64_t>(lines.front().size()) <= size) {
        std::memcpy(buffer + used, lines.front().data(), lines.front().size());
        used += static_cast<int64_t>(lines.front().size());
        lines.pop_front();
    }
    return used;
}

} // namespace pds
