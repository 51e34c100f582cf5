// One exception type for the whole core; capi.cpp turns it into a status code.
#pragma once

#include "pydspark.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace pds {

class error : public std::exception {
  public:
    error(int32_t status, std::string message, int64_t value0 = 0, int64_t value1 = 0)
        : code(status), values{ value0, value1 }, text(std::move(message)) {}

    const char * what() const noexcept override { return text.c_str(); }

    int32_t     code;
    int64_t     values[2];
    std::string text;
};

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
inline std::string format(const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    const int n = std::vsnprintf(nullptr, 0, fmt, args);
    va_end(args);
    std::string text(n > 0 ? static_cast<size_t>(n) : 0, '\0');
    std::vsnprintf(text.data(), text.size() + 1, fmt, again);
    va_end(again);
    return text;
}

} // namespace pds

// Throws unless cond holds. The message says what was seen, what was wanted and what to do.
#define PDS_REQUIRE(cond, code, ...)                              \
    do {                                                          \
        if (!(cond)) {                                            \
            throw ::pds::error(code, ::pds::format(__VA_ARGS__)); \
        }                                                         \
    } while (0)
