#include "arch/arch.h"

#include "base/error.h"

namespace pds {

namespace {

const architecture * const known[] = { &arch_llama, &arch_qwen3, &arch_qwen3moe, &arch_qwen35, &arch_qwen35moe };

std::string supported_names() {
    std::string names;
    for (const architecture * arch : known) {
        names += (names.empty() ? "" : ", ") + std::string(arch->name);
    }
    return names;
}

} // namespace

const architecture & find_architecture(const gguf_file & gguf) {
    const std::string name(gguf.architecture());
    for (const architecture * arch : known) {
        if (name == arch->name) {
            return *arch;
        }
    }
    const std::string supported = supported_names();
    PDS_REQUIRE(name != "dflash", PDS_ERR_UNSUPPORTED,
                "%s is a drafter (architecture 'dflash'), not a target model; pass it as draft (supported targets: %s)",
                gguf.path().c_str(), supported.c_str());
    PDS_REQUIRE(name != "dspark", PDS_ERR_UNSUPPORTED,
                "%s is a drafter written by an early converter (architecture 'dspark'), not a target model; convert "
                "the checkpoint again with dspark-convert (supported targets: %s)",
                gguf.path().c_str(), supported.c_str());
    throw error(PDS_ERR_UNSUPPORTED, format("%s: model architecture '%s' is not supported (supported: %s)",
                                            gguf.path().c_str(), name.c_str(), supported.c_str()));
}

} // namespace pds
