# Builds pydspark/_native/_core from the declarations between the cdef markers of pydspark.h, so that no signature is
# written twice.
file(READ csrc/pydspark.h PDS_HEADER)
string(REGEX REPLACE ".*// \\[cdef begin\\](.*)// \\[cdef end\\].*" "\\1" PDS_CDEF "${PDS_HEADER}")
set(PDS_GENERATED ${CMAKE_CURRENT_BINARY_DIR}/_core)
# Python code that runs while a native call is under way: asked for progress, it may answer "stop"; asked for a mask, it
# says which tokens may follow.
set(PDS_PYTHON_CALLS "
extern \"Python\" int32_t pds_python_progress(void *, double);
extern \"Python\" int32_t pds_python_mask(void *, const int32_t *, int64_t, uint32_t *, int64_t);
")
file(CONFIGURE OUTPUT ${PDS_GENERATED}.cdef.txt CONTENT "@PDS_CDEF@@PDS_PYTHON_CALLS@" @ONLY)
file(CONFIGURE OUTPUT ${PDS_GENERATED}.csrc.c CONTENT "#include \"pydspark.h\"\n" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS csrc/pydspark.h)

add_custom_command(
    OUTPUT ${PDS_GENERATED}.c
    COMMAND Python::Interpreter -m cffi.gen_src read-sources pydspark._native._core ${PDS_GENERATED}.cdef.txt
            ${PDS_GENERATED}.csrc.c ${PDS_GENERATED}.c
    DEPENDS ${PDS_GENERATED}.cdef.txt ${PDS_GENERATED}.csrc.c
    VERBATIM)

if(SKBUILD_SABI_VERSION)
    python_add_library(_core MODULE USE_SABI ${SKBUILD_SABI_VERSION} WITH_SOABI ${PDS_GENERATED}.c)
else()
    python_add_library(_core MODULE WITH_SOABI ${PDS_GENERATED}.c)
endif()
target_link_libraries(_core PRIVATE pds_core)
set_target_properties(_core PROPERTIES LINKER_LANGUAGE CXX BUILD_WITH_INSTALL_RPATH ON)
if(APPLE)
    set_target_properties(_core PROPERTIES INSTALL_RPATH "@loader_path/../../libggml/lib")
else()
    set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN/../../libggml/lib64:$ORIGIN/../../libggml/lib")
endif()
install(TARGETS _core DESTINATION pydspark/_native)
