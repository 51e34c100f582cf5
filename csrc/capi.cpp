// The C API over the C++ core. No exception leaves this file (see capi-guard.h).
#include "arch/target-model.h"
#include "base/error.h"
#include "base/log.h"
#include "capi-guard.h"
#include "capi-handles.h"
#include "ggml.h"
#include "model/device.h"
#include "model/pairing.h"
#include "spec/session.h"

#include <algorithm>
#include <cstdio>
#include <memory>

using pds::guard;

int32_t pds_abi_version(void) {
    return PDS_ABI_VERSION;
}

const char * pds_ggml_version(void) {
    return ggml_version();
}

const char * pds_ggml_build_version(void) {
    return PDS_GGML_BUILD_VERSION;
}

const char * pds_ggml_build_options(void) {
    return PDS_GGML_BUILD_OPTIONS;
}

const char * pds_ggml_features(void) {
    const char * text = "";
    pds_error    ignored;
    guard(&ignored, [&] { text = pds::cpu_features().c_str(); });
    return text;
}

int64_t pds_log_take(char * buffer, int64_t size) {
    return pds::log_take(buffer, size);
}

int32_t pds_device_count(void) {
    pds_error ignored;
    int32_t   count = 0;
    guard(&ignored, [&] { count = static_cast<int32_t>(pds::devices().size()); });
    return count;
}

int32_t pds_device_get(int32_t index, pds_device_info * out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(out != nullptr && index >= 0 && index < pds_device_count(), PDS_ERR_ARGUMENT, "no device %d",
                    index);
        const pds::device & device = pds::devices()[static_cast<size_t>(index)];
        const auto          memory = pds::memory_of(device);
        *out                       = {};
        std::snprintf(out->name, sizeof(out->name), "%s", device.name.c_str());
        std::snprintf(out->description, sizeof(out->description), "%s", device.description.c_str());
        out->is_gpu       = device.is_gpu ? 1 : 0;
        out->memory_free  = memory.free;
        out->memory_total = memory.total;
    });
}

int32_t pds_memory_plan(const pds_gguf * gguf, const pds_gguf * draft, const pds_model_params * model,
                        const pds_session_params * session, pds_memory_report * out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(gguf && model && session && out, PDS_ERR_ARGUMENT, "pds_memory_plan: a null argument");
        *out         = {};
        auto planned = std::make_shared<pds::target_model>(gguf->file, *model);
        planned->pretend();
        planned->report_weights(*out);
        std::unique_ptr<pds::draft_model> drafter;
        if (draft != nullptr) {
            drafter = std::make_unique<pds::draft_model>(draft->file, planned, *model);
            drafter->pretend();
            drafter->report_weights(*out);
        }
        pds::target_sequence sequence(*planned, drafter.get(), *session);
        sequence.report(*out);
        if (drafter != nullptr) {
            pds::draft_block(*drafter, sequence).report(*out);
        }
    });
}

int32_t pds_model_load(const pds_gguf * gguf, const pds_model_params * params, pds_progress_fn progress, void * user,
                       pds_model ** out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(gguf && params && out, PDS_ERR_ARGUMENT, "pds_model_load: a null argument");
        auto          model = std::make_shared<pds::target_model>(gguf->file, *params);
        pds::progress watched(progress, user);
        model->load(watched);
        *out = new pds_model{ std::move(model) };
    });
}

void pds_model_free(pds_model * model) {
    delete model;
}

int32_t pds_model_describe(const pds_gguf * gguf, pds_model_info * out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(gguf && out, PDS_ERR_ARGUMENT, "pds_model_describe: a null argument");
        *out = pds::target_model(gguf->file, {}).describe();
    });
}

int32_t pds_draft_load(const pds_gguf * gguf, const pds_model * target, const pds_model_params * params,
                       pds_progress_fn progress, void * user, pds_draft ** out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(gguf && target && params && out, PDS_ERR_ARGUMENT, "pds_draft_load: a null argument");
        auto          draft = std::make_shared<pds::draft_model>(gguf->file, target->model, *params);
        pds::progress watched(progress, user);
        draft->load(watched);
        *out = new pds_draft{ std::move(draft) };
    });
}

void pds_draft_free(pds_draft * draft) {
    delete draft;
}

int32_t pds_draft_describe(const pds_gguf * draft, pds_draft_info * out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(draft && out, PDS_ERR_ARGUMENT, "pds_draft_describe: a null argument");
        *out = pds::describe_draft(*draft->file);
    });
}

int32_t pds_pair_check(const pds_gguf * target, const pds_gguf * draft, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(target && draft, PDS_ERR_ARGUMENT, "pds_pair_check: a null argument");
        pds::find_architecture(*target->file);
        pds::require_pair(*target->file, *draft->file, pds::read_draft_hparams(*draft->file));
    });
}

int32_t pds_session_new(pds_model * model, pds_draft * draft, const pds_session_params * params, pds_session ** out,
                        pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(model && params && out, PDS_ERR_ARGUMENT, "pds_session_new: a null argument");
        PDS_REQUIRE(draft == nullptr || &draft->draft->target() == model->model.get(), PDS_ERR_ARGUMENT,
                    "the drafter was loaded for another target");
        *out = new pds_session(model->model, draft != nullptr ? draft->draft : nullptr, *params);
    });
}

void pds_session_free(pds_session * session) {
    delete session;
}

void pds_session_memory(const pds_session * session, pds_memory_report * out) {
    *out = session->session.memory();
}

int32_t pds_session_start(pds_session * session, const pds_request * request, pds_progress_fn progress, void * user,
                          pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && request && (request->tokens || request->n_tokens == 0), PDS_ERR_ARGUMENT,
                    "pds_session_start: a null argument");
        pds::progress watched = session->session.make_progress(progress, user);
        session->session.start(*request, watched);
    });
}

int32_t pds_session_step(pds_session * session, pds_step * out, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && out, PDS_ERR_ARGUMENT, "pds_session_step: a null argument");
        pds::progress watched = session->session.make_progress(nullptr, nullptr);
        *out                  = session->session.step(watched);
    });
}

void pds_session_stats(const pds_session * session, pds_stats * out) {
    *out = session->session.stats();
}

void pds_session_learnt(const pds_session * session, pds_learnt * out) {
    *out = session->session.learnt();
}

void pds_session_set_learnt(pds_session * session, const pds_learnt * learnt, int32_t frozen) {
    session->session.set_learnt(*learnt, frozen != 0);
}

int32_t pds_session_set_synthetic(pds_session * session, const float * by_slot, int32_t n, uint64_t seed,
                                  pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && n >= 0 && (by_slot || n == 0), PDS_ERR_ARGUMENT,
                    "pds_session_set_synthetic: a null argument");
        session->session.set_synthetic({ by_slot, static_cast<size_t>(n) }, seed);
    });
}

void pds_session_cancel(pds_session * session) {
    session->session.cancel();
}

void pds_session_cut(pds_session * session, int64_t n) {
    session->session.cut(n);
}

void pds_session_reset(pds_session * session) {
    session->session.reset();
}

int64_t pds_session_n_past(const pds_session * session) {
    return session->session.n_past();
}

namespace {

std::vector<pds::tensor_tap> read_taps(const char ** names, int64_t n_names, float ** out, const int64_t * sizes) {
    PDS_REQUIRE(n_names == 0 || (names && out && sizes), PDS_ERR_ARGUMENT, "inspect: a null argument");
    std::vector<pds::tensor_tap> taps;
    for (int64_t i = 0; i < n_names; i++) {
        taps.push_back({ names[i], out[i], static_cast<size_t>(sizes[i]) });
    }
    return taps;
}

} // namespace

int32_t pds_session_inspect(pds_session * session, const int32_t * tokens, int64_t n_tokens, const char ** names,
                            int64_t n_names, float ** out, const int64_t * sizes, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && tokens && n_tokens >= 0, PDS_ERR_ARGUMENT, "pds_session_inspect: a null argument");
        pds::progress watched = session->session.make_progress(nullptr, nullptr);
        session->session.inspect({ tokens, static_cast<size_t>(n_tokens) }, read_taps(names, n_names, out, sizes),
                                 watched);
    });
}

int32_t pds_session_inspect_draft(pds_session * session, int32_t anchor, int32_t n, int32_t * ids, const char ** names,
                                  int64_t n_names, float ** out, const int64_t * sizes, pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && ids, PDS_ERR_ARGUMENT, "pds_session_inspect_draft: a null argument");
        pds::progress watched = session->session.make_progress(nullptr, nullptr);
        const auto drafted = session->session.inspect_draft(anchor, n, read_taps(names, n_names, out, sizes), watched);
        std::copy(drafted.begin(), drafted.end(), ids);
    });
}

int32_t pds_session_measure(pds_session * session, int32_t n_tokens, int32_t n_repeats, double * ms_out,
                            pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && ms_out && n_repeats >= 0, PDS_ERR_ARGUMENT, "pds_session_measure: a null argument");
        pds::progress watched = session->session.make_progress(nullptr, nullptr);
        session->session.measure(n_tokens, { ms_out, static_cast<size_t>(n_repeats) }, watched);
    });
}

int32_t pds_session_measure_stages(pds_session * session, int32_t n_tokens, int32_t n_repeats, double * ms_out,
                                   pds_error * error) {
    return guard(error, [&] {
        PDS_REQUIRE(session && ms_out && n_repeats >= 0, PDS_ERR_ARGUMENT,
                    "pds_session_measure_stages: a null argument");
        std::vector<pds::stage_times> times(static_cast<size_t>(n_repeats));
        session->session.measure_stages(n_tokens, times);
        for (const pds::stage_times & once : times) {
            ms_out = std::copy(once.begin(), once.end(), ms_out);
        }
    });
}
