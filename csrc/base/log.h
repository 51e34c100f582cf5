// Log lines wait here until the caller takes them: no callback runs on a thread that the caller does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pds {

enum class log_level : char { debug = 'D', info = 'I', warn = 'W', error = 'E' };

void log_write(log_level level, const std::string & text);

// Copies whole waiting lines ("<level> <text>\n") into buffer and forgets them. Returns the bytes written.
int64_t log_take(char * buffer, int64_t size);

} // namespace pds
