// Models in several files: any part opens all of them, and parts that do not fit are refused.
#include "check-error.h"
#include "gguf-bytes.h"
#include "gguf/gguf-file.h"

using pds::gguf_file;
using pds::gguf_type;
using pds_test::gguf_bytes;

namespace {

constexpr const char * part_names[] = { "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf" };

// One tensor, and the keys that each part has; the first part has the model's metadata too.
std::string part(uint16_t no, std::string_view tensor, uint16_t count = 3, int32_t n_tensors = 3) {
    gguf_bytes file;
    file.header(1, no == 0 ? 4 : 3)
        .value("split.no", gguf_type::u16, no)
        .value("split.count", gguf_type::u16, count)
        .value("split.tensors.count", gguf_type::i32, n_tensors);
    if (no == 0) {
        file.value("general.architecture", "llama");
    }
    return file.tensor(tensor, { 4 }, GGML_TYPE_F32, 0).data(16).bytes;
}

// A folder with the three parts of a model.
class split_model {
  public:
    split_model() {
        write(0, part(0, "a"));
        write(1, part(1, "b"));
        write(2, part(2, "c"));
    }

    std::string path(int no) const { return folder.path(part_names[no]); }
    void        write(int no, std::string_view bytes) const { folder.write(part_names[no], bytes); }

    const pds_test::temp_dir folder;
};

void test_any_part_opens_the_set() {
    const split_model model;
    for (int no = 0; no < 3; no++) {
        const auto file = gguf_file::open(model.path(no));
        CHECK(file->files().size() == 3 && file->path() == model.path(0) && file->architecture() == "llama");
        CHECK(file->tensors().size() == 3 && file->find("a")->file_index == 0 && file->find("c")->file_index == 2);
        CHECK(file->find("c")->data == file->files()[2].data() + file->find("c")->offset);
    }
}

void test_one_part_is_no_split() {
    const pds_test::temp_dir folder;
    CHECK(gguf_file::open(folder.write("any-name.gguf", part(0, "a", 1, 1)))->tensors().size() == 1);
}

void test_missing_part() {
    const split_model model;
    std::filesystem::remove(model.path(2));
    CHECK_ERROR(PDS_ERR_FILE, "m-00003-of-00003.gguf: part 3 of 3 of a split model is missing",
                gguf_file::open(model.path(1)));
}

void test_renamed_part() {
    const split_model model;
    const std::string renamed = model.folder.path("model.gguf");
    std::filesystem::rename(model.path(0), renamed);
    CHECK_ERROR(PDS_ERR_FORMAT, "is part 1 of 3 of a split model, so its name must end in -00001-of-00003.gguf",
                gguf_file::open(renamed));
    CHECK_ERROR(PDS_ERR_FILE, "part 1 of 3 of a split model is missing", gguf_file::open(model.path(1)));
}

void test_parts_swapped() {
    const split_model model;
    model.write(1, part(2, "c"));
    CHECK_ERROR(PDS_ERR_FORMAT, "holds part 3 of 3, wanted part 2 of 3", gguf_file::open(model.path(0)));
    CHECK_ERROR(PDS_ERR_FORMAT, "is part 3 of 3 of a split model, so its name must end in",
                gguf_file::open(model.path(1)));
}

void test_part_of_another_model() {
    const split_model model;
    model.write(1, part(1, "b", 3, 4));
    CHECK_ERROR(PDS_ERR_FORMAT, "is part of a model of 4 tensors, but the other parts are of one of 3",
                gguf_file::open(model.path(0)));
    model.write(1, part(1, "c"));
    CHECK_ERROR(PDS_ERR_FORMAT, "tensor 'c' is there twice. The parts do not belong to one model",
                gguf_file::open(model.path(0)));
    gguf_bytes named;
    named.header(0, 4)
        .value("split.no", gguf_type::u16, uint16_t{ 1 })
        .value("split.count", gguf_type::u16, uint16_t{ 3 })
        .value("split.tensors.count", gguf_type::i32, 3)
        .value("general.architecture", "qwen3");
    model.write(1, named.bytes);
    CHECK_ERROR(PDS_ERR_FORMAT, "its general.architecture is 'qwen3', that of part 1 is 'llama'",
                gguf_file::open(model.path(2)));
}

void test_wrong_numbers() {
    const split_model model;
    for (int no = 0; no < 3; no++) {
        model.write(no, part(static_cast<uint16_t>(no), std::string(1, static_cast<char>('a' + no)), 3, 5));
    }
    CHECK_ERROR(PDS_ERR_FORMAT, "hold 3 tensors, wanted 5", gguf_file::open(model.path(0)));
    model.write(0, part(0, "a", 4));
    CHECK_ERROR(PDS_ERR_FORMAT, "must end in -00001-of-00004.gguf", gguf_file::open(model.path(0)));
    CHECK_ERROR(PDS_ERR_FORMAT, "holds part 1 of 4, wanted part 1 of 3", gguf_file::open(model.path(1)));
    model.write(0, part(7, "a"));
    CHECK_ERROR(PDS_ERR_FORMAT, "split.no is 7, wanted 0 to 2", gguf_file::open(model.path(0)));
}

} // namespace

int main() {
    test_any_part_opens_the_set();
    test_one_part_is_no_split();
    test_missing_part();
    test_renamed_part();
    test_parts_swapped();
    test_part_of_another_model();
    test_wrong_numbers();
    return pds_test::check_result();
}
