// Copies of what memories held after the beginning of a prompt, so that another prompt that begins so need not be
// evaluated from the start: for memories that cannot be cut at any position. Copies of one sequence share their caches'
// rows; the least recently used are dropped when the room is used up.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

namespace pds {

// Cache rows of positions begin .. end - 1, and those before them.
struct cached_rows {
    std::shared_ptr<const cached_rows> before; // null at the start of the sequence
    int64_t                            begin;
    int64_t                            end;
    std::vector<uint8_t>               bytes;
};

struct checkpoint {
    std::vector<int32_t>               tokens; // from the start of the sequence
    std::vector<uint8_t>               state;  // of recurrent layers after them
    std::shared_ptr<const cached_rows> rows;

    int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
};

class prompt_cache {
  public:
    explicit prompt_cache(size_t max_bytes) : max_bytes_(max_bytes) {}

    // The longest checkpoint of at most n_max tokens that a prompt begins with, or null. Counts as a use of it. Valid
    // until the next call.
    const checkpoint * find(std::span<const int32_t> prompt, int64_t n_max);

    // Keeps a checkpoint, dropping others for it. One that does not fit at all is not kept.
    void add(checkpoint added);

    void   clear() { kept_.clear(); }
    size_t n_bytes() const;
    size_t max_bytes() const { return max_bytes_; }
    size_t size() const { return kept_.size(); }

  private:
    size_t                max_bytes_;
    std::list<checkpoint> kept_; // most recently used first
};

} // namespace pds
