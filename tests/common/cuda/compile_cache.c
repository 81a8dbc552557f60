/* The driver's cache of compiled code, asked as NVRTC and nvJitLink ask. */
#include "common/cuda/compile_cache.h"
#include "common/cuda/ptx_carrier.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_75\n";
static const char bitcode[] = "BC\xc0\xde 1";
static const char other_bitcode[] = "BC\xc0\xde 2";

static struct rg_compile *begin(unsigned kind, const void *input, size_t size, const char *options,
                                unsigned architecture)
{
    struct rg_compile *compile;
    cr_assert_eq(rg_compile_begin(&compile, 130, kind, input, size, options, architecture), CUDA_SUCCESS);
    return compile;
}

/* Whether machine code is found, which then carries the text. */
static bool finds(const void *input, size_t size, const char *options, unsigned architecture,
                  bool relocatable)
{
    struct rg_compile *compile = begin(RG_COMPILE_BINARY, input, size, options, architecture);
    unsigned char *data = NULL;
    uint32_t n = 0;
    const bool found = rg_compile_find(compile, (void **)&data, &n) == CUDA_SUCCESS;
    if (found) {
        struct rg_ptx_carrier carrier;
        const char *text;
        size_t text_size;
        cr_assert(rg_ptx_carrier_open(&carrier, data, n) && rg_ptx_carrier_next(&carrier, &text, &text_size));
        cr_assert(text_size == strlen(ptx) && memcmp(text, ptx, text_size) == 0);
        cr_assert_eq(data[16], relocatable ? 1 : 2);
        free(data);
    }
    cr_assert_eq(rg_compile_end(compile), CUDA_SUCCESS);
    return found;
}

static void store_ptx(void)
{
    struct rg_compile *compile =
        begin(RG_COMPILE_PTX, bitcode, sizeof bitcode, " -arch=compute_90 -ftz=0", 90);
    void *data;
    uint32_t n;
    cr_assert_eq(rg_compile_find(compile, &data, &n), CUDA_ERROR_NOT_FOUND,
                 "PTX is never kept for its own sake");
    cr_assert_eq(rg_compile_store(compile, ptx, strlen(ptx)), CUDA_SUCCESS);
    rg_compile_end(compile);
}

Test(cache, devices_of_machine_code_have_none)
{
    struct rg_compile *compile = (struct rg_compile *)1;
    cr_assert_eq(rg_compile_begin(&compile, 0, RG_COMPILE_BINARY, ptx, sizeof ptx, "", 90),
                 CUDA_ERROR_NOT_SUPPORTED);
    cr_assert_null(compile);
}

Test(cache, architectures_above_the_device_have_none)
{
    struct rg_compile *compile;
    cr_assert_eq(rg_compile_begin(&compile, 120, RG_COMPILE_BINARY, ptx, sizeof ptx, "", 121),
                 CUDA_ERROR_NOT_SUPPORTED);
}

Test(cache, of_ptx)
{
    cr_assert(finds(ptx, sizeof ptx, " -arch=sm_120 -c", 120, true));
    cr_assert(finds(ptx, strlen(ptx), " -arch=sm_120 -c -c", 120, true), "without its NUL");
    cr_assert(finds(ptx, sizeof ptx, " -arch=sm_90 --compile-only", 90, true));
    cr_assert(finds(ptx, sizeof ptx, " -arch=sm_90 -cx x-c", 90, false));
    cr_assert(finds(ptx, sizeof ptx, NULL, 90, false));
}

Test(cache, of_intermediate_code)
{
    cr_assert_not(finds(bitcode, sizeof bitcode, " -arch=sm_90", 90, false));
    store_ptx();
    cr_assert(finds(bitcode, sizeof bitcode, " -arch=sm_90", 90, false));
    cr_assert_not(finds(bitcode, sizeof bitcode, " -arch=sm_100", 100, false),
                  "made for another architecture");
    cr_assert_not(finds(other_bitcode, sizeof other_bitcode, " -arch=sm_90", 90, false));
}

static void *ask_elsewhere(void *found)
{
    *(bool *)found = finds(bitcode, sizeof bitcode, " -arch=sm_90", 90, false);
    return NULL;
}

/* The options of both questions differ, so only the thread that compiled knows what belongs together. */
Test(cache, belongs_to_the_thread)
{
    pthread_t thread;
    bool found = true;
    store_ptx();
    pthread_create(&thread, NULL, ask_elsewhere, &found);
    pthread_join(thread, NULL);
    cr_assert_not(found);
}

Test(cache, finalised_code_is_not_kept)
{
    struct rg_compile *compile = begin(RG_COMPILE_FINALISED,
                                       "\x7f"
                                       "ELF...",
                                       7, "abdb", 120);
    void *data;
    uint32_t n;
    cr_assert_eq(rg_compile_find(compile, &data, &n), CUDA_ERROR_NOT_FOUND);
    cr_assert_eq(rg_compile_store(compile,
                                  "\x7f"
                                  "ELF",
                                  4),
                 CUDA_SUCCESS);
    cr_assert_eq(rg_compile_find(compile, &data, &n), CUDA_ERROR_NOT_FOUND);
    rg_compile_end(compile);
}

Test(cache, refuses_nonsense)
{
    struct rg_compile *compile;
    cr_assert_eq(rg_compile_begin(&compile, 130, RG_COMPILE_PTX, NULL, 1, "", 90), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(rg_compile_begin(&compile, 130, RG_COMPILE_PTX, ptx, 0, "", 90), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(rg_compile_begin(NULL, 130, RG_COMPILE_PTX, ptx, 1, "", 90), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(rg_compile_find(NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(rg_compile_store(NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}
