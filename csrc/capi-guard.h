// The one place where exceptions become status codes: every C API function that can fail runs its body in guard().
#pragma once

#include "base/error.h"
#include "base/utf8.h"
#include "pydspark.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

namespace pds {

// Copies as much of text as fits, with a NUL at the end. No character is cut in half; bytes that are not UTF-8, and
// NULs, become question marks.
inline void copy_message(char * out, size_t out_size, std::string_view text) {
    size_t n = 0;
    while (!text.empty()) {
        const size_t sequence = text.front() == '\0' ? 0 : utf8_sequence_size(text);
        const size_t size     = sequence > 0 ? sequence : 1;
        if (n + size >= out_size) {
            break;
        }
        std::memcpy(out + n, sequence > 0 ? text.data() : "?", size);
        n += size;
        text.remove_prefix(size);
    }
    out[n] = '\0';
}

// Returns code. out may be null.
inline int32_t fill_error(pds_error * out, int32_t code, std::string_view text, int64_t value0 = 0,
                          int64_t value1 = 0) {
    if (out != nullptr) {
        out->code      = code;
        out->values[0] = value0;
        out->values[1] = value1;
        copy_message(out->message, sizeof(out->message), text);
    }
    return code;
}

// Runs fn() and returns PDS_OK, or the status code of what it threw. out may be null.
template <typename fn_t> int32_t guard(pds_error * out, fn_t && fn) noexcept {
    try {
        fn();
        return fill_error(out, PDS_OK, "");
    } catch (const error & e) {
        return fill_error(out, e.code, e.text, e.values[0], e.values[1]);
    } catch (const std::bad_alloc &) {
        return fill_error(out, PDS_ERR_MEMORY,
                          "there is not enough memory. Close other programs or use a smaller model");
    } catch (const std::exception & e) {
        return fill_error(out, PDS_ERR_INTERNAL, e.what());
    } catch (...) {
        return fill_error(out, PDS_ERR_INTERNAL, "an exception of unknown type");
    }
}

// Throws PDS_ERR_ARGUMENT if a pointer argument is null.
inline void require_argument(const void * pointer, const char * name) {
    PDS_REQUIRE(pointer != nullptr, PDS_ERR_ARGUMENT, "the argument '%s' is null", name);
}

} // namespace pds
