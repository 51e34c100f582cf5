// What the opaque handles of the C API hold.
#pragma once

#include "arch/target-model.h"
#include "gguf/gguf-file.h"
#include "spec/session.h"

#include <memory>
#include <utility>

struct pds_gguf {
    std::shared_ptr<pds::gguf_file> file;
};

struct pds_model {
    std::shared_ptr<const pds::target_model> model;
};

struct pds_session {
    pds_session(std::shared_ptr<const pds::target_model> model, const pds_session_params & params)
        : session(std::move(model), params) {}

    pds::session session;
};
