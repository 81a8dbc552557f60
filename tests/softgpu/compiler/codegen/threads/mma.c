/*
 * mma.c - instructions on matrices: every shape of mma against a plain product, with fragments laid out by
 * the formulas of the PTX documentation; wmma in all layouts and spaces; ldmatrix, stmatrix, movmatrix;
 * arithmetic at its edges.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANES = 32, MAX = 64 * 32 };
enum element { F16, BF16, TF32, F32, F64, S8, U8, S4, U4, S32, B1, E4M3, E5M2, E2M1, E2M3, E3M2 };
static const unsigned element_bits[] = {16, 16, 32, 32, 64, 8, 8, 4, 4, 32, 1, 8, 8, 8, 8, 8};

/* --- values: small multiples of 1/4, that all formats hold and whose products and sums are exact --- */

static uint32_t seed = 1;
static uint32_t pick(uint32_t count)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % count;
}

/* What the formats of 8 bits and fewer mean, by their definition. */
static double narrow_value(enum element type, uint32_t code)
{
    int exponent_bits = type == E5M2 ? 5 : type == E4M3 ? 4 : type == E3M2 ? 3 : 2;
    int mantissa_bits = type == E5M2 ? 2 : type == E4M3 ? 3 : type == E3M2 ? 2 : type == E2M3 ? 3 : 1;
    int bias = (1 << (exponent_bits - 1)) - 1,
        exponent = (int)(code >> mantissa_bits & ((1u << exponent_bits) - 1));
    double mantissa = (code & ((1u << mantissa_bits) - 1)) / (double)(1 << mantissa_bits);
    double value = exponent == 0 ? ldexp(mantissa, 1 - bias) : ldexp(1 + mantissa, exponent - bias);
    return (code >> (exponent_bits + mantissa_bits) & 1) != 0 ? -value : value;
}

static unsigned narrow_bits(enum element type)
{
    return type == E2M1 ? 4 : type == E2M3 || type == E3M2 ? 6 : 8;
}

static double random_value(enum element type)
{
    double value;
    if (type >= E4M3) { /* of which sums are exact in float, too */
        do
            value = narrow_value(type, pick(1u << narrow_bits(type)));
        while (value != 0 && (fabs(value) < 0.03 || fabs(value) > 16));
        return value;
    }
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
    case E4M3:
    case E5M2:
    case E2M1:
    case E2M3:
    case E3M2:
        for (uint32_t code = 0; code < 1u << narrow_bits(type); code++)
            if (narrow_value(type, code) == value)
                return type == E2M1 ? code << 2 : code;
        return 0;
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
    {"m16n8k32.row.col.f32.e4m3.e4m3.f32", 16, 32, E4M3, E4M3, F32, F32, a_byte_16x32, b_byte_32},
    {"m16n8k32.row.col.f32.e5m2.e4m3.f32", 16, 32, E5M2, E4M3, F32, F32, a_byte_16x32, b_byte_32},
    {"m16n8k16.row.col.f32.e4m3.e5m2.f32", 16, 16, E4M3, E5M2, F32, F32, a_byte_16x16, b_byte_16},
    {"m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", 16, 32, E2M1, E3M2, F32, F32, a_byte_16x32,
     b_byte_32},
    {"m16n8k32.row.col.kind::f8f6f4.f32.e2m3.e2m1.f32", 16, 32, E2M3, E2M1, F32, F32, a_byte_16x32,
     b_byte_32},
    {"m16n8k32.row.col.kind::f8f6f4.f32.e5m2.e2m3.f32", 16, 32, E5M2, E2M3, F32, F32, a_byte_16x32,
     b_byte_32},
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
    run_grid_of(text, 1, LANES, PARAMS(fragments[0], fragments[1], fragments[2], fragments[3]));
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

/* --- m8n8k4 of f16: four products at once, in the layouts that PTX documents for it --- */

static void run_volta(bool a_columns, bool b_rows, enum element c, enum element d)
{
    static unsigned char fragments[4][LANES * 64];
    static double a[4][8][4], b[4][4][8], sum[4][8][8];
    const enum element types[4] = {F16, F16, c, d};
    const uint32_t counts[4] = {2, 2, c == F16 ? 4 : 8, d == F16 ? 4 : 8};
    char text[8192], name[64];
    memset(fragments, 0, sizeof(fragments));
    for (int q = 0; q < 4; q++) {
        for (int i = 0; i < 32; i++) {
            a[q][i / 4][i % 4] = random_value(F16);
            b[q][i / 8][i % 8] = random_value(F16);
        }
        for (int i = 0; i < 64; i++)
            sum[q][i / 8][i % 8] = random_value(c);
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t q = lane % 16 / 4, low = lane % 4, upper = lane < 16 ? 0 : 4;
        for (uint32_t i = 0; i < 4; i++) {
            store(fragments[0], F16, lane * 4 + i, a_columns ? a[q][i + upper][low] : a[q][low + upper][i]);
            store(fragments[1], F16, lane * 4 + i, b_rows ? b[q][low][i + upper] : b[q][i][low + upper]);
        }
        for (uint32_t i = 0; i < 8; i++)
            store(fragments[2], c, lane * 8 + i,
                  c == F16 ? sum[q][low + upper][i]
                           : sum[q][(lane & 1) + (i & 2) + upper][(i & 4) + (lane & 2) + (i & 1)]);
    }
    snprintf(name, sizeof(name), "m8n8k4.%s.%s.%s.f16.f16.%s", a_columns ? "col" : "row",
             b_rows ? "row" : "col", d == F16 ? "f16" : "f32", c == F16 ? "f16" : "f32");
    fragment_text(text, name, counts, types);
    run_grid_of(text, 1, LANES, PARAMS(fragments[0], fragments[1], fragments[2], fragments[3]));
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t q = lane % 16 / 4, upper = lane < 16 ? 0 : 4;
            uint32_t row = d == F16 ? lane % 4 + upper : (lane & 1) + (i & 2) + upper;
            uint32_t column = d == F16 ? i : (i & 4) + (lane & 2) + (i & 1);
            double expected = sum[q][row][column];
            for (int l = 0; l < 4; l++)
                expected += a[q][row][l] * b[q][l][column];
            double got = decode(d, fragments[3], lane * 8 + i);
            cr_assert_eq(got, expected, "%s: lane %u element %u: %g, not %g", name, lane, i, got, expected);
        }
}

Test(mma, quarters)
{
    for (int layouts = 0; layouts < 4; layouts++) {
        run_volta((layouts & 1) != 0, (layouts & 2) != 0, F32, F32);
        run_volta((layouts & 1) != 0, (layouts & 2) != 0, F16, F16);
        run_volta((layouts & 1) != 0, (layouts & 2) != 0, F16, F32);
    }
}

/* --- wmma: in memory as it is given, in registers as the device likes --- */

struct wmma_case {
    const char *shape, *types;
    uint32_t m, n, k;
    enum element a, b, c, d;
};

static const struct wmma_case wmma_cases[] = {
    {"m16n16k16", "f16.f16", 16, 16, 16, F16, F16, F16, F16},
    {"m16n16k16", "f32.f16", 16, 16, 16, F16, F16, F16, F32},
    {"m16n16k16", "f32.f32", 16, 16, 16, F16, F16, F32, F32},
    {"m32n8k16", "f32.f32", 32, 8, 16, F16, F16, F32, F32},
    {"m8n32k16", "f32.f32", 8, 32, 16, F16, F16, F32, F32},
    {"m32n8k16", "f16.f16", 32, 8, 16, F16, F16, F16, F16},
    {"m8n32k16", "f16.f16", 8, 32, 16, F16, F16, F16, F16},
    {"m16n16k16", "f32.bf16.bf16.f32", 16, 16, 16, BF16, BF16, F32, F32},
    {"m32n8k16", "f32.bf16.bf16.f32", 32, 8, 16, BF16, BF16, F32, F32},
    {"m8n32k16", "f32.bf16.bf16.f32", 8, 32, 16, BF16, BF16, F32, F32},
    {"m16n16k8", "f32.tf32.tf32.f32", 16, 16, 8, TF32, TF32, F32, F32},
    {"m16n16k16", "s32.s8.s8.s32", 16, 16, 16, S8, S8, S32, S32},
    {"m32n8k16", "s32.u8.u8.s32", 32, 8, 16, U8, U8, S32, S32},
    {"m8n32k16", "s32.s8.s8.s32", 8, 32, 16, S8, S8, S32, S32},
    {"m8n8k4", "f64.f64.f64.f64", 8, 8, 4, F64, F64, F64, F64},
    {"m8n8k32", "s32.s4.s4.s32", 8, 8, 32, S4, S4, S32, S32},
    {"m8n8k128", "s32.b1.b1.s32", 8, 8, 128, B1, B1, S32, S32},
};
static const char *const element_names[] = {"f16", "bf16", "tf32", "f32", "f64", "s8",
                                            "u8",  "s4",   "u4",   "s32", "b1"};

/* What nvcc's header has for each fragment. */
static uint32_t wmma_registers(uint32_t elements, enum element type, bool factor)
{
    return factor && type == F16 ? 8 : registers_of(elements, type);
}

static int vector_text(char *text, char letter, uint32_t count)
{
    int at = 0;
    for (uint32_t r = 0; r < count; r++)
        at += sprintf(text + at, "%s%%%c%u", r == 0 ? "{" : ",", letter, r);
    return at + sprintf(text + at, "}");
}

/* One matrix in memory: `rows` by `columns`, with a stride of 8 (32 of .b1 and .s4) more than needed. */
static uint32_t lay_out(unsigned char *memory, double (*value)(uint32_t, uint32_t), enum element type,
                        uint32_t rows, uint32_t columns, bool by_columns)
{
    uint32_t stride = (by_columns ? rows : columns) + (element_bits[type] < 8 ? 32 : 8);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            store(memory, type, by_columns ? j * stride + i : i * stride + j, value(i, j));
    return stride;
}
static double a_value(uint32_t i, uint32_t j)
{
    return a_matrix[i][j];
}
static double b_value(uint32_t i, uint32_t j)
{
    return b_matrix[i][j];
}
static double c_value(uint32_t i, uint32_t j)
{
    return c_matrix[i][j];
}

/*
 * `layouts`: bit 0 a, 1 b, 2 c, 3 d are column by column. d goes through shared memory, by a generic address.
 */
static void run_wmma(const struct wmma_case *test, uint32_t layouts)
{
    static unsigned char memory[4][8192];
    static const char *const names[] = {"row", "col"};
    const char letters[] = "abcd";
    const enum element types[4] = {test->a, test->b, test->c, test->d};
    const uint32_t rows[4] = {test->m, test->k, test->m, test->m},
                   columns[4] = {test->k, test->n, test->n, test->n};
    uint32_t strides[4], counts[4];
    char text[8192];
    int at = sprintf(
        text, ".entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n"
              ".shared .align 16 .b8 tile[8192]; .reg .b64 %%x<6>; .reg .b32 %%l<4>; .reg .pred %%p;\n");
    make_matrices(test->m, test->n, test->k, test->a, test->b, test->c, test->a == B1);
    memset(memory, 0, sizeof(memory));
    strides[0] = lay_out(memory[0], a_value, test->a, test->m, test->k, layouts & 1);
    strides[1] = lay_out(memory[1], b_value, test->b, test->k, test->n, layouts >> 1 & 1);
    strides[2] = lay_out(memory[2], c_value, test->c, test->m, test->n, layouts >> 2 & 1);
    strides[3] = (layouts >> 3 & 1 ? test->m : test->n) + 8;
    for (int i = 0; i < 4; i++) {
        const char *type = types[i] == F64 ? "f64" : types[i] == F32 ? "f32" : "b32";
        counts[i] = wmma_registers(rows[i] * columns[i], types[i], i < 2);
        at += sprintf(text + at, ".reg .%s %%%c<16>; ld.param.u64 %%x%d, [p%c];\n", type, letters[i], i,
                      letters[i]);
        if (i == 3)
            break;
        at += sprintf(text + at, "mov.u32 %%l0, %u;\nwmma.load.%c.sync.aligned.%s.%s.global.%s ", strides[i],
                      letters[i], names[layouts >> i & 1], test->shape, element_names[types[i]]);
        at += vector_text(text + at, letters[i], counts[i]);
        at += sprintf(text + at, ", [%%x%d], %%l0;\n", i);
    }
    at += sprintf(text + at, "wmma.mma%s.sync.aligned.%s.%s.%s.%s ", test->a == B1 ? ".xor.popc" : "",
                  names[layouts & 1], names[layouts >> 1 & 1], test->shape, test->types);
    for (int i = 0; i < 4; i++) {
        at += vector_text(text + at, letters[(i + 3) % 4], counts[(i + 3) % 4]);
        at += sprintf(text + at, i < 3 ? ", " : ";\n");
    }
    at += sprintf(
        text + at,
        "mov.u64 %%x4, tile; cvta.shared.u64 %%x4, %%x4;\nwmma.store.d.sync.aligned.%s.%s.%s [%%x4], ",
        names[layouts >> 3 & 1], test->shape, element_names[test->d]);
    at += vector_text(text + at, 'd', counts[3]);
    sprintf(text + at,
            ", %u;\nmov.u32 %%l1, %%laneid; shl.b32 %%l1, %%l1, 2; mov.u32 %%l2, tile; add.u32 %%l2, %%l2, "
            "%%l1;\n"
            "cvt.u64.u32 %%x5, %%l1; add.u64 %%x3, %%x3, %%x5;\n"
            "L: ld.shared.b32 %%l3, [%%l2]; st.global.b32 [%%x3], %%l3; add.u32 %%l2, %%l2, 128;\n"
            "add.u64 %%x3, %%x3, 128; add.u32 %%l1, %%l1, 128; setp.lt.u32 %%p, %%l1, 8192; @%%p bra L; "
            "ret;\n}\n",
            strides[3]);
    run_grid_of(text, 1, LANES, PARAMS(memory[0], memory[1], memory[2], memory[3]));
    for (uint32_t i = 0; i < test->m; i++)
        for (uint32_t j = 0; j < test->n; j++) {
            uint32_t index = layouts >> 3 & 1 ? j * strides[3] + i : i * strides[3] + j;
            double got = decode(test->d, memory[3], index);
            cr_assert_eq(got, d_matrix[i][j], "%s.%s, layouts %u: (%u, %u): %g, not %g", test->shape,
                         test->types, layouts, i, j, got, d_matrix[i][j]);
        }
}

Test(mma, wmma)
{
    for (size_t i = 0; i < sizeof(wmma_cases) / sizeof(wmma_cases[0]); i++) {
        /* all sixteen layouts, but not of every shape; small elements have only .row.col */
        bool small = element_bits[wmma_cases[i].a] < 8;
        for (uint32_t layouts = small ? 2 : (uint32_t)i % 5; layouts < 16; layouts += small ? 4 : 5)
            run_wmma(&wmma_cases[i], layouts);
    }
}

/* --- squares of 8 by 8 --- */

/* Shared memory gets `in`, the instructions run on it, and registers %r0 … %r3 of all lanes come back. */
static void run_squares(const char *body, const uint16_t in[256], uint32_t out[LANES][4], uint16_t after[256])
{
    char text[4096];
    snprintf(text, sizeof(text),
             ".entry k(.param .u64 in, .param .u64 out, .param .u64 after) {\n"
             ".shared .align 16 .b8 tile[512]; .reg .b64 %%x<5>; .reg .b32 %%r<9>, %%l<4>, %%v<4>;\n"
             "ld.param.u64 %%x0, [in]; ld.param.u64 %%x1, [out]; ld.param.u64 %%x2, [after]; mov.u32 %%l0, "
             "%%laneid;\n"
             "mul.wide.u32 %%x3, %%l0, 16; add.u64 %%x0, %%x0, %%x3; add.u64 %%x1, %%x1, %%x3;\n"
             "add.u64 %%x2, %%x2, %%x3; mov.u32 %%l1, tile; mad.lo.u32 %%l1, %%l0, 16, %%l1;\n"
             "ld.global.v4.b32 {%%v0, %%v1, %%v2, %%v3}, [%%x0]; st.shared.v4.b32 [%%l1], {%%v0, %%v1, %%v2, "
             "%%v3};\n"
             "%s\nst.global.v4.b32 [%%x1], {%%r0, %%r1, %%r2, %%r3};\n"
             "ld.shared.v4.b32 {%%v0, %%v1, %%v2, %%v3}, [%%l1]; st.global.v4.b32 [%%x2], {%%v0, %%v1, %%v2, "
             "%%v3};\n"
             "ret; }\n",
             body);
    run_grid_of(text, 1, LANES, PARAMS(in, out, after));
}

Test(mma, squares)
{
    uint16_t in[256], after[256];
    uint32_t out[LANES][4];
    for (int i = 0; i < 256; i++)
        in[i] = (uint16_t)(i * 251 + 7);
    /* lane l gives row l % 8 of matrix l / 8: here 16 bytes each, one after the other; nobody synchronises */
    run_squares("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%l1];", in, out, after);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t e = 0; e < 2; e++)
                cr_expect_eq(out[lane][r] >> 16 * e & 0xffff, in[r * 64 + lane / 4 * 8 + lane % 4 * 2 + e]);
    run_squares("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%r0, %r1, %r2, %r3}, [%l1];", in, out,
                after);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t e = 0; e < 2; e++)
                cr_expect_eq(out[lane][r] >> 16 * e & 0xffff, in[r * 64 + (lane % 4 * 2 + e) * 8 + lane / 4]);
    /* x1 takes the addresses of lanes 0 … 7 alone; those of the others may be anything */
    run_squares(".reg .pred %q; setp.gt.u32 %q, %l0, 7; selp.b32 %l2, 0x7ffffff0, %l1, %q;\n"
                "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%l2];\n"
                "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;",
                in, out, after);
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t e = 0; e < 2; e++) {
            cr_expect_eq(out[lane][0] >> 16 * e & 0xffff, in[lane / 4 * 8 + lane % 4 * 2 + e]);
            cr_expect_eq(out[lane][1] >> 16 * e & 0xffff, in[(lane % 4 * 2 + e) * 8 + lane / 4]);
        }
    /* two matrices change places, and the second is transposed on the way */
    run_squares("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%l1];\n"
                "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%l1], {%r1}; add.u32 %l2, %l1, 128;\n"
                "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%l2], %r0;",
                in, out, after);
    for (int i = 0; i < 64; i++) {
        cr_expect_eq(after[i], in[64 + i]);
        cr_expect_eq(after[64 + i], in[i % 8 * 8 + i / 8]);
    }
    cr_expect_eq(memcmp(after + 128, in + 128, 256), 0, "the rest is as it was");
}

/* --- arithmetic at its edges: all elements of a are x, of b are y, of c are z --- */

static uint32_t run_uniform(const char *name, uint32_t na, uint32_t nb, uint32_t nc, const char *type,
                            uint32_t x, uint32_t y, uint32_t z)
{
    uint32_t d[LANES];
    char text[2048];
    int at = sprintf(
        text,
        ".entry k(.param .u64 d) { .reg .b64 %%x<2>; .reg .b32 %%l, %%a<4>, %%b<4>; .reg .%s %%c<4>;\n"
        "ld.param.u64 %%x0, [d]; mov.u32 %%l, %%laneid; mad.wide.u32 %%x0, %%l, 4, %%x0;\n"
        "mov.b32 %%a0, %u; mov.b32 %%b0, %u; mov.b32 %%c0, %u;\n",
        type, x, y, z);
    const char letters[] = "cabc";
    const uint32_t counts[4] = {nc, na, nb, nc};
    at += sprintf(text + at, "mma.sync.aligned.%s ", name);
    for (int i = 0; i < 4; i++) {
        for (uint32_t r = 0; r < counts[i]; r++)
            at += sprintf(text + at, "%s%%%c%u", r == 0 ? "{" : ",", letters[i], i == 0 ? r : 0);
        at += sprintf(text + at, i < 3 ? "}, " : "};\n");
    }
    sprintf(text + at, "st.global.%s [%%x0], %%c0; ret; }\n", type);
    run_grid_of(text, 1, LANES, PARAMS(d));
    for (uint32_t lane = 1; lane < LANES; lane++)
        cr_expect_eq(d[lane], d[0]);
    return d[0];
}

static float run_float(const char *name, uint32_t x, uint32_t y)
{
    uint32_t bits = run_uniform(name, 2, 1, 4, "f32", x, y, 0);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

Test(mma, arithmetic)
{
    const char *tf32 = "m16n8k4.row.col.f32.tf32.tf32.f32", *half = "m16n8k8.row.col.f16.f16.f16.f16",
               *wide = "m16n8k8.row.col.f32.f16.f16.f32", *bytes = "m16n8k16.row.col.s32.s8.s8.s32",
               *full = "m16n8k16.row.col.satfinite.s32.s8.s8.s32";
    /* tf32: the lower 13 bits do not count */
    cr_expect_eq(run_uniform(tf32, 2, 1, 4, "f32", 0x3f801fff, 0x3fc01000, f32_bits(0.25f)), f32_bits(6.25f));
    /* halves: 8 * (1 + 2^-10)^2 = 8 + 16 * 2^-10 + 2^-17, rounded once: the ulp is 2^-7 */
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x3c013c01, 0x3c013c01, 0), 0x48024802);
    cr_expect_eq(run_uniform(wide, 2, 1, 4, "f32", 0x3c013c01, 0x3c013c01, 0),
                 f32_bits(8.0f + 0x1p-6f + 0x1p-17f));
    /* 2048 + 8 * 0.25: every step alone would be lost in halves */
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x38003800, 0x38003800, 0x68006800), 0x68016801);
    /* ties to even (2049 and 2051), overflow, subnormal results, infinity times zero */
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x30003000, 0x3c003c00, 0x68006800), 0x68006800);
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x30003000, 0x3c003c00, 0x68016801), 0x68026802);
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x78007800, 0x3c003c00, 0), 0x7c007c00);
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x00010001, 0x3c003c00, 0), 0x00080008);
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x80018001, 0x38003800, 0), 0x80048004);
    cr_expect_eq(run_uniform(half, 2, 1, 2, "b32", 0x7c007c00, 0, 0), 0x7fff7fff);
    cr_expect_eq(run_uniform(wide, 2, 1, 4, "f32", 0xfc00fc00, 0x3c003c00, 0), 0xff800000);
    /* bytes: NaN, infinity; 448 * 448 * 16 is exact in float; the smallest numbers */
    const char *e4m3 = "m16n8k16.row.col.f32.e4m3.e4m3.f32", *e5m2 = "m16n8k16.row.col.f32.e5m2.e5m2.f32";
    cr_expect_eq(run_uniform(e4m3, 2, 1, 4, "f32", 0x7e7e7e7e, 0x7e7e7e7e, 0), f32_bits(448.0f * 448 * 16));
    cr_expect_eq(run_uniform(e4m3, 2, 1, 4, "f32", 0x01010101, 0x38383838, 0), f32_bits(0x1p-9f * 16));
    cr_expect(isnan(run_float(e4m3, 0x7f7f7f7f, 0x38383838)));
    cr_expect_eq(run_uniform(e5m2, 2, 1, 4, "f32", 0x7c7c7c7c, 0xbcbcbcbc, 0), 0xff800000);
    cr_expect(isnan(run_float(e5m2, 0x7d7d7d7d, 0x3c3c3c3c)));
    /* integers wrap, or stay at the end of their range */
    cr_expect_eq(run_uniform(bytes, 2, 1, 4, "b32", 0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff),
                 0x7fffffffu + 16 * 127 * 127);
    cr_expect_eq(run_uniform(full, 2, 1, 4, "b32", 0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff), 0x7fffffff);
    cr_expect_eq(run_uniform(full, 2, 1, 4, "b32", 0x80808080, 0x7f7f7f7f, 0x80000001), 0x80000000);
}
