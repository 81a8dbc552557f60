/*
 * tensor_cores.c - what nvcc makes of tensor cores in CUDA C++, against plain products. Needs nvcc.
 */
#include "softgpu/exec/exec.h"
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { HALF, BFLOAT, SINGLE, SIGNED, UNSIGNED, DOUBLE, INTEGER };

static const struct {
    const char *name;
    uint32_t m, n, k;
    enum kind factor, sum;
} cases[] = {
    {"half_16_16", 16, 16, 16, HALF, SINGLE},
    {"half_32_8", 32, 8, 16, HALF, SINGLE},
    {"half_8_32", 8, 32, 16, HALF, SINGLE},
    {"bfloat_16_16", 16, 16, 16, BFLOAT, SINGLE},
    {"bfloat_32_8", 32, 8, 16, BFLOAT, SINGLE},
    {"bfloat_8_32", 8, 32, 16, BFLOAT, SINGLE},
    {"tf32_16_16", 16, 16, 8, SINGLE, SINGLE},
    {"signed_16_16", 16, 16, 16, SIGNED, INTEGER},
    {"unsigned_32_8", 32, 8, 16, UNSIGNED, INTEGER},
    {"signed_8_32", 8, 32, 16, SIGNED, INTEGER},
    {"double_8_8", 8, 8, 4, DOUBLE, DOUBLE},
    {"half_sum", 16, 16, 16, HALF, HALF},
    {"by_hand", 16, 8, 16, HALF, SINGLE},
};

/*
 * Small multiples of 1/4 (whole numbers where there are only those): every format holds them and their sums.
 */
static double value_of(uint32_t i, enum kind kind)
{
    int32_t whole = (int32_t)((i * 2654435761u >> 16) % 17) - 8;
    switch (kind) {
    case SIGNED:
    case INTEGER:
        return whole * 13;
    case UNSIGNED:
        return (whole + 8) * 15;
    default:
        return whole / 4.0;
    }
}

static void put(void *memory, uint32_t i, enum kind kind, double value)
{
    uint32_t bits = f32_bits((float)value);
    switch (kind) {
    case HALF:
        ((uint16_t *)memory)[i] =
            value == 0 ? 0 : (uint16_t)((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - 0x38000000) >> 13);
        break;
    case BFLOAT:
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
        break;
    case SINGLE:
        ((float *)memory)[i] = (float)value;
        break;
    case SIGNED:
        ((int8_t *)memory)[i] = (int8_t)value;
        break;
    case UNSIGNED:
        ((uint8_t *)memory)[i] = (uint8_t)value;
        break;
    case DOUBLE:
        ((double *)memory)[i] = value;
        break;
    case INTEGER:
        ((int32_t *)memory)[i] = (int32_t)value;
        break;
    }
}

static const uint32_t kind_bytes[] = {2, 2, 4, 1, 1, 8, 4};

static void launch(struct sg_program *program, const char *name, enum sg_code_form form, uint32_t threads,
                   const void *params)
{
    const size_t index = kernel_index(program, name);
    cr_assert_eq(sg_program_kernel(program, index)->form, form, "%s", name);
    cr_assert_eq(
        run_kernel(program, index, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){threads, 1, 1}, params, NULL), 0,
        "%s", name);
}

static void run_all(enum sg_code_form form)
{
    static double a[512], b[512], c[512], expected[512];
    static _Alignas(32) unsigned char memory[5][4096]; /* d, a, b, c, what d should be */
    struct sg_program *program = program_of_file(TENSOR_CORES_PTX);
    for (size_t test = 0; test < sizeof(cases) / sizeof(cases[0]); test++) {
        uint32_t m = cases[test].m, n = cases[test].n, k = cases[test].k;
        enum kind factor = cases[test].factor, sum = cases[test].sum;
        for (uint32_t i = 0; i < m * k; i++)
            put(memory[1], i, factor, a[i] = value_of(i + 1, factor));
        for (uint32_t i = 0; i < n * k; i++)
            put(memory[2], i, factor, b[i] = value_of(i + 1000, factor));
        for (uint32_t i = 0; i < m * n; i++) {
            put(memory[3], i, sum, c[i] = value_of(i + 2000, sum));
            expected[i] = c[i];
            for (uint32_t l = 0; l < k; l++)
                expected[i] += a[i / n * k + l] * b[i % n * k + l];
            put(memory[4], i, sum, expected[i]);
        }
        memset(memory[0], 0x55, sizeof(memory[0]));
        const void *params[4] = {memory[0], memory[1], memory[2], memory[3]};
        launch(program, cases[test].name, form, 32, params);
        for (uint32_t i = 0; i < m * n; i++)
            cr_assert_eq(
                memcmp(memory[0] + i * kind_bytes[sum], memory[4] + i * kind_bytes[sum], kind_bytes[sum]), 0,
                "%s: element (%u, %u) is not %g", cases[test].name, i / n, i % n, expected[i]);
    }
    free_program(program);
}

/* --- products by several warps: the same bits in both forms --- */

#define DEPTH 96

static const struct {
    const char *name;
    uint32_t m, n; /* of a fragment: the block computes 2 by 4 of them */
    enum kind factor, sum;
} products[] = {
    {"half_product", 16, 16, HALF, SINGLE},      {"half_half_product", 32, 8, HALF, HALF},
    {"bfloat_product", 8, 32, BFLOAT, SINGLE},   {"tf32_product", 16, 16, SINGLE, SINGLE},
    {"signed_product", 16, 16, SIGNED, INTEGER}, {"double_product", 8, 8, DOUBLE, DOUBLE},
};

/* Numbers with all their digits, most of them small. */
static void put_rough(void *memory, uint32_t i, enum kind kind)
{
    uint32_t bits = (i + 1) * 2654435761u ^ (i * 40503u) << 7;
    if (kind == HALF)
        ((uint16_t *)memory)[i] = (uint16_t)((bits & 0x8fff) | 0x2000);
    else if (kind == BFLOAT)
        ((uint16_t *)memory)[i] = (uint16_t)((bits & 0x807f) | 0x3e80);
    else if (kind == SINGLE)
        ((uint32_t *)memory)[i] = (bits & 0x80ffffff) | 0x3e000000;
    else if (kind == DOUBLE)
        ((uint64_t *)memory)[i] = ((uint64_t)bits << 20 & 0x801fffffffffffff) | 0x3fb0000000000000;
    else if (kind == INTEGER)
        ((uint32_t *)memory)[i] = bits >> 8;
    else
        ((uint8_t *)memory)[i] = (uint8_t)bits;
}

Test(cuda, products_in_both_forms)
{
    static _Alignas(32) unsigned char d[2][16384], a[65536], b[131072], c[16384];
    for (size_t test = 0; test < sizeof(products) / sizeof(products[0]); test++) {
        uint32_t m = 2 * products[test].m, n = 4 * products[test].n, size = kind_bytes[products[test].sum];
        for (uint32_t i = 0; i < m * DEPTH; i++)
            put_rough(a, i, products[test].factor);
        for (uint32_t i = 0; i < n * DEPTH; i++)
            put_rough(b, i + 7, products[test].factor);
        for (uint32_t i = 0; i < m * n; i++)
            put_rough(c, i, products[test].sum);
        for (uint32_t form = 0; form < 2; form++) {
            struct {
                const void *pointers[4];
                int32_t depth;
            } params = {{d[form], a, b, c}, DEPTH};
            if (form == 0)
                unsetenv("SOFTGPU_OPT");
            else
                setenv("SOFTGPU_OPT", "-loops", 1);
            struct sg_program *program = program_of_file(TENSOR_CORES_PTX);
            memset(d[form], 0x55, sizeof(d[form]));
            launch(program, products[test].name, form == 0 ? SG_CODE_LOOPS : SG_CODE_THREAD, 64, &params);
            free_program(program);
        }
        for (uint32_t i = 0; i < m * n; i++)
            cr_assert_eq(memcmp(d[0] + (size_t)i * size, d[1] + (size_t)i * size, size), 0, "%s: element %u",
                         products[test].name, i);
        cr_assert_neq(memcmp(d[0], d[0] + (size_t)m * n * size / 2, 64), 0, "%s", products[test].name);
    }
}

Test(cuda, tensor_cores_in_loops)
{
    run_all(SG_CODE_LOOPS);
}

Test(cuda, tensor_cores_with_stacks)
{
    setenv("SOFTGPU_OPT", "-loops", 1);
    run_all(SG_CODE_THREAD);
}
