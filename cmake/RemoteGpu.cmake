# The build's vocabulary: options, flags, and one function for each kind of artefact.
#
#   rg_component(dir [EXCLUDE_FROM_ALL])  a top-level folder, if it is wanted and there
#   rg_layer(name SOURCES … DEPENDS …)      a static library that other artefacts are made of
#   rg_loadable(name SOURCES … DEPENDS … EXPORTS map [OUTPUT_NAME n] [SUBDIR d])
#                                     a shared library that is loaded by path; only what the map names leaves it
#   rg_program(name SOURCES … DEPENDS …)    an executable that is installed in bin/
#   rg_internal_program(name SOURCES … DEPENDS …)  one that only other parts start: installed in lib/remote-gpu/
#   rg_unit_test(name [ALONE] SOURCES … DEPENDS …)  a Criterion test program. ALONE: its tests run one after another, since they
#                                     start processes, which makes Criterion lose memory of its own where two of them do
#   rg_plain_test(name SOURCES … DEPENDS …) a test program without a framework (runs under every sanitizer)
#   rg_fuzzer(name SOURCES … DEPENDS … COVERS …)  a fuzzer of tests/fuzz: with RG_FUZZ for libFuzzer, else a test that
#                                     replays its corpus
#
# Everything is built into one tree that mirrors the installed one (RG_STAGE: bin/, lib/remote-gpu/…), so
# programs find their parts in the same relative places before and after installation.

include(GNUInstallDirs)

option(RG_TESTS "build the tests" ON)
option(RG_WERROR "treat warnings as errors" OFF)
set(RG_SANITIZE "" CACHE STRING "sanitizers to build with (address,undefined or thread)")
option(RG_FUZZ "build the fuzzers of tests/fuzz, and no other test (clang)" OFF)
option(RG_COVERAGE "count which lines run (clang)" OFF)
option(RG_PORTABLE "put every library but glibc inside (preset portable)" OFF)
set(RG_COMPONENTS "" CACHE STRING "top-level folders to build (empty: all)")
set(RG_CUDA_ROOT "" CACHE PATH "CUDA toolkit (headers; nvcc for examples); empty: search")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)

find_program(RG_CCACHE ccache)
if(RG_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${RG_CCACHE})
endif()

# CUDA headers: an installed toolkit, else what scripts/setup put into .deps/cuda.
find_path(RG_CUDA_INCLUDE cuda.h
          HINTS ${RG_CUDA_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${CMAKE_SOURCE_DIR}/.deps/cuda
          PATH_SUFFIXES include targets/x86_64-linux/include)
if(NOT RG_CUDA_INCLUDE)
    message(FATAL_ERROR "CUDA headers (cuda.h) not found: run scripts/setup, or set RG_CUDA_ROOT")
endif()
file(STRINGS ${RG_CUDA_INCLUDE}/cuda.h RG_CUDA_VERSION REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+$" RG_CUDA_VERSION "${RG_CUDA_VERSION}")
if(RG_CUDA_VERSION LESS 12090)
    message(FATAL_ERROR "${RG_CUDA_INCLUDE} has the headers of CUDA ${RG_CUDA_VERSION}: 12.9 is the oldest that will do")
endif()
find_program(RG_NVCC nvcc
             HINTS ${RG_CUDA_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${CMAKE_SOURCE_DIR}/.deps/cuda
             PATH_SUFFIXES bin)

set(RG_STAGE ${CMAKE_BINARY_DIR}/stage)
set(RG_STAGE_BIN ${RG_STAGE}/bin)
set(RG_STAGE_LIB ${RG_STAGE}/lib/remote-gpu)
set(RG_LIBDIR lib/remote-gpu)

add_library(rg_options INTERFACE)
target_compile_options(rg_options INTERFACE
    -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wpointer-arith -Wwrite-strings
    -fvisibility=hidden -fno-strict-aliasing -fno-omit-frame-pointer)
target_compile_definitions(rg_options INTERFACE _GNU_SOURCE __CUDA_API_VERSION_INTERNAL
    RG_VERSION="${PROJECT_VERSION}")
target_include_directories(rg_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/generated)
target_include_directories(rg_options SYSTEM INTERFACE ${RG_CUDA_INCLUDE})
if(RG_CUDA_VERSION LESS 13000) # what those headers lack
    target_compile_options(rg_options INTERFACE "SHELL:-include ${CMAKE_SOURCE_DIR}/common/cuda/older_toolkit.h")
endif()
target_link_libraries(rg_options INTERFACE Threads::Threads)

# Mistakes with memory should end a process, not be of use to a peer (scripts/check-hardening). Compilers know the sizes of objects
# that _FORTIFY_SOURCE needs only if they optimise, and the sanitizers check more than it does.
include(CheckCCompilerFlag)
target_compile_options(rg_options INTERFACE -fstack-protector-strong)
foreach(flag stack-clash-protection cf-protection)
    check_c_compiler_flag(-f${flag} RG_HAVE_${flag})
    if(RG_HAVE_${flag})
        target_compile_options(rg_options INTERFACE -f${flag})
    endif()
endforeach()
if(RG_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(RG_FORTIFIED OFF)
else()
    set(RG_FORTIFIED ON)
    target_compile_options(rg_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
include(CheckLinkerFlag) # where it is missing, the maps alone hide what is in static archives
check_linker_flag(C -Wl,--exclude-libs,ALL RG_HAVE_EXCLUDE_LIBS)
target_link_options(rg_options INTERFACE -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack
                    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)

if(RG_WERROR)
    target_compile_options(rg_options INTERFACE -Werror)
endif()
if(RG_SANITIZE)
    target_compile_options(rg_options INTERFACE -fsanitize=${RG_SANITIZE} -fno-sanitize-recover=undefined)
    target_link_options(rg_options INTERFACE -fsanitize=${RG_SANITIZE})
    target_compile_definitions(rg_options INTERFACE RG_SANITIZED="${RG_SANITIZE}")
endif()

if(RG_FUZZ)
    target_compile_options(rg_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(RG_COVERAGE)
    target_compile_options(rg_options INTERFACE -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(rg_options INTERFACE -fprofile-instr-generate)
endif()

function(rg_component dir)
    if(NOT EXISTS ${CMAKE_SOURCE_DIR}/${dir}/CMakeLists.txt)
        return()
    endif()
    if(RG_COMPONENTS AND NOT dir IN_LIST RG_COMPONENTS)
        return()
    endif()
    add_subdirectory(${CMAKE_SOURCE_DIR}/${dir} ${ARGN})
endfunction()

function(rg_layer name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC rg_options ${ARG_DEPENDS})
endfunction()

function(rg_loadable name)
    cmake_parse_arguments(ARG "" "EXPORTS;OUTPUT_NAME;SUBDIR;SONAME" "SOURCES;DEPENDS" ${ARGN})
    add_library(${name} MODULE ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${ARG_DEPENDS})
    if(NOT ARG_OUTPUT_NAME)
        set(ARG_OUTPUT_NAME ${name}.so)
    endif()
    get_filename_component(out ${ARG_OUTPUT_NAME} NAME)
    set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${out}
                          LIBRARY_OUTPUT_DIRECTORY ${RG_STAGE_LIB}/${ARG_SUBDIR})
    target_link_options(${name} PRIVATE -Wl,--version-script=${ARG_EXPORTS} -Wl,-Bsymbolic
        $<$<BOOL:${RG_HAVE_EXCLUDE_LIBS}>:-Wl,--exclude-libs,ALL>)
    if(NOT RG_SANITIZE)
        target_link_options(${name} PRIVATE -Wl,-z,defs)
    endif()
    if(ARG_SONAME)
        target_link_options(${name} PRIVATE -Wl,-soname,${ARG_SONAME})
        # Some programs open libcuda.so, the name that is for linkers.
        string(REGEX REPLACE "[.]so[.][0-9]+$" ".so" short ${out})
        add_custom_command(TARGET ${name} POST_BUILD COMMAND ${CMAKE_COMMAND} -E create_symlink
                           ${out} ${RG_STAGE_LIB}/${ARG_SUBDIR}/${short})
        install(FILES ${RG_STAGE_LIB}/${ARG_SUBDIR}/${short} DESTINATION ${RG_LIBDIR}/${ARG_SUBDIR})
    endif()
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${ARG_EXPORTS})
    install(TARGETS ${name} LIBRARY DESTINATION ${RG_LIBDIR}/${ARG_SUBDIR})
endfunction()

function(rg_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${ARG_DEPENDS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${RG_STAGE_BIN})
    install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

function(rg_internal_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${ARG_DEPENDS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${RG_STAGE_LIB})
    install(TARGETS ${name} RUNTIME DESTINATION ${RG_LIBDIR})
endfunction()

# Sanitizer reports fail a test even where the runner's exit status would hide them.
set(RG_TEST_FAIL "ERROR: AddressSanitizer;ERROR: LeakSanitizer;WARNING: ThreadSanitizer;runtime error:")

function(rg_unit_test name)
    if(NOT RG_TESTS OR RG_SANITIZE MATCHES "thread")
        return()  # Criterion aborts at start under the thread sanitizer
    endif()
    cmake_parse_arguments(ARG "ALONE" "" "SOURCES;DEPENDS" ${ARGN})
    pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${ARG_DEPENDS} PkgConfig::CRITERION)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name} --jobs $<IF:$<BOOL:${ARG_ALONE}>,1,2>)
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "${RG_TEST_FAIL}" TIMEOUT 600)
endfunction()

function(rg_plain_test name)
    if(NOT RG_TESTS)
        return()
    endif()
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;ARGS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${ARG_DEPENDS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "${RG_TEST_FAIL}" TIMEOUT 600)
endfunction()

# A test that is a Python program beside the CMakeLists.txt, which gets the build folder and ARGS. With status 77 it is skipped.
function(rg_script_test name script)
    cmake_parse_arguments(ARG "" "TIMEOUT" "ARGS;LABELS;PROPERTIES" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300)
    endif()
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${CMAKE_BINARY_DIR} ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "${RG_TEST_FAIL}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
                         LABELS "${ARG_LABELS}" ${ARG_PROPERTIES})
endfunction()

# A program of the driver API for tests: it finds libcuda as any application does.
function(rg_cuda_test_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE rg_options ${RG_CUDA_STUB} ${ARG_DEPENDS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests SKIP_BUILD_RPATH ON)
endfunction()

# THREADS: its threads are used again (tests/fuzz/threads.c), where it makes some for each input. WAITS, too: no time passes where all of
# them wait (tests/fuzz/waits.h). FIBERS: with RG_FUZZ its threads are functions that take turns, instead of both (tests/fuzz/fibers.c).
# `COVERS`: the sources whose lines docs/fuzzing.md counts for it; scripts/fuzz finds them in fuzzers.txt.
function(rg_fuzzer name)
    cmake_parse_arguments(ARG "THREADS;WAITS;FIBERS" "" "SOURCES;DEPENDS;COVERS;DEFINES" ${ARGN})
    set(target fuzz_${name})
    add_executable(${target} ${ARG_SOURCES})
    target_link_libraries(${target} PRIVATE rg_options ${ARG_DEPENDS})
    target_compile_definitions(${target} PRIVATE ${ARG_DEFINES})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    if(ARG_FIBERS AND RG_FUZZ)
        target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/fibers.c)
        foreach(function pthread_create pthread_join pthread_detach pthread_setname_np pthread_mutex_lock pthread_mutex_unlock
                         pthread_cond_wait pthread_cond_timedwait pthread_cond_signal pthread_cond_broadcast clock_gettime nanosleep)
            target_link_options(${target} PRIVATE "LINKER:--wrap=${function}")
        endforeach()
        set(ARG_THREADS FALSE)
        set(ARG_WAITS FALSE)
    endif()
    if(ARG_THREADS)
        target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/threads.c)
        target_link_options(${target} PRIVATE "LINKER:--wrap=pthread_create,--wrap=pthread_join,--wrap=pthread_detach,--wrap=pthread_setname_np")
    endif()
    if(ARG_WAITS)
        target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/waits.c)
        target_link_options(${target} PRIVATE
            "LINKER:--wrap=pthread_cond_wait,--wrap=pthread_cond_timedwait,--wrap=pthread_cond_signal,--wrap=pthread_cond_broadcast,--wrap=clock_gettime")
    endif()
    string(REPLACE ";" "," covers "${ARG_COVERS}")
    file(APPEND ${CMAKE_BINARY_DIR}/fuzzers.txt "${name} ${covers}\n")
    if(RG_FUZZ)
        target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/blocks.c ${CMAKE_SOURCE_DIR}/tests/fuzz/compares.c)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer "LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=free")
        foreach(compare cmp1 cmp2 cmp4 cmp8 const_cmp1 const_cmp2 const_cmp4 const_cmp8)
            target_link_options(${target} PRIVATE "LINKER:--wrap=__sanitizer_cov_trace_${compare}")
        endforeach()
        return()
    endif()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
    add_test(NAME ${target} COMMAND ${target} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(${target} PROPERTIES FAIL_REGULAR_EXPRESSION "${RG_TEST_FAIL}" TIMEOUT 600)
endfunction()
