/* Which compute capability a process does best with. */
#include "common/cuda/capability.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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
