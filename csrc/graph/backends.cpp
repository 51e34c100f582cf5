#include "graph/backends.h"

#include "base/error.h"
#include "ggml-cpu.h"

#include <algorithm>

namespace pds {

namespace {

// Functions of the CPU backend are asked for by name: linking to them would tie us to a ggml with the CPU backend
// inside.
template <typename F> F cpu_function(const char * name) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu_device().dev);
    return reinterpret_cast<F>(ggml_backend_reg_get_proc_address(reg, name));
}

bool ask_progress(void * user) {
    return static_cast<progress *>(user)->should_stop();
}

} // namespace

backends::backends(const std::vector<const device *> & used, int32_t n_threads_max) {
    std::vector<const device *> wanted;
    for (const device & device : devices()) {
        if (!device.is_gpu || std::find(used.begin(), used.end(), &device) != used.end()) {
            wanted.push_back(&device);
        }
    }
    for (const device * device : wanted) {
        owned_.emplace_back(ggml_backend_dev_init(device->dev, nullptr));
        PDS_REQUIRE(owned_.back() != nullptr, PDS_ERR_INTERNAL, "device %s could not be started", device->name.c_str());
        list_.push_back(owned_.back().get());
    }
    start_pool(n_threads_max);
    set_threads(n_threads_max);
}

backends::~backends() {
    owned_.clear();
    if (pool_ != nullptr) {
        cpu_function<decltype(&ggml_threadpool_free)>("ggml_threadpool_free")(pool_);
    }
}

// Without a pool_ the CPU backend starts and joins its threads for every graph.
void backends::start_pool(int32_t n_threads_max) {
    const auto pool_new = cpu_function<decltype(&ggml_threadpool_new)>("ggml_threadpool_new");
    const auto pool_set = cpu_function<decltype(&ggml_backend_cpu_set_threadpool)>("ggml_backend_cpu_set_threadpool");
    if (n_threads_max < 2 || pool_new == nullptr || pool_set == nullptr) {
        return;
    }
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads_max);
    pool_                         = pool_new(&params);
    PDS_REQUIRE(pool_ != nullptr, PDS_ERR_MEMORY, "%d threads could not be started", n_threads_max);
    pool_set(cpu(), pool_);
}

void backends::set_threads(int32_t n) {
    if (n == n_threads_) {
        return;
    }
    n_threads_ = n;
    cpu_function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(cpu(), n);
}

void backends::set_progress(progress * progress) {
    cpu_function<ggml_backend_set_abort_callback_t>("ggml_backend_set_abort_callback")(
        cpu(), progress != nullptr ? ask_progress : nullptr, progress);
}

} // namespace pds
