// A check that an expression throws pds::error with a given code and a message that says a given thing.
#pragma once

#include "check.h"

#include <cstdint>
#include <string>

namespace pds_test {

template <typename fn_t>
void check_error(int32_t code, const char * text, fn_t && fn, const char * file, int line, const char * what) {
    try {
        fn();
    } catch (const pds::error & e) {
        if (e.code != code || e.text.find(text) == std::string::npos) {
            std::fprintf(stderr, "code %d, wanted %d; message '%s', wanted '%s' in it\n", e.code, code, e.what(), text);
            report(false, file, line, what);
        }
        return;
    }
    std::fprintf(stderr, "nothing was thrown, wanted code %d with '%s'\n", code, text);
    report(false, file, line, what);
}

} // namespace pds_test

#define CHECK_ERROR(code, text, expr) \
    ::pds_test::check_error(code, text, [&] { static_cast<void>(expr); }, __FILE__, __LINE__, #expr)
