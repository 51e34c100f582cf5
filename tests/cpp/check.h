// Checks that report and go on; main returns check_result().
#pragma once

#include "base/error.h"

#include <cmath>
#include <cstdio>

namespace pds_test {

inline int & n_failed() {
    static int count = 0;
    return count;
}

inline void report(bool ok, const char * file, int line, const char * what) {
    if (!ok) {
        std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
        ++n_failed();
    }
}

inline int check_result() {
    std::fprintf(stderr, "%d failed checks\n", n_failed());
    return n_failed() == 0 ? 0 : 1;
}

} // namespace pds_test

#define CHECK(cond) ::pds_test::report(static_cast<bool>(cond), __FILE__, __LINE__, #cond)

#define CHECK_NEAR(a, b, tol)                                                                                 \
    ::pds_test::report(std::abs(static_cast<double>(a) - static_cast<double>(b)) <= static_cast<double>(tol), \
                       __FILE__, __LINE__, #a " near " #b)

#define CHECK_THROWS(expected, expr)                                                                 \
    do {                                                                                             \
        int32_t seen_code = PDS_OK;                                                                  \
        try {                                                                                        \
            expr;                                                                                    \
        } catch (const ::pds::error & caught) {                                                      \
            seen_code = caught.code;                                                                 \
        }                                                                                            \
        ::pds_test::report(seen_code == (expected), __FILE__, __LINE__, #expr " throws " #expected); \
    } while (0)
