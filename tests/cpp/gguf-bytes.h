// Writes GGUF files byte by byte, so that tests can make wrong ones.
#pragma once

#include "ggml.h"
#include "gguf/gguf-types.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pds_test {

// A folder that is removed at the end.
class temp_dir {
  public:
    temp_dir() {
        std::string name = (std::filesystem::temp_directory_path() / "pds-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("cannot make a temporary folder");
        }
        folder = name;
    }
    ~temp_dir() { std::filesystem::remove_all(folder); }
    temp_dir(const temp_dir &)             = delete;
    temp_dir & operator=(const temp_dir &) = delete;

    std::string path(const std::string & name) const { return (folder / name).string(); }

    std::string write(const std::string & name, std::string_view bytes) const {
        std::filesystem::remove(path(name)); // some file systems wait for the disk when a file is written over
        std::ofstream file(path(name), std::ios::binary | std::ios::trunc);
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        file.close();
        if (!file) {
            throw std::runtime_error("cannot write " + path(name));
        }
        return path(name);
    }

  private:
    std::filesystem::path folder;
};

class gguf_bytes {
  public:
    std::string bytes;

    template <typename number_t> gguf_bytes & put(number_t number) {
        bytes.append(reinterpret_cast<const char *>(&number), sizeof(number));
        return *this;
    }

    gguf_bytes & put_string(std::string_view text) {
        put(uint64_t{ text.size() });
        bytes += text;
        return *this;
    }

    gguf_bytes & header(uint64_t n_tensors, uint64_t n_values, uint32_t version = 3) {
        bytes += "GGUF";
        return put(version).put(n_tensors).put(n_values);
    }

    gguf_bytes & key(std::string_view name, pds::gguf_type type) {
        put_string(name);
        return put(static_cast<int32_t>(type));
    }

    template <typename number_t> gguf_bytes & value(std::string_view name, pds::gguf_type type, number_t number) {
        return key(name, type).put(number);
    }

    gguf_bytes & value(std::string_view name, std::string_view text) {
        return key(name, pds::gguf_type::string).put_string(text);
    }

    // The items are put after it.
    gguf_bytes & array(std::string_view name, pds::gguf_type item_type, uint64_t n) {
        return key(name, pds::gguf_type::array).put(static_cast<int32_t>(item_type)).put(n);
    }

    gguf_bytes & tensor(std::string_view name, std::initializer_list<uint64_t> ne, uint32_t type, uint64_t offset) {
        put_string(name);
        put(static_cast<uint32_t>(ne.size()));
        for (const uint64_t n : ne) {
            put(n);
        }
        return put(type).put(offset);
    }

    // Padding up to the alignment, then n bytes of tensor data.
    gguf_bytes & data(size_t n, size_t alignment = 32) {
        bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
        for (size_t i = 0; i < n; i++) {
            bytes += static_cast<char>(i * 7 + 1);
        }
        return *this;
    }
};

// A file with a value of every type and tensors of three types, back to back.
inline std::string good_gguf() {
    using pds::gguf_type;
    gguf_bytes file;
    file.header(3, 17)
        .value("general.architecture", "llama")
        .value("t.u8", gguf_type::u8, uint8_t{ 200 })
        .value("t.i8", gguf_type::i8, int8_t{ -3 })
        .value("t.u16", gguf_type::u16, uint16_t{ 65000 })
        .value("t.i16", gguf_type::i16, int16_t{ -300 })
        .value("t.u32", gguf_type::u32, uint32_t{ 4000000000 })
        .value("t.i32", gguf_type::i32, int32_t{ -70000 })
        .value("t.u64", gguf_type::u64, uint64_t{ 1 } << 63)
        .value("t.i64", gguf_type::i64, int64_t{ -5000000000 })
        .value("t.f32", gguf_type::f32, 1.5F)
        .value("t.f64", gguf_type::f64, 2.25)
        .value("t.bool", gguf_type::bool_, uint8_t{ 1 })
        .value("t.empty", "");
    file.array("t.i32s", gguf_type::i32, 3).put(int32_t{ 11 }).put(int32_t{ -10 }).put(int32_t{ 0 });
    file.array("t.f32s", gguf_type::f32, 2).put(0.5F).put(-4.0F);
    file.array("t.bools", gguf_type::bool_, 2).put(uint8_t{ 1 }).put(uint8_t{ 0 });
    file.array("tokenizer.ggml.tokens", gguf_type::string, 3)
        .put_string("a")
        .put_string("")
        .put_string("\xC4\xA0"
                    "b");
    file.tensor("token_embd.weight", { 32, 3 }, GGML_TYPE_F32, 0)
        .tensor("blk.0.attn_q.weight", { 64, 2 }, GGML_TYPE_Q8_0, 384)
        .tensor("output_norm.weight", { 8 }, GGML_TYPE_F16, 544)
        .data(544 + 32);
    return file.bytes;
}

} // namespace pds_test
