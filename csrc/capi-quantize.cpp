// C API: writing a model with its weights in another type.
#include "capi-guard.h"
#include "capi-handles.h"
#include "model/quantize.h"
#include "pydspark.h"

int32_t pds_quantize(const pds_gguf * gguf, const char * path, int32_t type, int32_t replace, pds_progress_fn progress,
                     void * user, pds_error * error) {
    return pds::guard(error, [&] {
        pds::require_argument(gguf, "gguf");
        pds::require_argument(path, "path");
        pds::progress watched(progress, user);
        pds::quantize(*gguf->file, path, type, replace != 0, watched);
    });
}
