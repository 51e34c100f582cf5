#include "gguf/file-kind.h"

#include "base/error.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <string_view>

namespace pds {

namespace {

using namespace std::string_view_literals;

struct known_start {
    std::string_view bytes;
    const char *     kind;
};

constexpr const char * old_ggml =
    "is in a format that came before GGUF (GGML, GGMF or GGJT). Convert the model again with a current converter";

constexpr known_start known_starts[] = {
    { "version https://git-lfs"sv,
      "is a git-lfs pointer, not the model itself. Run 'git lfs pull', or download the file from its web page" },
    { "PK\x03\x04"sv, "is a ZIP archive, as PyTorch checkpoints are. Unpack it, or convert the checkpoint to GGUF" },
    { "\x1f\x8b"sv, "is compressed with gzip. Unpack it first" },
    { "\x28\xb5\x2f\xfd"sv, "is compressed with Zstandard. Unpack it first" },
    { "lmgg"sv, old_ggml },
    { "fmgg"sv, old_ggml },
    { "tjgg"sv, old_ggml },
    { "algg"sv, old_ggml },
    { "\0\0\0\0"sv, "starts with zeros, as a download that has reserved its space but not arrived. Download it again" },
    { "{"sv, "is JSON text, not a model: a server's error answer or an index file. Download the .gguf file itself" },
};

std::string_view first_bytes(const mapped_file & file) {
    constexpr uint64_t n_looked_at = 512;
    return { reinterpret_cast<const char *>(file.data()), static_cast<size_t>(std::min(file.size(), n_looked_at)) };
}

bool is_markup(std::string_view start) {
    if (start.starts_with("\xEF\xBB\xBF")) {
        start.remove_prefix(3);
    }
    start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
    return start.starts_with("<");
}

// The JSON header of a safetensors file comes after its length as a u64.
bool is_safetensors(std::string_view start, uint64_t file_size) {
    uint64_t header_size = 0;
    if (start.size() <= sizeof(header_size) || start[sizeof(header_size)] != '{') {
        return false;
    }
    std::memcpy(&header_size, start.data(), sizeof(header_size));
    return header_size >= 2 && header_size <= file_size;
}

bool is_pickle(std::string_view start) {
    return start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
}

std::string hex(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
        out += format(out.empty() ? "%02x" : " %02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
    }
    return out;
}

} // namespace

std::string file_kind(const mapped_file & file) {
    const std::string_view start = first_bytes(file);
    if (start.empty()) {
        return "is empty (0 bytes). Download it again";
    }
    if (std::string_view("GGUF").starts_with(start)) {
        return format("has only %" PRIu64 " bytes, fewer than any GGUF file. Download it again", file.size());
    }
    if (is_markup(start)) {
        return "is a web page (HTML or XML), not a model. Download the file itself: its address has 'resolve' where "
               "that of the page has 'blob', and some need a login";
    }
    if (is_safetensors(start, file.size())) {
        return "is a safetensors file. Convert the checkpoint to GGUF";
    }
    if (is_pickle(start)) {
        return "is a Python pickle, as old PyTorch checkpoints are. Convert the checkpoint to GGUF";
    }
    for (const known_start & known : known_starts) {
        if (start.starts_with(known.bytes)) {
            return known.kind;
        }
    }
    return "is not a GGUF file: it starts with the bytes " + hex(start.substr(0, 4)) + ", wanted 47 47 55 46 ('GGUF')";
}

} // namespace pds
