/*
 * warpgroup.c - wgmma, by which four warps multiply a matrix of 64 rows, each warp 16 of them: becomes loads from shared memory and an mma for
 * each eight columns, of which the registers of a warp have the same layout (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16").
 *
 *   wgmma.mma_async.sync.aligned.m64nNkK.TYPE.TYPE.TYPE d, a, b, scale-d, imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b;
 *
 * It is done where it stands, so that fence, commit_group and wait_group have nothing to do: what a program may not touch until it has
 * waited stays as it is until then. Sparse matrices (.sp) are not known.
 *
 * A matrix in shared memory is named by 64 bits (PTX ISA, "Matrix Descriptor Format"): where it begins (bits 0 to 13, in 16 bytes), two
 * strides (16 to 29 and 32 to 45, in 16 bytes), where its pattern begins (49 to 51, in 128 bytes), and how it is swizzled (62 and 63: not at
 * all, or in rows of 128, 64, 32 bytes). It consists of blocks of 8 rows of 16 bytes. The word "row" means a row of a or a column of b here.
 *   K-major, 32 bytes of k: block q of rows is at q × the second stride, the other half of k at 16 bytes, or where nothing is swizzled at
 *   the first stride; rows within a block are a row of the pattern apart.
 *   MN-major, .f16 and .bf16: eight rows follow each other, blocks of rows until a row of the pattern is full, and then at the first stride;
 *   values of k are a row of the pattern apart, eight of them at the second stride. Where nothing is swizzled the strides are the other way
 *   round.
 * Swizzling: bits 7 … of an address are added to bits 4 …, as many as the pattern's row has 16 bytes.
 */
#include "softgpu/compiler/check/checker.h"

#include <stdio.h>
#include <string.h>

#define ROWS    8u /* of a block; columns of an mma */
#define N_MAX   256u
#define OF_A    4u /* registers of a lane that have its part of a … */
#define OF_B    2u /* … and of eight columns of b */
#define STRIDE  0x3fff0u
#define PATTERN 0x380u

typedef struct sg_ast_operand operand;

/* What goes with the type of the factors. */
struct kind {
    const char *types;      /* of d, a and b, and what follows them */
    const char *multiply;   /* the mma that does eight columns */
    uint8_t k, d_registers; /* of eight columns */
    uint32_t signs;         /* of the elements of a register */
    uint8_t n_scales, n_transposes;
};
#define MMA(shape, types) "mma.sync.aligned." shape ".row.col." types
#define EIGHTS(d, a, b, registers)                                                                           \
    {                                                                                                        \
        d "." a "." b, MMA("m16n8k32", d "." a "." b "." d), 32, registers, 0x80808080, 2, 0                 \
    }
#define BYTES(a, b)                                                                                          \
    {"s32." a "." b, MMA("m16n8k32", "s32." a "." b ".s32"), 32, 4, 0, 0, 0},                                \
    {                                                                                                        \
        "s32." a "." b ".satfinite", MMA("m16n8k32", "satfinite.s32." a "." b ".s32"), 32, 4, 0, 0, 0        \
    }
static const struct kind kinds[] = {
    {"f16.f16.f16", MMA("m16n8k16", "f16.f16.f16.f16"), 16, 2, 0x80008000, 2, 2},
    {"f32.f16.f16", MMA("m16n8k16", "f32.f16.f16.f32"), 16, 4, 0x80008000, 2, 2},
    {"f32.bf16.bf16", MMA("m16n8k16", "f32.bf16.bf16.f32"), 16, 4, 0x80008000, 2, 2},
    {"f32.tf32.tf32", MMA("m16n8k8", "f32.tf32.tf32.f32"), 8, 4, 0x80000000, 2, 0},
    EIGHTS("f16", "e4m3", "e4m3", 2),
    EIGHTS("f16", "e4m3", "e5m2", 2),
    EIGHTS("f16", "e5m2", "e4m3", 2),
    EIGHTS("f16", "e5m2", "e5m2", 2),
    EIGHTS("f32", "e4m3", "e4m3", 4),
    EIGHTS("f32", "e4m3", "e5m2", 4),
    EIGHTS("f32", "e5m2", "e4m3", 4),
    EIGHTS("f32", "e5m2", "e5m2", 4),
    BYTES("s8", "s8"),
    BYTES("s8", "u8"),
    BYTES("u8", "s8"),
    BYTES("u8", "u8"),
    {"s32.b1.b1.and.popc", MMA("m16n8k256", "s32.b1.b1.s32.and.popc"), 0, 4, 0, 0, 0},
};

struct writer {
    struct sg_checker *checker;
    const struct sg_ast_instruction *ast;
    uint32_t used;               /* of the spare registers */
    operand lane_row, lane_word; /* lane / 4, and four times lane mod 4 */
    operand first_block;         /* of this warp's rows of a */
};

/* A matrix in shared memory, in bytes. */
struct matrix {
    operand begin, first_stride, second_stride; /* the strides as the layout with a swizzle has them */
    operand half;                               /* of K-major: from one half of k to the other */
    operand row_log, row_size, swizzle; /* the pattern's row; the bits of an address that are changed */
    operand pattern;
    operand blocks_log,
        blocks_last; /* of MN-major: blocks of a row of the pattern, and the number of the last */
    bool transposed; /* MN-major */
};

static operand number(uint32_t value)
{
    return (operand){.kind = SG_AST_INTEGER, .value = value};
}

static operand special(const char *name)
{
    return (operand){.kind = SG_AST_NAME, .name = {name, (uint32_t)strlen(name)}};
}

static operand vector(operand *items, uint32_t count)
{
    return (operand){.kind = SG_AST_VECTOR, .items = items, .n_items = count};
}

static void write(struct writer *w, const char *words, const operand *operands, uint32_t count)
{
    struct sg_ast_instruction out = *w->ast;
    out.operands = SG_NEW_ARRAY(w->checker->scratch, operand, count);
    memcpy(out.operands, operands, count * sizeof(*operands));
    out.n_operands = count;
    sg_check_words(w->checker, &out, words);
    sg_check_instruction(w->checker, &out);
}

/* A register with words(a, b), or words(a, b, c). */
static operand with_two(struct writer *w, const char *words, operand a, operand b)
{
    const operand operands[] = {sg_check_spare_register(w->checker, w->used++), a, b};
    write(w, words, operands, 3);
    return operands[0];
}

static operand with_three(struct writer *w, const char *words, operand a, operand b, operand c)
{
    const operand operands[] = {sg_check_spare_register(w->checker, w->used++), a, b, c};
    write(w, words, operands, 4);
    return operands[0];
}

static operand bits(struct writer *w, const char *shift, operand from, uint32_t by, uint32_t mask)
{
    return with_two(w, "and.b32", with_two(w, shift, from, number(by)), number(mask));
}

static void find_lane(struct writer *w)
{
    w->lane_row = with_two(w, "shr.u32", special("%laneid"), number(2));
    w->lane_word = bits(w, "shl.b32", special("%laneid"), 2, 12);
    w->first_block = bits(w, "shl.b32", special("%warpid"), 1, 6);
}

static struct matrix take_apart(struct writer *w, operand descriptor, bool transposed)
{
    operand words[] = {sg_check_spare_register(w->checker, w->used++),
                       sg_check_spare_register(w->checker, w->used++)};
    write(w, "mov.b64", (operand[]){vector(words, 2), descriptor}, 2);
    const operand mode = with_two(w, "shr.u32", words[1], number(30));
    const operand plain = sg_check_unnamed_register(w->checker, SG_PRED);
    write(w, "setp.eq.u32", (operand[]){plain, mode, number(0)}, 3);
    const operand leading = bits(w, "shr.u32", words[0], 12, STRIDE),
                  stride = bits(w, "shl.b32", words[1], 4, STRIDE);
    const operand row_log = with_two(w, "sub.u32", number(8), mode);
    struct matrix matrix = {
        .begin = bits(w, "shl.b32", words[0], 4, STRIDE),
        .pattern = bits(w, "shr.u32", words[1], 10, PATTERN),
        .row_log = with_three(w, "selp.b32", number(4), row_log, plain),
        .first_stride = transposed ? with_three(w, "selp.b32", stride, leading, plain) : leading,
        .second_stride = transposed ? with_three(w, "selp.b32", leading, stride, plain) : stride,
        .half = with_three(w, "selp.b32", leading, number(16), plain),
        .transposed = transposed,
    };
    matrix.row_size = with_two(w, "shl.b32", number(1), matrix.row_log);
    matrix.swizzle = with_two(w, "sub.u32", matrix.row_size, number(16));
    if (transposed) {
        matrix.blocks_log = with_two(w, "sub.u32", matrix.row_log, number(4));
        matrix.blocks_last = with_two(w, "shr.u32", matrix.swizzle, number(4));
    }
    return matrix;
}

/* Where this lane's part of the matrix begins. */
static void go_to_lane(struct writer *w, struct matrix *matrix)
{
    if (matrix->transposed) {
        const operand at = with_three(w, "mad.lo.u32", w->lane_row, number(2), matrix->begin);
        const operand k = with_two(w, "shr.u32", w->lane_word, number(1));
        matrix->begin = with_three(w, "mad.lo.u32", k, matrix->row_size, at);
    } else {
        const operand at = with_two(w, "add.u32", matrix->begin, w->lane_word);
        matrix->begin = with_three(w, "mad.lo.u32", w->lane_row, matrix->row_size, at);
    }
}

static operand load(struct writer *w, const char *words, const struct matrix *matrix, operand at)
{
    const operand phase = with_two(w, "sub.u32", at, matrix->pattern);
    operand address = with_two(
        w, "xor.b32", at, with_two(w, "and.b32", with_two(w, "shr.u32", phase, number(3)), matrix->swizzle));
    address.kind = SG_AST_ADDRESS;
    const operand operands[] = {sg_check_spare_register(w->checker, w->used++), address};
    write(w, words, operands, 2);
    return operands[0];
}

/* The register with block `block` of rows and a half of k. */
static operand load_word(struct writer *w, const struct matrix *matrix, operand block, uint32_t half)
{
    if (!matrix->transposed) {
        const operand at = with_three(w, "mad.lo.u32", block, matrix->second_stride, matrix->begin);
        return load(w, "ld.shared.b32", matrix, half ? with_two(w, "add.u32", at, matrix->half) : at);
    }
    const operand across = with_two(w, "shr.u32", block, matrix->blocks_log);
    operand at = with_three(w, "mad.lo.u32", across, matrix->first_stride, matrix->begin);
    at = with_three(w, "mad.lo.u32", with_two(w, "and.b32", block, matrix->blocks_last), number(16), at);
    if (half)
        at = with_two(w, "add.u32", at, matrix->second_stride);
    const operand low = load(w, "ld.shared.u16", matrix, at);
    const operand high = load(w, "ld.shared.u16", matrix, with_two(w, "add.u32", at, matrix->row_size));
    return with_two(w, "or.b32", low, with_two(w, "shl.b32", high, number(16)));
}

/* --- the instruction --- */

static const struct kind *kind_of(const struct sg_ast_instruction *ast, uint32_t *n)
{
    char words[80];
    unsigned k;
    int size = 0, shape = 0;
    for (uint32_t i = 0; i < ast->n_modifiers && size < (int)sizeof(words); i++)
        size += snprintf(words + size, sizeof(words) - (size_t)size, ".%.*s", (int)ast->modifiers[i].size,
                         ast->modifiers[i].data);
    if (size >= (int)sizeof(words) ||
        sscanf(words, ".mma_async.sync.aligned.m64n%3uk%3u.%n", n, &k, &shape) != 2 || shape == 0)
        return NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(words + shape, kinds[i].types) == 0)
            return k == (kinds[i].k ? kinds[i].k : 256u) && *n % ROWS == 0 && *n > 0 && *n <= N_MAX
                       ? &kinds[i]
                       : NULL;
    return NULL;
}

static void check_vector(struct writer *w, const operand *vector, uint32_t count)
{
    if (vector->kind != SG_AST_VECTOR || vector->n_items != count)
        sg_check_fail(w->checker, "a vector of %u registers is wanted for a matrix of this instruction",
                      count);
}

/* The number that operand `place` has to be: one of two. */
static uint64_t choice(struct writer *w, uint32_t place, uint64_t one, uint64_t other)
{
    const operand *given = &w->ast->operands[place];
    if (given->kind != SG_AST_INTEGER || (given->value != one && given->value != other))
        sg_check_fail(w->checker, "operand %u is %d or %d", place + 1, (int)one, (int)other);
    return given->value;
}

static void take_a(struct writer *w, const struct kind *kind, bool transposed, bool negative,
                   operand parts[OF_A])
{
    const operand *a = &w->ast->operands[1];
    struct matrix matrix;
    if (a->kind == SG_AST_VECTOR) {
        memcpy(parts, a->items, OF_A * sizeof(*parts));
    } else {
        matrix = take_apart(w, *a, transposed);
        go_to_lane(w, &matrix);
        const operand second = with_two(w, "add.u32", w->first_block, number(1));
        for (uint32_t i = 0; i < OF_A; i++)
            parts[i] = load_word(w, &matrix, i % 2 ? second : w->first_block, i / 2);
    }
    for (uint32_t i = 0; i < OF_A && negative; i++)
        parts[i] = with_two(w, "xor.b32", parts[i], number(kind->signs));
}

/* Without what d holds, if that is not to be added to. */
static void begin_sums(struct writer *w, const operand *d, const operand *scale)
{
    if (scale->kind == SG_AST_INTEGER && scale->value != 0)
        return;
    for (uint32_t i = 0; i < d->n_items; i++)
        if (scale->kind == SG_AST_INTEGER)
            write(w, "mov.b32", (operand[]){d->items[i], number(0)}, 2);
        else
            write(w, "selp.b32", (operand[]){d->items[i], d->items[i], number(0), *scale}, 4);
}

static void multiply(struct writer *w, const struct kind *kind, uint32_t n)
{
    const struct sg_ast_instruction *ast = w->ast;
    const bool in_registers = ast->n_operands > 1 && ast->operands[1].kind == SG_AST_VECTOR;
    const uint32_t scales = 4, transposes = scales + kind->n_scales;
    const uint32_t n_transposes = kind->n_transposes - (kind->n_transposes && in_registers);
    if (ast->n_operands != transposes + n_transposes)
        sg_check_fail(w->checker, "wrong number of operands");
    const operand *d = &ast->operands[0];
    check_vector(w, d, n / ROWS * kind->d_registers);
    if (in_registers)
        check_vector(w, &ast->operands[1], OF_A);
    bool negative = false, transposed[2] = {false, false};
    for (uint32_t i = 0; i < kind->n_scales; i++)
        negative ^= choice(w, scales + i, 1, UINT64_MAX) != 1;
    for (uint32_t i = 0; i < n_transposes; i++)
        transposed[2 - n_transposes + i] = choice(w, transposes + i, 0, 1) == 1;

    operand a[OF_A], b[N_MAX / ROWS][OF_B];
    find_lane(w);
    take_a(w, kind, transposed[0], negative, a);
    struct matrix matrix = take_apart(w, ast->operands[2], transposed[1]);
    go_to_lane(w, &matrix);
    for (uint32_t i = 0; i < n / ROWS; i++)
        for (uint32_t half = 0; half < OF_B; half++)
            b[i][half] = load_word(w, &matrix, number(i), half);
    begin_sums(w, d, &ast->operands[3]);
    for (uint32_t i = 0; i < n / ROWS; i++) {
        const operand sums = vector(d->items + (size_t)i * kind->d_registers, kind->d_registers);
        write(w, kind->multiply, (operand[]){sums, vector(a, OF_A), vector(b[i], OF_B), sums}, 4);
    }
}

bool sg_check_warpgroup(struct sg_checker *checker, const struct sg_ast_instruction *ast)
{
    static const char *const waits[] = {"fence", "commit_group", "wait_group"};
    struct writer w = {.checker = checker, .ast = ast};
    uint32_t n;
    for (uint32_t i = 0; ast->n_modifiers == 3 && i < sizeof(waits) / sizeof(waits[0]); i++)
        if (sg_slice_is(ast->modifiers[0], waits[i]) && sg_slice_is(ast->modifiers[1], "sync") &&
            sg_slice_is(ast->modifiers[2], "aligned"))
            return true;
    const struct kind *kind = kind_of(ast, &n);
    if (kind == NULL)
        return false;
    multiply(&w, kind, n);
    return true;
}
