/* The fat binaries of this test's own file: which are found, and that a file with too many is left alone. */
#include "common/cuda/program/own_images.h"

#include "common/cuda/image.h"

#include <criterion/criterion.h>

struct container {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    char bytes[64];
};
static const struct container first = {RG_CUDA_CONTAINER_MAGIC, 1, 16, 64, ""},
                              second = {RG_CUDA_CONTAINER_MAGIC, 1, 16, 32, ""},
                              cut = {RG_CUDA_CONTAINER_MAGIC, 1, 16, 1ull << 40, ""},
                              none = {0, 1, 16, 64, ""};
static const void *const linked[] = {&second, NULL};

/* As compilers put them there; those behind the first two and the last cannot be taken. */
static struct rg_cuda_wrapper wrappers[] __attribute__((section(".nvFatBinSegment"), used)) = {
    {RG_CUDA_WRAPPER_MAGIC, 1, &first, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 2, &second, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 1, &cut, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 1, &none, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 1, (const void *)24, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 2, &first, linked},
    {RG_CUDA_WRAPPER_MAGIC, 3, &first, NULL},
    {0, 1, &first, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 1, NULL, NULL},
    {RG_CUDA_WRAPPER_MAGIC, 1, &first, NULL},
};

struct taken {
    unsigned n;
    const void *at[16];
};

static void take(void *user, const void *wrapper)
{
    struct taken *taken = user;
    cr_assert_lt(taken->n, 16);
    taken->at[taken->n++] = wrapper;
}

static unsigned count(unsigned images, uint64_t image_bytes, uint64_t bytes)
{
    struct taken taken = {0};
    rg_own_images(&(struct rg_own_images_limits){images, image_bytes, bytes, .program = false}, take, &taken);
    return taken.n;
}

Test(own_images, found)
{
    struct taken taken = {0};
    rg_own_images(&(struct rg_own_images_limits){100, 1000, 1000, .program = true}, take, &taken);
    cr_assert_eq(taken.n, 3, "%u", taken.n);
    cr_expect(taken.at[0] == &wrappers[0] && taken.at[1] == &wrappers[1] && taken.at[2] == &wrappers[9]);
}

Test(own_images, all_of_a_file_or_none)
{
    cr_expect_eq(count(3, 80, 80 + 48 + 80), 3, "exactly what is allowed");
    cr_expect_eq(count(2, 1000, 1000), 0, "too many");
    cr_expect_eq(count(100, 79, 1000), 0, "one is too large");
    cr_expect_eq(count(100, 1000, 80 + 48 + 79), 0, "all are too large");
}
