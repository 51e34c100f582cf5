#include "model/device.h"

#include "base/error.h"
#include "base/log.h"
#include "ggml-cpp.h"
#include "model/host-memory.h"

#include <mutex>

namespace pds {

namespace {

void forward_log(ggml_log_level level, const char * text, void * /*user*/) {
    static thread_local std::string line; // ggml writes some lines in pieces
    static thread_local log_level   line_level = log_level::info;
    switch (level) {
    case GGML_LOG_LEVEL_DEBUG:
        line_level = log_level::debug;
        break;
    case GGML_LOG_LEVEL_WARN:
        line_level = log_level::warn;
        break;
    case GGML_LOG_LEVEL_ERROR:
        line_level = log_level::error;
        break;
    case GGML_LOG_LEVEL_CONT:
        break;
    default:
        line_level = log_level::info;
        break;
    }
    line += text;
    if (!line.empty() && line.back() == '\n') {
        line.pop_back();
        log_write(line_level, line);
        line.clear();
    }
}

std::vector<device> find_devices() {
    std::vector<device> found;
    std::vector<device> cpus;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t dev  = ggml_backend_dev_get(i);
        const auto         type = ggml_backend_dev_type(dev);
        device             item = { dev, ggml_backend_dev_name(dev), ggml_backend_dev_description(dev), false };
        if (type == GGML_BACKEND_DEVICE_TYPE_CPU) {
            cpus.push_back(item);
        } else if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            item.is_gpu = true;
            found.push_back(item);
        }
    }
    PDS_REQUIRE(!cpus.empty(), PDS_ERR_INTERNAL,
                "ggml offers no CPU device: its CPU backend is missing or does not fit this processor");
    found.push_back(cpus.front());
    return found;
}

// ggml can turn every type that is meant for weights into F32. Of the others, integers, F64 and the types of
// intermediate values (Q8_1, Q8_K), the CPU says that it supports them, and ends the process when it has to compute
// with them.
bool is_weight_type(ggml_type type) {
    return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
}

} // namespace

void ggml_start() {
    static std::once_flag once;
    std::call_once(once, [] {
        ggml_log_set(forward_log, nullptr);
        if (ggml_backend_dev_count() == 0) { // a ggml whose backends are files of their own
            ggml_backend_load_all();
        }
    });
}

const std::vector<device> & devices() {
    ggml_start();
    static const std::vector<device> found = find_devices();
    return found;
}

const device & cpu_device() {
    return devices().back();
}

const std::string & cpu_features() {
    static const std::string text = [] {
        std::string        words;
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu_device().dev);
        const auto         get = reinterpret_cast<ggml_backend_get_features_t>(
            ggml_backend_reg_get_proc_address(reg, "ggml_backend_get_features"));
        for (const ggml_backend_feature * f = get != nullptr ? get(reg) : nullptr; f != nullptr && f->name; f++) {
            words += words.empty() ? "" : " ";
            words += format("%s=%s", f->name, f->value);
        }
        return words;
    }();
    return text;
}

device_memory memory_of(const device & device) {
    size_t free  = 0;
    size_t total = 0;
    ggml_backend_dev_memory(device.dev, &free, &total);
    device_memory memory = { static_cast<int64_t>(free), static_cast<int64_t>(total) };
    if (!device.is_gpu) { // ggml reports the machine's whole memory as free
        const host_memory host = read_host_memory();
        if (host.free >= 0 && host.total >= 0) {
            memory = { host.free, host.total };
        }
    }
    return memory;
}

std::vector<ggml_backend_buffer_type_t> extra_buffer_types(const device & device) {
    std::vector<ggml_backend_buffer_type_t> types;
    ggml_backend_reg_t                      reg       = ggml_backend_dev_backend_reg(device.dev);
    auto                                    get_extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts"));
    if (get_extra != nullptr) {
        ggml_backend_buffer_type_t * list = get_extra(device.dev);
        while (list != nullptr && *list != nullptr) {
            types.push_back(*list++);
        }
    }
    return types;
}

bool device_supports(const device & device, ggml_backend_buffer_type_t buffer_type, weight_use use, ggml_type type,
                     const int64_t (&ne)[4]) {
    if (!is_weight_type(type)) {
        return false;
    }
    const ggml_init_params params = { 8 * ggml_tensor_overhead(), nullptr, true };
    ggml_context_ptr       ctx(ggml_init(params));
    ggml_tensor *          weight = ggml_new_tensor(ctx.get(), type, 4, ne);
    ggml_tensor *          op     = nullptr;
    switch (use) {
    case weight_use::get_rows:
        op = ggml_get_rows(ctx.get(), weight, ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, 512));
        break;
    case weight_use::mul_mat:
        op = ggml_mul_mat(ctx.get(), weight, ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, ne[0], 512, ne[2], ne[3]));
        break;
    case weight_use::mul_mat_id:
        op = ggml_mul_mat_id(ctx.get(), weight, ggml_new_tensor_3d(ctx.get(), GGML_TYPE_F32, ne[0], 1, 512),
                             ggml_new_tensor_2d(ctx.get(), GGML_TYPE_I32, 1, 512));
        break;
    case weight_use::element_wise:
        return type == GGML_TYPE_F32;
    }
    // an empty buffer tells the device in which layout the weight would lie
    ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(buffer_type, 0));
    PDS_REQUIRE(buffer != nullptr, PDS_ERR_MEMORY, "%s: no buffer could be made", device.name.c_str());
    weight->buffer       = buffer.get();
    const bool supported = ggml_backend_dev_supports_op(device.dev, op);
    weight->buffer       = nullptr;
    return supported;
}

std::optional<placement> place_weight(const device & wanted, bool repack, weight_use use, ggml_type type,
                                      const int64_t (&ne)[4]) {
    const bool is_matrix = use == weight_use::mul_mat || use == weight_use::mul_mat_id;
    for (const device * owner : { &wanted, &cpu_device() }) {
        std::vector<ggml_backend_buffer_type_t> types;
        if (repack && is_matrix) {
            types = extra_buffer_types(*owner);
        }
        types.push_back(ggml_backend_dev_buffer_type(owner->dev));
        for (ggml_backend_buffer_type_t buffer_type : types) {
            if (device_supports(*owner, buffer_type, use, type, ne)) {
                return placement{ owner, buffer_type };
            }
        }
    }
    return std::nullopt;
}

} // namespace pds
