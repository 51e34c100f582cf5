// Opens damaged variants of a GGUF file and reads all of each: a variant is refused with an error, or is safe to use.
// arguments: number of variants, random seed, and optionally the file to start from.
#include "base/error.h"
#include "gguf-bytes.h"
#include "gguf/gguf-file.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <new>
#include <random>

namespace {

size_t largest_allocation = 0;

} // namespace

// Replaced to see the largest allocation that a file can cause.
void * operator new(size_t size) {
    largest_allocation = std::max(largest_allocation, size);
    if (void * memory = std::malloc(size > 0 ? size : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

void operator delete(void * memory) noexcept {
    std::free(memory);
}
void operator delete(void * memory, size_t) noexcept {
    std::free(memory);
}

namespace {

// Error messages, hash tables of a few entries, and the standard library's own buffers.
constexpr size_t small_allocations = 16384;
// An entry of the directory takes a few times the bytes of the smallest entry in a file.
constexpr size_t bytes_per_file_byte = 8;

class mutator {
  public:
    mutator(std::string file, uint32_t seed)
        : original(std::move(file)), header_size(std::min<size_t>(original.size(), 2048)), random(seed) {}

    std::string next() {
        std::string bytes = original;
        for (uint64_t n = 1 + below(3); n > 0; n--) {
            change(bytes);
        }
        return bytes;
    }

  private:
    uint64_t below(uint64_t n) { return random() % n; }

    void change(std::string & bytes) {
        switch (below(8)) {
        case 0:
            bytes.resize(below(bytes.size() + 1));
            break;
        case 1:
            set_byte(bytes, static_cast<char>(below(256)));
            break;
        case 2:
            duplicate_range(bytes);
            break;
        default:
            set_number(bytes);
            break;
        }
    }

    void set_byte(std::string & bytes, char value) {
        if (!bytes.empty()) {
            bytes[below(std::min(header_size, bytes.size()))] = value;
        }
    }

    // Removes or repeats a few bytes, so that all that follows moves.
    void duplicate_range(std::string & bytes) {
        const size_t at   = below(std::min(header_size, bytes.size()) + 1);
        const size_t size = std::min<size_t>(1 + below(16), bytes.size() - at);
        if (below(2) == 0) {
            bytes.erase(at, size);
        } else {
            bytes.insert(at, std::string(bytes, at, size));
        }
    }

    // Counts, lengths, types and offsets are numbers of 1, 4 or 8 bytes.
    void set_number(std::string & bytes) {
        constexpr size_t sizes[] = { 1, 4, 8, 8 };
        const size_t     size    = sizes[below(std::size(sizes))];
        if (bytes.size() < size) {
            return;
        }
        const size_t at    = below(std::min(header_size, bytes.size() - size + 1));
        uint64_t     value = 0;
        std::memcpy(&value, bytes.data() + at, size);
        value = interesting(value, bytes.size());
        std::memcpy(bytes.data() + at, &value, size);
    }

    uint64_t interesting(uint64_t old, uint64_t file_size) {
        switch (below(7)) {
        case 0:
            return below(64);
        case 1:
            return uint64_t{ 1 } << below(64);
        case 2:
            return (uint64_t{ 1 } << below(64)) - 1;
        case 3:
            return ~below(64);
        case 4:
            return file_size - below(64);
        case 5:
            return old + below(3) - 1;
        default:
            return old ^ (uint64_t{ 1 } << below(64));
        }
    }

    const std::string original;
    const size_t      header_size;
    std::mt19937_64   random;
};

// Reads everything that the file offers; the sum keeps the reads from being optimised away.
uint64_t read_all(const pds::gguf_file & file) {
    uint64_t sum = 0;
    for (const pds::gguf_value & value : file.values()) {
        sum += pds::gguf_describe(value).size() + value.key.size();
        if (value.item_type == pds::gguf_type::string) {
            for (const std::string_view text : file.get_strings(value.key)) {
                sum += text.empty() ? 0 : static_cast<uint64_t>(text.front()) + static_cast<uint64_t>(text.back());
            }
        } else if (value.n_bytes > 0) {
            sum += value.data[0] + uint64_t{ value.data[value.n_bytes - 1] };
        }
    }
    for (const pds::gguf_tensor & tensor : file.tensors()) {
        sum += tensor.data[0] + uint64_t{ tensor.data[tensor.n_bytes - 1] } + file.find(tensor.name)->offset;
    }
    return sum;
}

// Returns whether the file was opened. Throws for anything but a proper refusal.
bool try_file(const std::string & path, uint64_t & sum) {
    try {
        sum += read_all(*pds::gguf_file::open(path));
        return true;
    } catch (const pds::error & e) {
        if (e.code != PDS_ERR_FORMAT && e.code != PDS_ERR_UNSUPPORTED && e.code != PDS_ERR_FILE) {
            throw;
        }
        return false;
    }
}

std::string read_file(const char * path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

int fuzz(long count, uint32_t seed, const std::string & original) {
    const pds_test::temp_dir folder;
    uint64_t                 sum      = 0;
    long                     n_opened = 0;
    if (!try_file(folder.write("original.gguf", original), sum)) {
        std::fprintf(stderr, "the file to start from is refused\n");
        return 1;
    }
    mutator variants(original, seed);
    for (long i = 0; i < count; i++) {
        const std::string bytes = variants.next();
        const std::string path  = folder.write("variant.gguf", bytes);
        largest_allocation      = 0;
        n_opened += try_file(path, sum) ? 1 : 0;
        if (largest_allocation > bytes.size() * bytes_per_file_byte + small_allocations) {
            std::fprintf(stderr, "variant %ld of %zu bytes: an allocation of %zu bytes\n", i, bytes.size(),
                         largest_allocation);
            return 1;
        }
    }
    std::printf("%ld variants: %ld opened, %ld refused; sum %llu\n", count, n_opened, count - n_opened,
                static_cast<unsigned long long>(sum));
    // Both must happen, or the variants are too mild or too wild to test anything.
    return n_opened > 0 && n_opened < count ? 0 : 1;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: fuzz-gguf COUNT SEED [FILE]\n");
        return 2;
    }
    const std::string original = argc > 3 ? read_file(argv[3]) : pds_test::good_gguf();
    return fuzz(std::atol(argv[1]), static_cast<uint32_t>(std::atol(argv[2])), original);
}
