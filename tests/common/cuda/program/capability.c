/* Which compute capability a process does best with. */
#include "common/cuda/program/capability.h"

#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/image.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(capability, parse)
{
    cr_assert_eq(rg_capability_parse("12.1"), 121);
    cr_assert_eq(rg_capability_parse("9.0"), 90);
    cr_assert_eq(rg_capability_parse("12.1a"), 0);
    cr_assert_eq(rg_capability_parse("12"), 0);
    cr_assert_eq(rg_capability_parse(""), 0);
    cr_assert_eq(rg_capability_parse(NULL), 0);
}

Test(capability, of_objects)
{
    cr_assert_eq(rg_capability_of_objects(OBJECTS("", "/lib/libc.so.6", "/opt/libcublas.so.13")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/numba_cuda/numba/cuda/cext/_dispatcher.so")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/numba/cuda/cudadrv/_extras.so", "/v/libcublas.so.12")),
                 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/warp/bin/warp.so", "/v/libcublas.so.12")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/llvmlite/binding/libllvmlite.so")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/triton/_C/libtriton.so")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/triton/_C/libtriton.so", "/v/libcublas.so.13")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/torch/lib/libtorch_cuda.so", "/v/libcublas.so.13")),
                 121);
    cr_assert_eq(
        rg_capability_of_objects(OBJECTS("/v/cupy/_core/core.so", "/v/libcublas.so.13", "/v/libcuvs.so")),
        121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/cuda/bindings/_internal/nvrtc.cpython.so")), 121);
    cr_assert_eq(rg_capability_of_objects(
                     OBJECTS("/v/cuda/bindings/_internal/nvrtc.cpython.so", "/v/cupy/_core/core.so")),
                 0);
}

Test(capability, of_objects_with_nvrtc)
{
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libnvrtc.so.13")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libnvrtc-builtins.so.13.0")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libnvrtc.so.12", "/v/libcufft.so.11")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libcurand.so.10", "/v/libnvrtc.so.12")), 121);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libnvrtc.so.12", "/v/libcublas.so.12")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libnvrtc.so.12", "/v/cupy/_core/core.so")), 0);
    cr_assert_eq(rg_capability_of_objects(OBJECTS("/v/libcufft.so.11")), 0);
}

/* A container of entries without contents: kind, architecture, flags. */
static const void *container(const uint32_t (*entries)[3], size_t n)
{
    unsigned char *bytes = calloc(1, RG_CUDA_CONTAINER_SIZE + n * 64),
                  *entry = bytes + RG_CUDA_CONTAINER_SIZE;
    cr_assert(bytes);
    memcpy(bytes, &(uint32_t){RG_CUDA_CONTAINER_MAGIC}, 4);
    memcpy(bytes + 4, (uint16_t[]){1, RG_CUDA_CONTAINER_SIZE}, 4);
    memcpy(bytes + 8, &(uint64_t){n * 64}, 8);
    for (size_t i = 0; i < n; i++, entry += 64) {
        memcpy(entry, (uint16_t[]){(uint16_t)entries[i][0], 0x101}, 4);
        memcpy(entry + 4, &(uint32_t){64}, 4);
        memcpy(entry + 0x1c, &entries[i][1], 4);
        memcpy(entry + 0x28, &(uint64_t){entries[i][2]}, 8);
    }
    return bytes;
}

#define CONTAINER(...)                                                                                       \
    container((const uint32_t[][3]){__VA_ARGS__}, sizeof((uint32_t[][3]){__VA_ARGS__}) / sizeof(uint32_t[3]))
#define ANY(architecture)                                                                                    \
    {                                                                                                        \
        RG_FATBIN_PTX, architecture, 0                                                                       \
    }
#define ONLY(architecture)                                                                                   \
    {                                                                                                        \
        RG_FATBIN_PTX, architecture, RG_FATBIN_FLAG_ARCH                                                     \
    }
#define FAMILY(architecture)                                                                                 \
    {                                                                                                        \
        RG_FATBIN_PTX, architecture, RG_FATBIN_FLAG_FAMILY                                                   \
    }
#define CODE(architecture)                                                                                   \
    {                                                                                                        \
        RG_FATBIN_ELF, architecture, RG_FATBIN_FLAG_ARCH                                                     \
    }

static unsigned of_images(const void *first, const void *second)
{
    const unsigned wanted = rg_capability_of_images((const void *[]){first, second}, second ? 2 : 1);
    free((void *)first);
    free((void *)second);
    return wanted;
}

Test(capability, of_images)
{
    cr_expect_eq(rg_capability_of_images(NULL, 0), 0);
    cr_expect_eq(of_images(CONTAINER(ANY(75), ONLY(90)), NULL), 0, "there is something for all");
    cr_expect_eq(of_images(CONTAINER(CODE(90), ONLY(90)), NULL), 90);
    cr_expect_eq(of_images(CONTAINER(ONLY(120), ONLY(100), ONLY(90)), NULL), 90, "the lowest");
    cr_expect_eq(of_images(CONTAINER(FAMILY(100)), NULL), 100);
    cr_expect_eq(of_images(CONTAINER(ANY(75)), CONTAINER(ONLY(90))), 90);
    cr_expect_eq(of_images(CONTAINER(ONLY(90)), CONTAINER(ANY(100))), 0, "nothing is for both");
    cr_expect_eq(of_images(CONTAINER(ONLY(90), ONLY(100)), CONTAINER(ANY(100))), 100);
    cr_expect_eq(of_images(CONTAINER(ONLY(90)), CONTAINER(CODE(100))), 90,
                 "what is machine code runs nowhere");
    cr_expect_eq(of_images(CONTAINER(CODE(90)), NULL), 0);
    cr_expect_eq(of_images(strdup("no container"), NULL), 0);
}

Test(capability, the_user_decides)
{
    setenv("SOFTGPU_CC", "8.6", 1);
    cr_assert_eq(rg_capability_wanted(), 86);
    unsetenv("SOFTGPU_CC");
    cr_assert_eq(rg_capability_wanted(), 0);
}

/* Nobody is told another one than the user's, or than that of a device that was not chosen for this process. */
Test(capability, told)
{
    cr_assert_eq(rg_capability_told(rg_capability_told, 121), 121);
    cr_assert_eq(rg_capability_told(NULL, 130), 130);
    setenv("SOFTGPU_CC", "12.1", 1);
    cr_assert_eq(rg_capability_wanted(), 121);
    cr_assert_eq(rg_capability_told(rg_capability_told, 121), 121);
}
