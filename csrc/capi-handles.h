// What the opaque handles of the C API hold.
#pragma once

#include "arch/draft-model.h"
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

struct pds_draft {
    std::shared_ptr<const pds::draft_model> draft;
};

struct pds_session {
    pds_session(std::shared_ptr<const pds::target_model> model, std::shared_ptr<const pds::draft_model> draft,
                const pds_session_params & params)
        : session(std::move(model), std::move(draft), params) {}

    pds::session session;
};
