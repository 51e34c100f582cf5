#include "gguf/mapped-file.h"

#include "base/error.h"

#include <limits>
#include <utility>

#if defined(_WIN32)
#include <fstream>
#else
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace pds {

#if defined(_WIN32)

mapped_file::mapped_file(const std::string & path) : file_path(path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    PDS_REQUIRE(file, PDS_ERR_FILE, "%s: cannot be opened. Check the path and its permissions", path.c_str());
    buffer.resize(static_cast<size_t>(file.tellg()));
    file.seekg(0);
    file.read(reinterpret_cast<char *>(buffer.data()), static_cast<std::streamsize>(buffer.size()));
    PDS_REQUIRE(file, PDS_ERR_FILE, "%s: cannot be read to its end", path.c_str());
    bytes   = buffer.data();
    n_bytes = buffer.size();
}

mapped_file::~mapped_file() = default;

mapped_file::mapped_file(mapped_file && other) noexcept
    : file_path(std::move(other.file_path)), bytes(std::exchange(other.bytes, nullptr)),
      n_bytes(std::exchange(other.n_bytes, 0)), buffer(std::move(other.buffer)) {
}

bool mapped_file::lock() const {
    return false;
}

#else

namespace {

class file_descriptor {
  public:
    // Without O_NONBLOCK, opening a named pipe would wait for its writer.
    explicit file_descriptor(const std::string & path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~file_descriptor() {
        if (fd >= 0) {
            ::close(fd);
        }
    }
    file_descriptor(const file_descriptor &)             = delete;
    file_descriptor & operator=(const file_descriptor &) = delete;

    const int fd;
};

[[noreturn]] void throw_system_error(const std::string & path, const char * what, int code) {
    if (code == ENOENT || code == ENOTDIR) {
        throw error(PDS_ERR_FILE, path + ": there is no such file. Check the path");
    }
    throw error(PDS_ERR_FILE, path + ": cannot be " + what + ": " + std::strerror(code));
}

} // namespace

mapped_file::mapped_file(const std::string & path) : file_path(path) {
    const file_descriptor file(path);
    struct stat           info{};
    if (file.fd < 0 || ::fstat(file.fd, &info) != 0) {
        throw_system_error(path, "opened", errno);
    }
    PDS_REQUIRE(!S_ISDIR(info.st_mode), PDS_ERR_FILE, "%s: is a directory. Give the path of the GGUF file inside it",
                path.c_str());
    PDS_REQUIRE(S_ISREG(info.st_mode), PDS_ERR_FILE, "%s: is not a regular file, so it cannot be mapped", path.c_str());
    n_bytes = static_cast<uint64_t>(info.st_size);
    PDS_REQUIRE(n_bytes <= std::numeric_limits<size_t>::max(), PDS_ERR_FILE,
                "%s: is too large for the address space of this process", path.c_str());
    if (n_bytes == 0) {
        return;
    }
    void * map = ::mmap(nullptr, static_cast<size_t>(n_bytes), PROT_READ, MAP_SHARED, file.fd, 0);
    if (map == MAP_FAILED) {
        throw_system_error(path, "mapped", errno);
    }
    bytes = static_cast<const uint8_t *>(map);
}

mapped_file::~mapped_file() {
    if (bytes != nullptr) {
        ::munmap(const_cast<uint8_t *>(bytes), static_cast<size_t>(n_bytes));
    }
}

mapped_file::mapped_file(mapped_file && other) noexcept
    : file_path(std::move(other.file_path)), bytes(std::exchange(other.bytes, nullptr)),
      n_bytes(std::exchange(other.n_bytes, 0)) {
}

bool mapped_file::lock() const {
    return n_bytes == 0 || ::mlock(bytes, static_cast<size_t>(n_bytes)) == 0;
}

#endif

} // namespace pds
