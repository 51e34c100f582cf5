#include "gguf/gguf-writer.h"

#include "base/error.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <system_error>

#if defined(_WIN32)
#include <io.h>
#include <process.h>
#else
#include <unistd.h>
#endif

namespace pds {

namespace {

namespace fs = std::filesystem;

uint64_t padded(uint64_t n_bytes, uint64_t alignment) {
    return (n_bytes + alignment - 1) / alignment * alignment;
}

template <typename number_t> void put(std::string & out, number_t number) {
    out.append(reinterpret_cast<const char *>(&number), sizeof(number));
}

void put_string(std::string & out, std::string_view text) {
    put(out, uint64_t{ text.size() });
    out += text;
}

void put_value(std::string & out, const gguf_value & value) {
    put_string(out, value.key);
    put(out, static_cast<int32_t>(value.type));
    if (value.type == gguf_type::array) {
        put(out, static_cast<int32_t>(value.item_type));
        put(out, static_cast<uint64_t>(value.n));
    }
    // n_bytes counts the text of strings, not the length before each
    const int64_t n_lengths = value.item_type == gguf_type::string ? value.n : 0;
    out.append(reinterpret_cast<const char *>(value.data),
               static_cast<size_t>(value.n_bytes) + static_cast<size_t>(n_lengths) * sizeof(uint64_t));
}

std::string header_bytes(const std::vector<gguf_value> & values, const std::vector<gguf_new_tensor> & tensors,
                         uint64_t alignment) {
    std::string out = "GGUF";
    put(out, uint32_t{ 3 });
    put(out, uint64_t{ tensors.size() });
    put(out, uint64_t{ values.size() });
    for (const gguf_value & value : values) {
        put_value(out, value);
    }
    uint64_t offset = 0;
    for (const gguf_new_tensor & tensor : tensors) {
        put_string(out, tensor.name);
        put(out, static_cast<uint32_t>(tensor.n_dims));
        for (int i = 0; i < tensor.n_dims; i++) {
            put(out, static_cast<uint64_t>(tensor.ne[i]));
        }
        put(out, static_cast<uint32_t>(tensor.type));
        put(out, offset);
        offset += padded(static_cast<uint64_t>(tensor.n_bytes), alignment);
    }
    return out;
}

fs::path folder_of(const std::string & path) {
    const fs::path folder = fs::path(path).parent_path();
    return folder.empty() ? fs::path(".") : folder;
}

int sync_to_disk(std::FILE * file) {
#if defined(_WIN32)
    return ::_commit(::_fileno(file));
#else
    return ::fsync(::fileno(file));
#endif
}

int process_id() {
#if defined(_WIN32)
    return ::_getpid();
#else
    return ::getpid();
#endif
}

} // namespace

gguf_writer::gguf_writer(const std::string & path, bool replace) : path_(path), replace_(replace) {
    check_place();
    open_temporary();
}

gguf_writer::~gguf_writer() {
    if (file_ != nullptr) {
        std::fclose(file_);
    }
    if (!temporary_.empty()) {
        std::error_code ignored; // nothing more can be done about it
        fs::remove(temporary_, ignored);
    }
}

void gguf_writer::check_place() const {
    std::error_code       ignored;
    const fs::file_status status = fs::status(path_, ignored);
    if (!fs::exists(status)) {
        return;
    }
    PDS_REQUIRE(fs::is_regular_file(status), PDS_ERR_FILE,
                "%s: is there and is not a file that could be replaced. Give the path of a new file", path_.c_str());
    PDS_REQUIRE(replace_, PDS_ERR_FILE, "%s: exists already. Give another path, or use force to replace it",
                path_.c_str());
}

void gguf_writer::open_temporary() {
    constexpr int max_tries = 1000; // names that a killed process of the same number may have left
    for (int i = 0; i < max_tries; i++) {
        const std::string name = format("%s.tmp-%d-%d", path_.c_str(), process_id(), i);
        file_                  = std::fopen(name.c_str(), "wbx");
        if (file_ != nullptr) {
            temporary_ = name;
            return;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    fail("a file cannot be made beside it", errno);
}

void gguf_writer::check_space() const {
    std::error_code      failed;
    const fs::space_info space = fs::space(folder_of(path_), failed);
    if (failed) {
        return; // unknown; a full disk is then noticed while writing
    }
    PDS_REQUIRE(space.available >= n_total_, PDS_ERR_FILE,
                "%s: the file takes %" PRIu64 " MB, but the disk has only %" PRIu64 " MB free", path_.c_str(),
                n_total_ / 1000000 + 1, static_cast<uint64_t>(space.available) / 1000000);
}

void gguf_writer::write_header(const std::vector<gguf_value> & values, const std::vector<gguf_new_tensor> & tensors,
                               uint64_t alignment) {
    const std::string header = header_bytes(values, tensors, alignment);
    alignment_               = alignment;
    n_total_                 = padded(header.size(), alignment);
    for (const gguf_new_tensor & tensor : tensors) {
        n_total_ += padded(static_cast<uint64_t>(tensor.n_bytes), alignment);
    }
    check_space();
    write(header.data(), header.size());
    pad();
}

void gguf_writer::write(const void * data, size_t n_bytes) {
    if (std::fwrite(data, 1, n_bytes, file_) != n_bytes) {
        fail("writing failed", errno);
    }
    n_written_ += n_bytes;
}

void gguf_writer::pad() {
    const std::string zeros(static_cast<size_t>(padded(n_written_, alignment_) - n_written_), '\0');
    write(zeros.data(), zeros.size());
}

void gguf_writer::finish() {
    PDS_REQUIRE(n_written_ == n_total_, PDS_ERR_INTERNAL, "%s: %" PRIu64 " bytes were written instead of %" PRIu64,
                path_.c_str(), n_written_, n_total_);
    close_file();
    check_place(); // another process may have made the file in the meantime
    std::error_code failed;
    fs::rename(temporary_, path_, failed);
    if (failed) {
        fail("the finished file cannot be given its name", failed.value());
    }
    temporary_.clear();
}

void gguf_writer::close_file() {
    if (std::fflush(file_) != 0 || sync_to_disk(file_) != 0) {
        fail("writing failed", errno);
    }
    std::FILE * file = file_;
    file_            = nullptr; // closed even if this fails
    if (std::fclose(file) != 0) {
        fail("writing failed", errno);
    }
}

void gguf_writer::fail(const char * what, int code) const {
    throw error(PDS_ERR_FILE, path_ + ": " + what + ": " + std::strerror(code));
}

} // namespace pds
