/*
 * sparse.c - mma.sp: products of which a has half of its elements, with fragments and metadata laid out as the PTX documentation
 * says, against a plain product; in loop form and in thread form. Values are small whole numbers, that all types hold.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>

enum { LANES = 32, M = 16, N = 8, K_MAX = 128, WORDS = 4 };
enum element { F16, BF16, TF32, S8, U8, S4, U4, E4M3, E5M2, E2M1, E2M3, E3M2 };

/* What a type's codes of 0 to 3 are; of a signed integer, and of a number with a sign, those of -1 to -3 follow from them. */
static const struct {
    unsigned bits;
    bool whole;
    uint32_t code[4], sign;
} types[] = {
    [F16] = {16, false, {0, 0x3c00, 0x4000, 0x4200}, 0x8000},
    [BF16] = {16, false, {0, 0x3f80, 0x4000, 0x4040}, 0x8000},
    [TF32] = {32, false, {0, 0x3f800000, 0x40000000, 0x40400000}, 0x80000000},
    [S8] = {8, true, {0, 1, 2, 3}, 1},
    [U8] = {8, true, {0, 1, 2, 3}, 0},
    [S4] = {4, true, {0, 1, 2, 3}, 1},
    [U4] = {4, true, {0, 1, 2, 3}, 0},
    [E4M3] = {8, false, {0, 0x38, 0x40, 0x44}, 0x80},
    [E5M2] = {8, false, {0, 0x3c, 0x40, 0x42}, 0x80},
    [E2M1] = {8, false, {0, 2 << 2, 4 << 2, 5 << 2}, 8 << 2},
    [E2M3] = {8, false, {0, 0x08, 0x10, 0x14}, 0x20},
    [E3M2] = {8, false, {0, 0x0c, 0x10, 0x12}, 0x20},
};

static uint32_t encode(enum element type, int value)
{
    const uint32_t code = types[type].code[value < 0 ? -value : value];
    if (types[type].whole)
        return (uint32_t)value & ((1u << types[type].bits) - 1);
    return value < 0 ? code | types[type].sign : code;
}

static uint32_t seed = 1;
static uint32_t pick(uint32_t count)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % count;
}

static int random_value(enum element type)
{
    return types[type].sign == 0 ? (int)pick(4) : (int)pick(7) - 3;
}

struct sparse_case {
    const char *name; /* up to its shape */
    const char *rest;
    uint32_t k;
    enum element a, b;
    uint32_t lanes; /* of four, whose metadata is used */
};

static const struct sparse_case cases[] = {
    {"sp.sync.aligned.m16n8k16.row.col", "f32.f16.f16.f32", 16, F16, F16, 1},
    {"sp.sync.aligned.m16n8k32.row.col", "f32.f16.f16.f32", 32, F16, F16, 2},
    {"sp::ordered_metadata.sync.aligned.m16n8k16.row.col", "f32.bf16.bf16.f32", 16, BF16, BF16, 1},
    {"sp::ordered_metadata.sync.aligned.m16n8k32.row.col", "f32.bf16.bf16.f32", 32, BF16, BF16, 2},
    {"sp.sync.aligned.m16n8k8.row.col", "f32.tf32.tf32.f32", 8, TF32, TF32, 1},
    {"sp.sync.aligned.m16n8k16.row.col", "f32.tf32.tf32.f32", 16, TF32, TF32, 2},
    {"sp.sync.aligned.m16n8k32.row.col", "s32.s8.u8.s32", 32, S8, U8, 2},
    {"sp.sync.aligned.m16n8k64.row.col.satfinite", "s32.u8.s8.s32", 64, U8, S8, 4},
    {"sp.sync.aligned.m16n8k64.row.col", "s32.s4.u4.s32", 64, S4, U4, 2},
    {"sp.sync.aligned.m16n8k128.row.col", "s32.u4.s4.s32", 128, U4, S4, 4},
    {"sp.sync.aligned.m16n8k64.row.col", "f32.e4m3.e5m2.f32", 64, E4M3, E5M2, 4},
    {"sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4", "f32.e2m1.e3m2.f32", 64, E2M1, E3M2,
     4},
    {"sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4", "f32.e2m3.e4m3.f32", 64, E2M3, E4M3,
     4},
};

/* a, b, c and the metadata as lanes hold them, and the sums. */
static struct {
    uint32_t a[LANES][WORDS], b[LANES][WORDS], c[LANES][WORDS], metadata[LANES], d[LANES][WORDS];
} held;
static int a_matrix[M][K_MAX], b_matrix[K_MAX][N], sums[M][N];

/* Four bits about group `group` of a row. */
static void describe(const struct sparse_case *test, uint32_t selector, uint32_t row, uint32_t group,
                     uint32_t code)
{
    const uint32_t lane = row % 8 * 4 + selector * test->lanes;
    if (types[test->a].bits >= 16) /* a lane has sixteen bits of a row, and as many of the one eight below */
        held.metadata[lane + group / 4] |= code << (row / 8 * 16 + group % 4 * 4);
    else /* … thirty-two of one row, and the next lane of the other */
        held.metadata[lane + group / 8 * 2 + row / 8] |= code << group % 8 * 4;
}

/* Stored element `at` of a row, at place `place` of it. */
static void put_a(const struct sparse_case *test, uint32_t row, uint32_t at, uint32_t place)
{
    const unsigned bits = types[test->a].bits, per = 32 / bits;
    const int value = random_value(test->a);
    a_matrix[row][place] = value;
    held.a[row % 8 * 4 + at / per % 4][row / 8 + at / per / 4 * 2] |= encode(test->a, value)
                                                                      << at % per * bits;
}

/* Half of the elements of a row: of four neighbours two, of two one, of four pairs two. */
static void make_row(const struct sparse_case *test, uint32_t selector, uint32_t row)
{
    const unsigned bits = types[test->a].bits;
    const uint32_t size = bits == 32 ? 2 : bits == 4 ? 8 : 4;
    for (uint32_t group = 0; group < test->k / size; group++) {
        const uint32_t first = pick(3), second = first + 1 + pick(3 - first);
        const uint32_t at = group * size / 2, place = group * size;
        if (bits == 32) {
            const uint32_t one = pick(2);
            put_a(test, row, at, place + one);
            describe(test, selector, row, group, one == 0 ? 4 : 14);
            continue;
        }
        describe(test, selector, row, group, first | second << 2);
        for (uint32_t i = 0; i < size / 4; i++) {
            put_a(test, row, at + i, place + first * (size / 4) + i);
            put_a(test, row, at + size / 4 + i, place + second * (size / 4) + i);
        }
    }
}

static void make_b(const struct sparse_case *test)
{
    const unsigned bits = types[test->b].bits, per = 32 / bits;
    for (uint32_t k = 0; k < test->k; k++)
        for (uint32_t column = 0; column < N; column++) {
            const int value = b_matrix[k][column] = random_value(test->b);
            held.b[column * 4 + k / per % 4][k / per / 4] |= encode(test->b, value) << k % per * bits;
        }
}

static uint32_t sum_bits(const struct sparse_case *test, int value)
{
    return types[test->a].whole ? (uint32_t)value : f32_bits((float)value);
}

static void make(const struct sparse_case *test, uint32_t selector)
{
    memset(&held, 0, sizeof(held));
    memset(a_matrix, 0, sizeof(a_matrix));
    for (uint32_t lane = 0; lane < LANES; lane++) /* what is not chosen means nothing */
        held.metadata[lane] = lane % 4 / test->lanes == selector ? 0 : pick(1u << 24);
    for (uint32_t row = 0; row < M; row++)
        make_row(test, selector, row);
    make_b(test);
    for (uint32_t row = 0; row < M; row++)
        for (uint32_t column = 0; column < N; column++) {
            int sum = (int)pick(100) - 50;
            held.c[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] = sum_bits(test, sum);
            for (uint32_t k = 0; k < test->k; k++)
                sum += a_matrix[row][k] * b_matrix[k][column];
            sums[row][column] = sum;
        }
}

static int vector(char *text, char letter, uint32_t count)
{
    int at = sprintf(text, "{");
    for (uint32_t i = 0; i < count; i++)
        at += sprintf(text + at, "%s%%%c%u", i == 0 ? "" : ", ", letter, i);
    return at + sprintf(text + at, "}");
}

static const char *text_of(const struct sparse_case *test, uint32_t selector, bool threads)
{
    static char text[4096];
    const bool whole = types[test->a].whole;
    const uint32_t count_a = M * test->k / 2 / LANES * types[test->a].bits / 32;
    const uint32_t count_b = N * test->k / LANES * types[test->b].bits / 32;
    int at = sprintf(text,
                     ".entry k(.param .u64 p) {\n.reg .b64 %%x<3>; .reg .b32 %%l, %%e, %%a<4>, %%b<4>;\n"
                     ".reg .%s %%c<4>, %%d<4>;\n%s"
                     "ld.param.u64 %%x0, [p]; mov.u32 %%l, %%laneid;\n"
                     "mad.wide.u32 %%x1, %%l, 4, %%x0; mad.wide.u32 %%x0, %%l, 16, %%x0;\n"
                     "ld.global.b32 %%e, [%%x1+%zu];\n",
                     whole ? "b32" : "f32", threads ? "alloca.u64 %x2, 16; st.local.u32 [%x2], 0;\n" : "",
                     offsetof(__typeof__(held), metadata));
    for (uint32_t i = 0; i < WORDS; i++)
        at += sprintf(text + at,
                      "ld.global.b32 %%a%u, [%%x0+%u]; ld.global.b32 %%b%u, [%%x0+%zu]; ld.global.%s %%c%u, "
                      "[%%x0+%zu];\n",
                      i, i * 4, i, offsetof(__typeof__(held), b) + i * 4, whole ? "b32" : "f32", i,
                      offsetof(__typeof__(held), c) + i * 4);
    at += sprintf(text + at, "mma.%s.%s ", test->name, test->rest);
    at += vector(text + at, 'd', 4);
    at += sprintf(text + at, ", ");
    at += vector(text + at, 'a', count_a);
    at += sprintf(text + at, ", ");
    at += vector(text + at, 'b', count_b);
    at += sprintf(text + at, ", ");
    at += vector(text + at, 'c', 4);
    at += sprintf(text + at, ", %%e, %u;\n", selector);
    for (uint32_t i = 0; i < WORDS; i++)
        at += sprintf(text + at, "st.global.%s [%%x0+%zu], %%d%u;\n", whole ? "b32" : "f32",
                      offsetof(__typeof__(held), d) + i * 4, i);
    sprintf(text + at, "ret;\n}\n");
    return text;
}

static void run(const struct sparse_case *test, uint32_t selector, bool threads)
{
    make(test, selector);
    const char *text = text_of(test, selector, threads);
    const void *parameter = &held;
    struct sg_program *program = program_of(text);
    cr_assert_eq(sg_program_kernel(program, 0)->form, threads ? SG_CODE_THREAD : SG_CODE_LOOPS);
    cr_assert_eq(run_grid(program, 1, LANES, &parameter), 0);
    free_program(program);
    for (uint32_t row = 0; row < M; row++)
        for (uint32_t column = 0; column < N; column++)
            cr_assert_eq(held.d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2],
                         sum_bits(test, sums[row][column]), "%s.%s, selector %u: (%u, %u)", test->name,
                         test->rest, selector, row, column);
}

Test(sparse, every_shape_and_selector)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (uint32_t selector = 0; selector < 4 / cases[i].lanes; selector++) {
            run(&cases[i], selector, false);
            run(&cases[i], selector, true);
        }
}

/* What is not stored is not there: not even an infinity in b comes through. */
Test(sparse, elements_that_are_not_stored_do_not_count)
{
    const struct sparse_case *test = &cases[0];
    make(test, 0);
    uint32_t missing = 0;
    while (a_matrix[0][missing] != 0 || held.metadata[0] >> missing / 4 * 4 % 16 % 4 == missing % 4 ||
           (held.metadata[0] >> missing / 4 * 4 & 15) >> 2 == missing % 4)
        missing++;
    memset(held.b, 0, sizeof(held.b));
    held.b[missing / 2 % 4][missing / 8] = 0x7c00u << missing % 2 * 16;
    const void *parameter = &held;
    run_grid_of(text_of(test, 0, false), 1, LANES, &parameter);
    cr_assert_eq(held.d[0][0], held.c[0][0]);
}

Test(sparse, selectors_are_checked)
{
    cr_assert_str_eq(
        log_of_insn("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
                    "{%r3, %r4}, {%r1, %r2, %r3, %r4}, %r5, 2;"),
        "ptx:11: the sparsity selector of this instruction is a number below 2: "
        "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r3, %r4}, "
        "{%r1, %r2, %r3, %r4}, %r5, 2\n");
}
