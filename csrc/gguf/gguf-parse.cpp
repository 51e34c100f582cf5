#include "gguf/gguf-parse.h"

#include "base/error.h"
#include "base/utf8.h"
#include "gguf/byte-reader.h"
#include "gguf/file-kind.h"
#include "gguf/keys.h"
#include "gguf/tensor-type.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <limits>

namespace pds {

namespace {

constexpr uint64_t magic_size        = 4;
constexpr int64_t  default_alignment = 32;
constexpr int64_t  max_alignment     = int64_t{ 1 } << 30;

// Far above any real model; they bound the memory that a crafted file can make the directory take.
constexpr uint64_t max_values  = 1 << 16;
constexpr uint64_t max_tensors = 1 << 18;

// The smallest entries: name length, one byte of name, and the fixed fields.
constexpr uint64_t min_value_size  = 8 + 1 + 4 + 1;
constexpr uint64_t min_tensor_size = 8 + 1 + 4 + 8 + 4 + 8;

uint32_t read_version(byte_reader & in) {
    in.skip(magic_size, "the magic");
    const uint32_t version = in.read<uint32_t>("the version");
    if (version == 2 || version == 3) {
        return version;
    }
    if (version != 0 && (version & 0xFFFFu) == 0) {
        in.fail(PDS_ERR_UNSUPPORTED, format("version %" PRIu32 " means that this is a big-endian file. Get the "
                                            "little-endian one, or convert it with gguf-convert-endian",
                                            version));
    }
    if (version == 0) {
        in.fail(PDS_ERR_FORMAT, "the version is 0, wanted 2 or 3. The file is damaged: download it again");
    }
    in.fail(PDS_ERR_UNSUPPORTED, format("GGUF version %" PRIu32 " is not supported, wanted 2 or 3. %s", version,
                                        version == 1 ? "Convert the model again with a current converter"
                                                     : "It needs a newer pydspark, or the file is damaged"));
}

uint64_t read_count(byte_reader & in, const char * what, uint64_t min_item_size, uint64_t limit) {
    const uint64_t count    = in.read<uint64_t>(what);
    const uint64_t possible = in.remaining() / min_item_size;
    if (count > possible) {
        in.fail(PDS_ERR_FORMAT, format("%s is %" PRIu64 ", but the rest of the file has room for at most %" PRIu64
                                       ". It is damaged or cut short: download it again",
                                       what, count, possible));
    }
    if (count > limit) {
        in.fail(PDS_ERR_FORMAT,
                format("%s is %" PRIu64 ", wanted at most %" PRIu64 ". The file is damaged", what, count, limit));
    }
    return count;
}

std::string_view read_name(byte_reader & in, size_t max_size) {
    const std::string_view name = in.read_string("its name");
    if (name.empty()) {
        in.fail(PDS_ERR_FORMAT, "the name is empty. The file is damaged");
    }
    if (name.size() > max_size) {
        in.fail(PDS_ERR_FORMAT,
                format("the name %s has %zu bytes, wanted at most %zu", quoted(name).c_str(), name.size(), max_size));
    }
    if (!utf8_valid(name) || name.find('\0') != std::string_view::npos) {
        in.fail(PDS_ERR_FORMAT, "the name " + quoted(name) + " is not text in UTF-8. The file is damaged");
    }
    in.name_item(name);
    return name;
}

gguf_type read_type(byte_reader & in, const char * what) {
    const uint32_t number = in.read<uint32_t>(what);
    if (!gguf_type_known(number)) {
        in.fail(PDS_ERR_FORMAT, format("%s is %" PRIu32 ", wanted 0 to 12. The file is damaged", what, number));
    }
    return static_cast<gguf_type>(number);
}

void skip_strings(byte_reader & in, gguf_value & value) {
    for (int64_t i = 0; i < value.n; i++) {
        value.n_bytes += static_cast<int64_t>(in.read_string("a string").size());
    }
}

void check_bools(const byte_reader & in, const gguf_value & value) {
    for (int64_t i = 0; i < value.n; i++) {
        if (value.data[i] > 1) {
            in.fail(PDS_ERR_FORMAT, format("a bool is stored as %d, wanted 0 or 1. The file is damaged",
                                           static_cast<int>(value.data[i])));
        }
    }
}

void read_items(byte_reader & in, gguf_value & value) {
    value.data = in.here();
    if (value.item_type == gguf_type::string) {
        skip_strings(in, value);
        return;
    }
    value.n_bytes = value.n * gguf_type_size(value.item_type);
    in.skip(static_cast<uint64_t>(value.n_bytes), "its value");
    if (value.item_type == gguf_type::bool_) {
        check_bools(in, value);
    }
}

gguf_value read_value(byte_reader & in, uint64_t index) {
    in.begin_item("metadata key", index);
    gguf_value value;
    value.key       = read_name(in, gguf_max_key_size);
    value.type      = read_type(in, "the value type");
    value.item_type = value.type;
    if (value.type == gguf_type::array) {
        value.item_type = read_type(in, "the item type");
        if (value.item_type == gguf_type::array) {
            in.fail(PDS_ERR_UNSUPPORTED, "arrays of arrays are not supported");
        }
        const bool     is_string = value.item_type == gguf_type::string;
        const uint64_t min_item_size =
            is_string ? sizeof(uint64_t) : static_cast<uint64_t>(gguf_type_size(value.item_type));
        constexpr auto no_limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
        value.n                 = static_cast<int64_t>(read_count(in, "the number of items", min_item_size, no_limit));
    }
    read_items(in, value);
    return value;
}

void check_keys_unique(const mapped_file & file, const std::vector<gguf_value> & values) {
    std::vector<std::string_view> names;
    names.reserve(values.size());
    std::transform(values.begin(), values.end(), std::back_inserter(names),
                   [](const auto & value) { return value.key; });
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
        throw error(PDS_ERR_FORMAT,
                    file.path() + ": metadata key " + quoted(*twice) + " is there twice. The file is damaged");
    }
}

// Throws if the product does not fit in an int64; both factors are at least 0.
int64_t checked_product(const byte_reader & in, int64_t a, int64_t b, const gguf_tensor & tensor) {
    if (a != 0 && b > std::numeric_limits<int64_t>::max() / a) {
        in.fail(PDS_ERR_FORMAT, "the shape " + shape_text(tensor.ne, tensor.n_dims) +
                                    " is larger than any file can hold. The file is damaged");
    }
    return a * b;
}

void read_shape(byte_reader & in, gguf_tensor & tensor) {
    const uint32_t n_dims = in.read<uint32_t>("the number of dimensions");
    if (n_dims < 1 || n_dims > std::size(tensor.ne)) {
        in.fail(PDS_ERR_FORMAT, format("it has %" PRIu32 " dimensions, wanted 1 to 4. The file is damaged", n_dims));
    }
    tensor.n_dims = static_cast<int>(n_dims);
    for (int i = 0; i < tensor.n_dims; i++) {
        tensor.ne[i] = in.read<int64_t>("a dimension");
    }
    for (int i = 0; i < tensor.n_dims; i++) {
        if (tensor.ne[i] < 1) {
            in.fail(PDS_ERR_FORMAT, "the shape is " + shape_text(tensor.ne, tensor.n_dims) +
                                        ", wanted at least 1 in each dimension. The file is damaged");
        }
    }
}

void read_tensor_type(byte_reader & in, gguf_tensor & tensor) {
    const uint32_t number = in.read<uint32_t>("the type");
    if (!tensor_type_known(number)) {
        in.fail(PDS_ERR_UNSUPPORTED, "it has " + tensor_type_problem(number));
    }
    tensor.type              = static_cast<ggml_type>(number);
    const int64_t block_size = ggml_blck_size(tensor.type);
    if (tensor.ne[0] % block_size != 0) {
        in.fail(PDS_ERR_FORMAT, format("rows of %" PRId64 " elements do not divide into the blocks of %" PRId64
                                       " that type %s has. The file is damaged",
                                       tensor.ne[0], block_size, ggml_type_name(tensor.type)));
    }
}

int64_t tensor_size(const byte_reader & in, const gguf_tensor & tensor) {
    int64_t n_elements = 1;
    for (const int64_t n : tensor.ne) {
        n_elements = checked_product(in, n_elements, n, tensor);
    }
    const int64_t n_blocks = n_elements / ggml_blck_size(tensor.type);
    return checked_product(in, n_blocks, static_cast<int64_t>(ggml_type_size(tensor.type)), tensor);
}

// The tensor's offset still counts from the start of the data.
gguf_tensor read_tensor(byte_reader & in, uint64_t index, uint64_t alignment) {
    in.begin_item("tensor", index);
    gguf_tensor tensor;
    tensor.name = read_name(in, GGML_MAX_NAME - 1);
    read_shape(in, tensor);
    read_tensor_type(in, tensor);
    tensor.n_bytes = tensor_size(in, tensor);
    tensor.offset  = in.read<uint64_t>("the offset");
    if (tensor.offset % alignment != 0) {
        in.fail(PDS_ERR_FORMAT,
                format("its offset %" PRIu64 " is not a multiple of the alignment %" PRIu64 ". The file is damaged",
                       tensor.offset, alignment));
    }
    if (tensor.offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        in.fail(PDS_ERR_FORMAT,
                format("its offset %" PRIu64 " is beyond the end of any file. The file is damaged", tensor.offset));
    }
    return tensor;
}

uint64_t tensor_end(const gguf_tensor & tensor) {
    return tensor.offset + static_cast<uint64_t>(tensor.n_bytes);
}

// Makes the offset count from the start of the file and checks that the data is all there.
void place_tensor(const mapped_file & file, uint64_t data_begin, gguf_tensor & tensor) {
    const uint64_t available = file.size() - std::min(data_begin, file.size());
    if (tensor_end(tensor) > available) {
        const uint64_t missing = tensor_end(tensor) - std::max(available, tensor.offset);
        throw error(PDS_ERR_FORMAT,
                    file.path() + ": tensor " + quoted(tensor.name) +
                        format(" needs %" PRId64 " bytes at offset %" PRIu64
                               " of the data, but the file ends after %" PRIu64 ": %" PRIu64
                               " of the tensor's bytes are missing. Did the download stop early? Download "
                               "the file again",
                               tensor.n_bytes, tensor.offset, available, missing));
    }
    tensor.offset += data_begin;
    tensor.data = file.data() + tensor.offset;
}

void check_no_overlap(const mapped_file & file, const std::vector<gguf_tensor> & tensors) {
    std::vector<const gguf_tensor *> in_order;
    in_order.reserve(tensors.size());
    for (const gguf_tensor & tensor : tensors) {
        in_order.push_back(&tensor);
    }
    std::sort(in_order.begin(), in_order.end(), [](const auto * a, const auto * b) { return a->offset < b->offset; });
    for (size_t i = 1; i < in_order.size(); i++) {
        if (tensor_end(*in_order[i - 1]) > in_order[i]->offset) {
            throw error(PDS_ERR_FORMAT, file.path() + ": the data of tensors " + quoted(in_order[i - 1]->name) +
                                            " and " + quoted(in_order[i]->name) + " overlap. The file is damaged");
        }
    }
}

uint64_t find_alignment(const mapped_file & file, const gguf_contents & contents) {
    const int64_t alignment = gguf_find_int(file, contents, keys::alignment, default_alignment);
    if (alignment < 1 || alignment > max_alignment || (alignment & (alignment - 1)) != 0) {
        throw error(PDS_ERR_FORMAT,
                    file.path() + format(": general.alignment is %" PRId64 ", wanted a power of two up to %" PRId64
                                         ". The file is damaged",
                                         alignment, max_alignment));
    }
    return static_cast<uint64_t>(alignment);
}

} // namespace

gguf_contents gguf_parse(const mapped_file & file, int file_index) {
    const std::string_view magic(reinterpret_cast<const char *>(file.data()),
                                 static_cast<size_t>(std::min(file.size(), magic_size)));
    if (magic != "GGUF") {
        throw error(PDS_ERR_FORMAT, file.path() + ": " + file_kind(file));
    }
    byte_reader   in(file);
    gguf_contents contents;
    contents.version         = read_version(in);
    const uint64_t n_tensors = read_count(in, "the number of tensors", min_tensor_size, max_tensors);
    const uint64_t n_values  = read_count(in, "the number of metadata keys", min_value_size, max_values);
    contents.values.reserve(static_cast<size_t>(n_values));
    for (uint64_t i = 0; i < n_values; i++) {
        contents.values.push_back(read_value(in, i));
    }
    check_keys_unique(file, contents.values);
    contents.alignment = find_alignment(file, contents);
    contents.tensors.reserve(static_cast<size_t>(n_tensors));
    for (uint64_t i = 0; i < n_tensors; i++) {
        contents.tensors.push_back(read_tensor(in, i, contents.alignment));
    }
    const uint64_t data_begin = (in.position() + contents.alignment - 1) / contents.alignment * contents.alignment;
    for (gguf_tensor & tensor : contents.tensors) {
        tensor.file_index = file_index;
        place_tensor(file, data_begin, tensor);
    }
    check_no_overlap(file, contents.tensors);
    return contents;
}

int64_t gguf_find_int(const mapped_file & file, const gguf_contents & contents, std::string_view key,
                      int64_t fallback) {
    const auto found = std::find_if(contents.values.begin(), contents.values.end(),
                                    [&](const gguf_value & value) { return value.key == key; });
    return found == contents.values.end() ? fallback : gguf_require_int(file.path(), *found);
}

} // namespace pds
