#include "model/weights.h"

#include "base/log.h"
#include "gguf/tensor-type.h"
#include "model/memory-report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace pds {

namespace {

// Types of which the CPU can use weights in this way.
std::string usable_types(weight_use use) {
    std::string names;
    for (uint32_t number = 0; number < GGML_TYPE_COUNT; number++) {
        if (!tensor_type_known(number)) {
            continue;
        }
        const auto    type  = static_cast<ggml_type>(number);
        const int64_t ne[4] = { ggml_blck_size(type), 1, 1, 1 };
        if (device_supports(cpu_device(), ggml_backend_dev_buffer_type(cpu_device().dev), use, type, ne)) {
            names += (names.empty() ? "" : ", ") + std::string(ggml_type_name(type));
        }
    }
    return names;
}

const char * use_text(weight_use use) {
    switch (use) {
    case weight_use::get_rows:
        return "as an embedding table";
    case weight_use::mul_mat:
        return "in a matrix product";
    case weight_use::mul_mat_id:
        return "in a product with the matrices of chosen experts";
    case weight_use::element_wise:
        return "element by element (it must be F32)";
    }
    return "";
}

} // namespace

weights::weights(std::shared_ptr<const gguf_file> gguf, const pds_model_params & params, int32_t n_layer)
    : gguf_(std::move(gguf)), params_(params), n_layer_(n_layer) {
    if (params.n_gpu_layers > 0 && !devices().front().is_gpu) {
        log_write(log_level::warn,
                  format("n_gpu_layers is %d, but ggml offers no GPU: the CPU does all the work", params.n_gpu_layers));
    }
}

ggml_tensor * weights::require(const std::string & name, std::initializer_list<int64_t> ne, weight_use use,
                               int32_t layer) {
    ggml_tensor * tensor = find(name, ne, use, layer);
    PDS_REQUIRE(tensor != nullptr, PDS_ERR_FORMAT, "%s: tensor '%s' is missing; architecture '%s' needs it",
                gguf_->path().c_str(), name.c_str(), std::string(gguf_->architecture()).c_str());
    return tensor;
}

ggml_tensor * weights::find(const std::string & name, std::initializer_list<int64_t> ne, weight_use use,
                            int32_t layer) {
    const gguf_tensor * source = gguf_->find(name);
    if (source == nullptr) {
        return nullptr;
    }
    for (size_t i = 0; i < 4; i++) {
        const int64_t wanted = i < ne.size() ? ne.begin()[i] : 1;
        PDS_REQUIRE(source->ne[i] == wanted, PDS_ERR_FORMAT,
                    "%s: tensor '%s' has shape %s; %s was expected from the file's hyper-parameters",
                    gguf_->path().c_str(), name.c_str(), shape_text(source->ne, source->n_dims).c_str(),
                    shape_text(ne.begin(), static_cast<int>(ne.size())).c_str());
    }
    return add(*source, use, layer);
}

std::optional<float> weights::find_number(const std::string & name) {
    const gguf_tensor * source = gguf_->find(name);
    if (source == nullptr) {
        return std::nullopt;
    }
    PDS_REQUIRE(source->ne[0] * source->ne[1] * source->ne[2] * source->ne[3] == 1, PDS_ERR_FORMAT,
                "%s: tensor '%s' has shape %s; one number was expected", gguf_->path().c_str(), name.c_str(),
                shape_text(source->ne, source->n_dims).c_str());
    PDS_REQUIRE(source->type == GGML_TYPE_F32, PDS_ERR_UNSUPPORTED, "%s: tensor '%s' is of type %s; it must be f32",
                gguf_->path().c_str(), name.c_str(), ggml_type_name(source->type));
    float number = 0;
    std::memcpy(&number, source->data, sizeof(number));
    PDS_REQUIRE(std::isfinite(number), PDS_ERR_FORMAT, "%s: tensor '%s' holds %g, which is not a finite number",
                gguf_->path().c_str(), name.c_str(), static_cast<double>(number));
    numbers_read_.insert(name);
    return number;
}

const device & weights::device_of(int32_t layer) const {
    const device & gpu          = devices().front();
    const int32_t  n_gpu_layers = params_.n_gpu_layers < 0 ? n_layer_ + 1 : params_.n_gpu_layers;
    const bool     on_gpu       = gpu.is_gpu && layer >= 0 && layer >= n_layer_ + 1 - n_gpu_layers;
    return on_gpu ? gpu : cpu_device();
}

ggml_tensor * weights::add(const gguf_tensor & source, weight_use use, int32_t layer) {
    const device &                 wanted = device_of(layer);
    const std::optional<placement> place  = place_weight(wanted, params_.repack != 0, use, source.type, source.ne);
    PDS_REQUIRE(place, PDS_ERR_UNSUPPORTED,
                "%s: tensor '%s' is of type %s, which %s cannot use %s; use a file with one of %s",
                gguf_->path().c_str(), source.name.c_str(), ggml_type_name(source.type), wanted.name.c_str(),
                use_text(use), usable_types(use).c_str());
    const auto & [owner, type] = *place;
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(owner->dev, &props);
    const bool     plain   = type == ggml_backend_dev_buffer_type(owner->dev);
    const bool     aligned = reinterpret_cast<uintptr_t>(source.data) % ggml_backend_buft_get_alignment(type) == 0;
    const bool     mapped  = plain && aligned && !owner->is_gpu && params_.use_mmap && props.caps.buffer_from_host_ptr;
    tensor_group & group   = group_for(*owner, type, mapped ? source.file_index : -1);
    for (const placed_tensor & item : group.items) { // a tied embedding is asked for twice
        if (item.source == &source) {
            return item.tensor;
        }
    }
    ggml_tensor * tensor = ggml_new_tensor(group.ctx.get(), source.type, source.n_dims, source.ne);
    ggml_set_name(tensor, source.name.c_str());
    group.items.push_back({ &source, tensor });
    return tensor;
}

weights::tensor_group & weights::group_for(const device & owner, ggml_backend_buffer_type_t type, int mapped_file) {
    for (tensor_group & group : groups_) {
        if (group.owner == &owner && group.type == type && group.mapped_file == mapped_file) {
            return group;
        }
    }
    const ggml_init_params init = { (gguf_->tensors().size() + 1) * ggml_tensor_overhead(), nullptr, true };
    groups_.push_back({ &owner, type, mapped_file, ggml_context_ptr(ggml_init(init)), nullptr, {} });
    return groups_.back();
}

void weights::refuse_unused(const std::set<std::string> & known) const {
    std::set<const gguf_tensor *> used;
    for (const tensor_group & group : groups_) {
        for (const placed_tensor & item : group.items) {
            used.insert(item.source);
        }
    }
    size_t      n_unused = 0;
    std::string list;
    for (const gguf_tensor & tensor : gguf_->tensors()) {
        if (used.count(&tensor) == 0 && numbers_read_.count(tensor.name) == 0 && known.count(tensor.name) == 0) {
            list += n_unused < 5 ? (n_unused == 0 ? "" : ", ") + tensor.name : "";
            n_unused++;
        }
    }
    PDS_REQUIRE(n_unused == 0, PDS_ERR_UNSUPPORTED, "%s: %zu tensors that architecture '%s' does not have here: %s%s",
                gguf_->path().c_str(), n_unused, std::string(gguf_->architecture()).c_str(), list.c_str(),
                n_unused > 5 ? ", ..." : "");
}

void weights::report(pds_memory_report & out) const {
    for (const tensor_group & group : groups_) {
        pds_memory_line & line = memory_line_of(out, group.owner->name);
        for (const placed_tensor & item : group.items) {
            const auto n_bytes = static_cast<int64_t>(ggml_backend_buft_get_alloc_size(group.type, item.tensor));
            line.weights += n_bytes;
            line.mapped += group.mapped_file >= 0 ? n_bytes : 0;
        }
    }
}

void weights::pretend() {
    static char nowhere[64];
    for (tensor_group & group : groups_) {
        for (placed_tensor & item : group.items) {
            item.tensor->data = nowhere;
        }
    }
}

void weights::load(progress & progress) {
    int64_t n_total = 0;
    int64_t n_done  = 0;
    for (tensor_group & group : groups_) {
        for (const placed_tensor & item : group.items) {
            n_total += item.source->n_bytes;
        }
    }
    for (tensor_group & group : groups_) {
        group.mapped_file >= 0 ? map(group) : allocate(group);
        ggml_backend_buffer_set_usage(group.buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (const placed_tensor & item : group.items) {
            progress.check();
            if (group.mapped_file < 0) {
                ggml_backend_tensor_set(item.tensor, item.source->data, 0, static_cast<size_t>(item.source->n_bytes));
            }
            n_done += item.source->n_bytes;
            progress.set_fraction(static_cast<double>(n_done) / static_cast<double>(n_total));
        }
    }
    if (params_.use_mlock) {
        lock_files();
    }
}

void weights::lock_files() {
    for (const mapped_file & file : gguf_->files()) {
        if (!file.lock()) {
            log_write(log_level::warn, format("%s could not be locked in memory (see 'ulimit -l'); going on without",
                                              file.path().c_str()));
        }
    }
}

void weights::map(tensor_group & group) {
    const mapped_file & file       = gguf_->files()[static_cast<size_t>(group.mapped_file)];
    size_t              max_tensor = 0;
    for (const placed_tensor & item : group.items) {
        max_tensor = std::max(max_tensor, ggml_nbytes(item.tensor));
    }
    // the pages are read-only and weights are never written
    group.buffer.reset(ggml_backend_dev_buffer_from_host_ptr(group.owner->dev, const_cast<uint8_t *>(file.data()),
                                                             file.size(), max_tensor));
    PDS_REQUIRE(group.buffer != nullptr, PDS_ERR_MEMORY, "%s: the mapped file cannot be used as a buffer",
                gguf_->path().c_str());
    for (placed_tensor & item : group.items) {
        const ggml_status status =
            ggml_backend_tensor_alloc(group.buffer.get(), item.tensor, const_cast<uint8_t *>(item.source->data));
        PDS_REQUIRE(status == GGML_STATUS_SUCCESS, PDS_ERR_INTERNAL, "tensor '%s' could not be placed",
                    item.source->name.c_str());
    }
}

void weights::allocate(tensor_group & group) {
    const size_t n_bytes = ggml_backend_alloc_ctx_tensors_from_buft_size(group.ctx.get(), group.type);
    group.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(group.ctx.get(), group.type));
    if (group.buffer == nullptr) {
        throw error(PDS_ERR_MEMORY,
                    format("%s: %.1f MiB for weights could not be allocated; use a smaller or more strongly quantized "
                           "model, or lower n_gpu_layers",
                           group.owner->name.c_str(), static_cast<double>(n_bytes) / (1 << 20)),
                    static_cast<int64_t>(n_bytes), memory_of(*group.owner).free);
    }
}

} // namespace pds
