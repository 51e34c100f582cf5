#include "gguf/gguf-split.h"

#include "base/error.h"
#include "gguf/keys.h"

#include <algorithm>
#include <cinttypes>
#include <filesystem>
#include <utility>

namespace pds {

namespace {

constexpr int64_t max_count = 99999; // the names have five digits

struct split_position {
    int64_t no; // from 0
    int64_t count;
    int64_t n_tensors; // of all parts together; -1 = not stated
};

split_position read_position(const mapped_file & file, const gguf_contents & contents) {
    split_position position;
    position.count     = gguf_find_int(file, contents, keys::split_count, 0);
    position.no        = gguf_find_int(file, contents, keys::split_no, -1);
    position.n_tensors = gguf_find_int(file, contents, keys::split_tensors, -1);
    PDS_REQUIRE(position.count <= max_count, PDS_ERR_FORMAT,
                "%s: split.count is %" PRId64 ", wanted at most %" PRId64 ". The file is damaged", file.path().c_str(),
                position.count, max_count);
    PDS_REQUIRE(position.count <= 1 || (position.no >= 0 && position.no < position.count), PDS_ERR_FORMAT,
                "%s: split.no is %" PRId64 ", wanted 0 to %" PRId64 ". The file is damaged", file.path().c_str(),
                position.no, position.count - 1);
    return position;
}

std::string name_ending(const split_position & position) {
    return format("-%05" PRId64 "-of-%05" PRId64 ".gguf", position.no + 1, position.count);
}

// The path without the ending that each part of a set has.
std::string path_prefix(const std::string & path, const split_position & position) {
    const std::string ending = name_ending(position);
    PDS_REQUIRE(path.ends_with(ending), PDS_ERR_FORMAT,
                "%s: is part %" PRId64 " of %" PRId64
                " of a split model, so its name must end in %s for the other parts "
                "to be found. Give all parts their own names again",
                path.c_str(), position.no + 1, position.count, ending.c_str());
    return path.substr(0, path.size() - ending.size());
}

mapped_file open_part(const std::string & path, const split_position & position) {
    std::error_code ignored; // a path that cannot be looked at is reported when it is opened
    PDS_REQUIRE(std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found,
                PDS_ERR_FILE,
                "%s: part %" PRId64 " of %" PRId64 " of a split model is missing. Put all parts into one folder, under "
                "the names that they were published with",
                path.c_str(), position.no + 1, position.count);
    return mapped_file(path);
}

void check_position(const mapped_file & file, const split_position & position, const split_position & wanted) {
    PDS_REQUIRE(position.count == wanted.count && position.no == wanted.no, PDS_ERR_FORMAT,
                "%s: holds part %" PRId64 " of %" PRId64 ", wanted part %" PRId64 " of %" PRId64
                " as its name says. It was renamed, or belongs to another model: download it again",
                file.path().c_str(), position.no + 1, position.count, wanted.no + 1, wanted.count);
    PDS_REQUIRE(position.n_tensors == wanted.n_tensors, PDS_ERR_FORMAT,
                "%s: is part of a model of %" PRId64 " tensors, but the other parts are of one of %" PRId64
                ". It belongs to another model: download it again",
                file.path().c_str(), position.n_tensors, wanted.n_tensors);
}

std::string_view identity(const gguf_contents & contents, std::string_view key) {
    std::string_view text;
    for (const gguf_value & value : contents.values) {
        if (value.key == key && value.type == gguf_type::string) {
            gguf_for_each_string(value, [&](std::string_view item) { text = item; });
        }
    }
    return text;
}

// Later parts need not repeat the model's metadata; those that do must agree with the first.
void check_same_model(const mapped_file & file, const gguf_contents & contents, const gguf_contents & first) {
    for (const std::string_view key : { keys::architecture, keys::name }) {
        const std::string_view here   = identity(contents, key);
        const std::string_view wanted = identity(first, key);
        PDS_REQUIRE(here.empty() || here == wanted, PDS_ERR_FORMAT,
                    "%s: is part of another model: its %s is %s, that of part 1 is %s. Download it again",
                    file.path().c_str(), std::string(key).c_str(), quoted(here).c_str(), quoted(wanted).c_str());
    }
}

void check_total(const gguf_set & set, int64_t wanted) {
    int64_t n_tensors = 0;
    for (const gguf_contents & contents : set.contents) {
        n_tensors += static_cast<int64_t>(contents.tensors.size());
    }
    PDS_REQUIRE(wanted < 0 || n_tensors == wanted, PDS_ERR_FORMAT,
                "%s: the parts of this split model hold %" PRId64 " tensors, wanted %" PRId64
                " (split.tensors.count). One of them belongs to another model: download the parts again",
                set.files.front().path().c_str(), n_tensors, wanted);
}

} // namespace

gguf_set gguf_open_set(const std::string & path) {
    gguf_set      set;
    mapped_file   given(path);
    gguf_contents given_contents = gguf_parse(given, 0);

    const split_position position = read_position(given, given_contents);
    if (position.count <= 1) {
        set.files.push_back(std::move(given));
        set.contents.push_back(std::move(given_contents));
        return set;
    }
    const std::string prefix = path_prefix(path, position);
    for (int64_t no = 0; no < position.count; no++) {
        const split_position wanted = { no, position.count, position.n_tensors };
        set.files.push_back(open_part(prefix + name_ending(wanted), wanted));
        set.contents.push_back(gguf_parse(set.files.back(), static_cast<int>(no)));
        check_position(set.files.back(), read_position(set.files.back(), set.contents.back()), wanted);
        check_same_model(set.files.back(), set.contents.back(), set.contents.front());
    }
    check_total(set, position.n_tensors);
    return set;
}

} // namespace pds
