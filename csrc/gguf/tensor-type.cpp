#include "gguf/tensor-type.h"

#include "base/error.h"

#include <cinttypes>

namespace pds {

namespace {

struct removed_type {
    uint32_t     number;
    const char * name;
    const char * instead;
};

constexpr removed_type removed_types[] = {
    { 4, "Q4_2", "Q4_0" },          { 5, "Q4_3", "Q4_1" },          { 31, "Q4_0_4_4", "Q4_0" },
    { 32, "Q4_0_4_8", "Q4_0" },     { 33, "Q4_0_8_8", "Q4_0" },     { 36, "IQ4_NL_4_4", "IQ4_NL" },
    { 37, "IQ4_NL_4_8", "IQ4_NL" }, { 38, "IQ4_NL_8_8", "IQ4_NL" },
};

// ggml numbers its types without gaps, so a number slightly above the last one is most likely a newer type, and one far
// above it a private type of a fork, or damage.
constexpr uint32_t n_newer_types = 32;

std::string known_type_names() {
    std::string names;
    for (uint32_t number = 0; number < GGML_TYPE_COUNT; number++) {
        if (tensor_type_known(number)) {
            names += (names.empty() ? "" : ", ") + std::string(ggml_type_name(static_cast<ggml_type>(number)));
        }
    }
    return names;
}

} // namespace

bool tensor_type_known(uint32_t number) {
    return number < GGML_TYPE_COUNT && ggml_type_size(static_cast<ggml_type>(number)) > 0;
}

std::string tensor_type_problem(uint32_t number) {
    for (const removed_type & type : removed_types) {
        if (number == type.number) {
            return format("type %" PRIu32
                          " (%s), which was removed from ggml. Re-quantize the model, to %s for example",
                          number, type.name, type.instead);
        }
    }
    std::string problem = format("type %" PRIu32 ", which is unknown to ggml", number);
    if (number < GGML_TYPE_COUNT + n_newer_types) {
        problem = format("type %" PRIu32 ", which needs a newer ggml than the one in use", number);
    }
    return problem + ". Supported types: " + known_type_names();
}

} // namespace pds
