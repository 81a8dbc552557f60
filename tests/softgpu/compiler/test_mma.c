/*
 * test_mma.c - instructions on matrices: every shape of mma against a plain product, with fragments laid out by the
 * formulas of the PTX documentation; wmma in all layouts and spaces; ldmatrix, stmatrix, movmatrix; arithmetic at its
 * edges.
 */
#include "harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANES = 32, MAX = 64 * 32 };
enum element { F16, BF16, TF32, F32, F64, S8, U8, S4, U4, S32, B1 };
static const unsigned element_bits[] = {16, 16, 32, 32, 64, 8, 8, 4, 4, 32, 1};

/* --- values: small multiples of 1/4, that all formats hold and whose products and sums are exact --- */

static uint32_t seed = 1;
static uint32_t pick(uint32_t count)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % count;
}

static double random_value(enum element type)
{
    switch (type) {
    case S8:
        return (double)pick(256) - 128;
    case U8:
        return pick(256);
    case S4:
        return (double)pick(16) - 8;
    case U4:
        return pick(16);
    case B1:
        return pick(2);
    case S32:
        return (double)pick(100000) - 50000;
    default:
        return ((double)pick(33) - 16) / 4;
    }
}

/* Multiples of 1/16 below 128 have exact halves. */
static uint64_t half_bits(double value)
{
    if (value == 0)
        return 0;
    uint32_t bits = f32_bits((float)value);
    return (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - 0x38000000) >> 13;
}

static double half_value(uint32_t half)
{
    if ((half & 0x7fff) == 0)
        return 0;
    uint32_t bits = (half & 0x8000) << 16 | (((half & 0x7fff) << 13) + 0x38000000);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t encode(enum element type, double value)
{
    switch (type) {
    case F16:
        return half_bits(value);
    case BF16:
        return f32_bits((float)value) >> 16;
    case TF32:
    case F32:
        return f32_bits((float)value);
    case F64:
        return f64_bits(value);
    default:
        return (uint64_t)(int64_t)value & ((UINT64_C(1) << element_bits[type]) - 1);
    }
}

static double decode(enum element type, const void *memory, uint32_t index)
{
    switch (type) {
    case F16:
        return half_value(((const uint16_t *)memory)[index]);
    case F32:
        return (double)((const float *)memory)[index];
    case F64:
        return ((const double *)memory)[index];
    default:
        return ((const int32_t *)memory)[index];
    }
}

/* Element `index` of packed memory. */
static void store(unsigned char *memory, enum element type, uint32_t index, double value)
{
    unsigned bits = element_bits[type];
    uint64_t code = encode(type, value);
    if (bits >= 8)
        memcpy(memory + (size_t)index * bits / 8, &code, bits / 8);
    else
        memory[index * bits / 8] |= (unsigned char)(code << index * bits % 8);
}

/* --- mma: where the documentation has each element --- */

struct place {
    uint32_t row, column;
};

/* Of lane g = lane / 4, t = lane % 4, element i. */
#define PLACE(name, row_of, column_of)                                                                       \
    static struct place name(uint32_t g, uint32_t t, uint32_t i)                                             \
    {                                                                                                        \
        (void)t;                                                                                             \
        (void)i;                                                                                             \
        return (struct place){(row_of), (column_of)};                                                        \
    }
#define IN2(high, low2, high2) (i < (high) || (i >= (low2) && i < (high2)))

PLACE(a_half_8, i < 2 ? g : g + 8, t * 2 + (i & 1))
PLACE(a_half_16, IN2(2, 4, 6) ? g : g + 8, t * 2 + (i & 1) + (i >= 4 ? 8 : 0))
PLACE(a_tf32_4, i == 0 ? g : g + 8, t)
PLACE(a_tf32_8, i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4)
PLACE(a_f64_8x4, g, t)
PLACE(a_f64_16, i % 2 == 0 ? g : g + 8, i % 2 == 0 ? i * 2 + t : i * 2 - 2 + t)
PLACE(a_byte_8x16, g, t * 4 + i)
PLACE(a_byte_16x16, i < 4 ? g : g + 8, t * 4 + (i & 3))
PLACE(a_byte_16x32, IN2(4, 8, 12) ? g : g + 8, t * 4 + (i & 3) + (i >= 8 ? 16 : 0))
PLACE(a_nibble_8x32, g, t * 8 + (i & 7))
PLACE(a_nibble_16x32, i < 8 ? g : g + 8, t * 8 + (i & 7))
PLACE(a_nibble_16x64, IN2(8, 16, 24) ? g : g + 8, t * 8 + (i & 7) + (i >= 16 ? 32 : 0))
PLACE(a_bit_8x128, g, t * 32 + i)
PLACE(a_bit_16x128, i < 32 ? g : g + 8, t * 32 + (i & 31))
PLACE(a_bit_16x256, IN2(32, 64, 96) ? g : g + 8, t * 32 + (i & 31) + (i >= 64 ? 128 : 0))
PLACE(b_half_8, t * 2 + i, g)
PLACE(b_half_16, t * 2 + (i & 1) + (i >= 2 ? 8 : 0), g)
PLACE(b_word, t + 4 * i, g)
PLACE(b_byte_16, t * 4 + i, g)
PLACE(b_byte_32, t * 4 + (i & 3) + (i >= 4 ? 16 : 0), g)
PLACE(b_nibble_32, t * 8 + (i & 7), g)
PLACE(b_nibble_64, t * 8 + (i & 7) + (i >= 8 ? 32 : 0), g)
PLACE(b_bit_128, t * 32 + i, g)
PLACE(b_bit_256, t * 32 + (i & 31) + (i >= 32 ? 128 : 0), g)
PLACE(c_8, g, t * 2 + i)
PLACE(c_16, i < 2 ? g : g + 8, t * 2 + (i & 1))

struct mma_case {
    const char *name;
    uint32_t m, k;
    enum element a, b, c, d;
    struct place (*a_place)(uint32_t, uint32_t, uint32_t);
    struct place (*b_place)(uint32_t, uint32_t, uint32_t);
};

static const struct mma_case mma_cases[] = {
    {"m8n8k4.row.col.f64.f64.f64.f64", 8, 4, F64, F64, F64, F64, a_f64_8x4, b_word},
    {"m16n8k4.row.col.f64.f64.f64.f64", 16, 4, F64, F64, F64, F64, a_f64_16, b_word},
    {"m16n8k8.row.col.f64.f64.f64.f64", 16, 8, F64, F64, F64, F64, a_f64_16, b_word},
    {"m16n8k16.row.col.f64.f64.f64.f64", 16, 16, F64, F64, F64, F64, a_f64_16, b_word},
    {"m16n8k8.row.col.f16.f16.f16.f16", 16, 8, F16, F16, F16, F16, a_half_8, b_half_8},
    {"m16n8k8.row.col.f32.f16.f16.f32", 16, 8, F16, F16, F32, F32, a_half_8, b_half_8},
    {"m16n8k8.row.col.f32.bf16.bf16.f32", 16, 8, BF16, BF16, F32, F32, a_half_8, b_half_8},
    {"m16n8k16.row.col.f16.f16.f16.f16", 16, 16, F16, F16, F16, F16, a_half_16, b_half_16},
    {"m16n8k16.row.col.f32.f16.f16.f16", 16, 16, F16, F16, F16, F32, a_half_16, b_half_16},
    {"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, F16, F16, F32, F32, a_half_16, b_half_16},
    {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, BF16, BF16, F32, F32, a_half_16, b_half_16},
    {"m16n8k4.row.col.f32.tf32.tf32.f32", 16, 4, TF32, TF32, F32, F32, a_tf32_4, b_word},
    {"m16n8k8.row.col.f32.tf32.tf32.f32", 16, 8, TF32, TF32, F32, F32, a_tf32_8, b_word},
    {"m8n8k16.row.col.s32.s8.s8.s32", 8, 16, S8, S8, S32, S32, a_byte_8x16, b_byte_16},
    {"m16n8k16.row.col.s32.s8.u8.s32", 16, 16, S8, U8, S32, S32, a_byte_16x16, b_byte_16},
    {"m16n8k16.row.col.satfinite.s32.u8.s8.s32", 16, 16, U8, S8, S32, S32, a_byte_16x16, b_byte_16},
    {"m16n8k32.row.col.s32.s8.s8.s32", 16, 32, S8, S8, S32, S32, a_byte_16x32, b_byte_32},
    {"m16n8k32.row.col.s32.u8.u8.s32", 16, 32, U8, U8, S32, S32, a_byte_16x32, b_byte_32},
    {"m8n8k32.row.col.s32.s4.s4.s32", 8, 32, S4, S4, S32, S32, a_nibble_8x32, b_nibble_32},
    {"m16n8k32.row.col.s32.u4.s4.s32", 16, 32, U4, S4, S32, S32, a_nibble_16x32, b_nibble_32},
    {"m16n8k64.row.col.s32.s4.u4.s32", 16, 64, S4, U4, S32, S32, a_nibble_16x64, b_nibble_64},
    {"m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 8, 128, B1, B1, S32, S32, a_bit_8x128, b_bit_128},
    {"m16n8k128.row.col.s32.b1.b1.s32.and.popc", 16, 128, B1, B1, S32, S32, a_bit_16x128, b_bit_128},
    {"m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 16, 256, B1, B1, S32, S32, a_bit_16x256, b_bit_256},
};

static double a_matrix[32][256], b_matrix[256][32], c_matrix[32][32], d_matrix[32][32];

static void make_matrices(uint32_t m, uint32_t n, uint32_t k, enum element a, enum element b, enum element c,
                          bool xor)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t l = 0; l < k; l++)
            a_matrix[i][l] = random_value(a);
    for (uint32_t l = 0; l < k; l++)
        for (uint32_t j = 0; j < n; j++)
            b_matrix[l][j] = random_value(b);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            d_matrix[i][j] = c_matrix[i][j] = random_value(c);
            for (uint32_t l = 0; l < k; l++)
                d_matrix[i][j] += xor? a_matrix[i][l] != b_matrix[l][j] : a_matrix[i][l] * b_matrix[l][j];
        }
}

static uint32_t registers_of(uint32_t elements, enum element type)
{
    return type == F64 ? elements / LANES : elements / LANES * element_bits[type] / 32;
}

/* A kernel that loads every lane's registers, does the instruction, and stores the result. */
static int fragment_text(char *text, const char *name, const uint32_t counts[4], const enum element types[4])
{
    static const char *const letters = "abcd";
    int at = sprintf(text, ".entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
                           ".reg .b64 %%x<5>; .reg .b32 %%l;\n");
    for (int i = 0; i < 4; i++) {
        const char *type = types[i] == F64 ? "f64" : types[i] == F32 ? "f32" : "b32";
        at += sprintf(text + at,
                      ".reg .%s %%%c<16>; ld.param.u64 %%x%d, [p%c]; mov.u32 %%l, %%laneid;\n"
                      "mad.wide.u32 %%x%d, %%l, %u, %%x%d;\n",
                      type, letters[i], i, letters[i], i, counts[i] * (types[i] == F64 ? 8 : 4), i);
        for (uint32_t r = 0; r < counts[i] && i < 3; r++)
            at += sprintf(text + at, "ld.global.%s %%%c%u, [%%x%d+%u];\n", type, letters[i], r, i,
                          r * (types[i] == F64 ? 8 : 4));
    }
    at += sprintf(text + at, "mma.sync.aligned.%s ", name);
    static const int order[] = {3, 0, 1, 2};
    for (int i = 0; i < 4; i++) {
        for (uint32_t r = 0; r < counts[order[i]]; r++)
            at += sprintf(text + at, "%s%%%c%u", r == 0 ? "{" : ",", letters[order[i]], r);
        at += sprintf(text + at, i < 3 ? "}, " : "};\n");
    }
    for (uint32_t r = 0; r < counts[3]; r++)
        at += sprintf(text + at, "st.global.%s [%%x3+%u], %%d%u;\n",
                      types[3] == F64   ? "f64"
                      : types[3] == F32 ? "f32"
                                        : "b32",
                      r * (types[3] == F64 ? 8 : 4), r);
    return at + sprintf(text + at, "ret;\n}\n");
}

static void run_mma(const struct mma_case *test)
{
    static unsigned char fragments[4][LANES * 64];
    const enum element types[4] = {test->a, test->b, test->c, test->d};
    const uint32_t elements[4] = {test->m * test->k, test->k * 8, test->m * 8, test->m * 8};
    uint32_t counts[4];
    char text[8192];
    for (int i = 0; i < 4; i++)
        counts[i] = registers_of(elements[i], types[i]);
    make_matrices(test->m, 8, test->k, test->a, test->b, test->c, strstr(test->name, "xor") != NULL);
    memset(fragments, 0, sizeof(fragments));
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < elements[0] / LANES; i++) {
            struct place place = test->a_place(g, t, i);
            store(fragments[0], test->a, lane * elements[0] / LANES + i, a_matrix[place.row][place.column]);
        }
        for (uint32_t i = 0; i < elements[1] / LANES; i++) {
            struct place place = test->b_place(g, t, i);
            store(fragments[1], test->b, lane * elements[1] / LANES + i, b_matrix[place.row][place.column]);
        }
        for (uint32_t i = 0; i < elements[2] / LANES; i++) {
            struct place place = test->m == 8 ? c_8(g, t, i) : c_16(g, t, i);
            store(fragments[2], test->c, lane * elements[2] / LANES + i, c_matrix[place.row][place.column]);
        }
    }
    fragment_text(text, test->name, counts, types);
    struct sg_program *program = program_of(text);
    const void *params[4] = {fragments[0], fragments[1], fragments[2], fragments[3]};
    cr_assert_eq(run_grid(program, 1, LANES, params), 0);
    free_program(program);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < elements[3] / LANES; i++) {
            struct place place = test->m == 8 ? c_8(lane / 4, lane % 4, i) : c_16(lane / 4, lane % 4, i);
            double got = decode(test->d, fragments[3], lane * elements[3] / LANES + i);
            cr_assert_eq(got, d_matrix[place.row][place.column],
                         "%s: lane %u element %u (%u, %u): %g, not %g", test->name, lane, i, place.row,
                         place.column, got, d_matrix[place.row][place.column]);
        }
}

Test(mma, every_shape)
{
    for (size_t i = 0; i < sizeof(mma_cases) / sizeof(mma_cases[0]); i++)
        run_mma(&mma_cases[i]);
}
