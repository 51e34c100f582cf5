// Backends and devices of ggml, and what a device can do with a weight.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pds {

// Loads ggml's backends once and sends its log lines to ours. Safe to call often.
void ggml_start();

struct device {
    ggml_backend_dev_t dev;
    std::string        name;
    std::string        description;
    bool               is_gpu;
};

// GPUs first, the CPU last.
const std::vector<device> & devices();
const device &              cpu_device();

// What the loaded CPU code was compiled for: "AVX2=1 REPACK=1 ...".
const std::string & cpu_features();

struct device_memory {
    int64_t free;  // bytes
    int64_t total; // bytes
};

// For the CPU: what this process may still take, container limits included.
device_memory memory_of(const device & device);

// Extra layouts in which a device may hold weights (repacked for the CPU's matrix kernels).
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(const device & device);

// How a graph reads a weight. It decides in which layouts the weight may be held.
enum class weight_use {
    get_rows,
    mul_mat,
    mul_mat_id, // the matrices of several experts, of which some are used for each row
    element_wise,
};

// Can the device run the operation for a weight of this type and shape that lies in a buffer of this type?
bool device_supports(const device & device, ggml_backend_buffer_type_t buffer_type, weight_use use, ggml_type type,
                     const int64_t (&ne)[4]);

struct placement {
    const device *             owner;
    ggml_backend_buffer_type_t type;
};

// Where a weight goes: on the wanted device or else the CPU, with repack in an extra layout where there is one for it.
// Nothing if no device can use it.
std::optional<placement> place_weight(const device & wanted, bool repack, weight_use use, ggml_type type,
                                      const int64_t (&ne)[4]);

} // namespace pds
