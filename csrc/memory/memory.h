// What a model remembers of a sequence, behind one small interface. Positions count from 0.
#pragma once

#include "pydspark.h"

#include <cstdint>

namespace pds {

class memory {
  public:
    memory()                           = default;
    memory(const memory &)             = delete;
    memory & operator=(const memory &) = delete;
    virtual ~memory()                  = default;

    // Forgets everything.
    virtual void clear() = 0;
    // Keeps positions below pos and forgets the rest. Returns how many are really kept: a memory that cannot go back to
    // just any position keeps fewer.
    virtual int64_t cut(int64_t pos) = 0;
    // Adds what it takes.
    virtual void report(pds_memory_report & out) const = 0;
};

} // namespace pds
