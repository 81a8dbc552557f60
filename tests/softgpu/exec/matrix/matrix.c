/*
 * matrix.c - multiplication of matrices with vector instructions, on columns of a warp, against that of
 * lanes one by one (which tests/softgpu/compiler/codegen/threads/mma.c checks by definition): random bits in
 * all registers, every shape and type.
 */
#include "softgpu/exec/matrix/matrix.h"

#include "tests/softgpu/exec/kernel_test.h"

#include <math.h>

#define THREADS 96 /* of which the second warp is used */
#define COLUMNS 80 /* of up to 8 bytes; the first is none */
#define ROUNDS  200

static uint32_t random_word(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Products whose sums neither leave float's range nor fall below it: there, fused is another number. */
static uint32_t random_register(uint8_t type)
{
    uint32_t word = random_word();
    switch (type) {
    case SG_MATRIX_BF16:
        return (word & 0x8fff8fffu) | 0x30003000u;
    case SG_MATRIX_TF32:
    case SG_MATRIX_F32:
        return random_word() % 64 == 0 ? word | 0x7f800000u : (word & 0x8fffffffu) | 0x30000000u;
    default:
        return word;
    }
}

static const struct {
    uint8_t m, n, k_quarter, a, b, c, d;
} kinds[] = {
    {16, 8, 2, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 4, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 4, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F16},
    {16, 16, 4, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F32, SG_MATRIX_F16},
    {32, 8, 4, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F32},
    {8, 32, 4, SG_MATRIX_F16, SG_MATRIX_F16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 2, SG_MATRIX_BF16, SG_MATRIX_BF16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 4, SG_MATRIX_BF16, SG_MATRIX_BF16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 16, 4, SG_MATRIX_BF16, SG_MATRIX_BF16, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 1, SG_MATRIX_TF32, SG_MATRIX_TF32, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 8, 2, SG_MATRIX_TF32, SG_MATRIX_TF32, SG_MATRIX_F32, SG_MATRIX_F32},
    {16, 16, 2, SG_MATRIX_TF32, SG_MATRIX_TF32, SG_MATRIX_F32, SG_MATRIX_F32},
    {8, 8, 4, SG_MATRIX_S8, SG_MATRIX_U8, SG_MATRIX_S32, SG_MATRIX_S32},
    {16, 8, 8, SG_MATRIX_U8, SG_MATRIX_U8, SG_MATRIX_S32, SG_MATRIX_S32},
    {16, 8, 8, SG_MATRIX_S8, SG_MATRIX_S8, SG_MATRIX_S32, SG_MATRIX_S32},
    {16, 16, 4, SG_MATRIX_U8, SG_MATRIX_S8, SG_MATRIX_S32, SG_MATRIX_S32},
    {32, 8, 4, SG_MATRIX_S8, SG_MATRIX_S8, SG_MATRIX_S32, SG_MATRIX_S32},
    {8, 32, 4, SG_MATRIX_U8, SG_MATRIX_U8, SG_MATRIX_S32, SG_MATRIX_S32},
    {8, 8, 1, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64},
    {16, 8, 1, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64},
    {16, 8, 4, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64, SG_MATRIX_F64},
};

static uint32_t bits_of(uint8_t type)
{
    static const uint8_t bits[] = {
        [SG_MATRIX_F16] = 16, [SG_MATRIX_BF16] = 16, [SG_MATRIX_TF32] = 32, [SG_MATRIX_F32] = 32,
        [SG_MATRIX_F64] = 64, [SG_MATRIX_S8] = 8,    [SG_MATRIX_U8] = 8,    [SG_MATRIX_S32] = 32};
    return bits[type];
}

static unsigned char context[COLUMNS * THREADS * 8] __attribute__((aligned(64)));
static const struct sg_matrix_view view = {context, THREADS, SG_WARP_SIZE};

/* `count` registers in columns from `first` on, in a shuffled order, with random content. */
static void fill(uint32_t columns[16], uint32_t count, uint32_t first, uint8_t type)
{
    for (uint32_t i = 0; i < count; i++)
        columns[i] = (first + i) * 8;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t n = random_word() % i, kept = columns[n];
        columns[n] = columns[i - 1];
        columns[i - 1] = kept;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
            if (type == SG_MATRIX_F64)
                sg_matrix_doublewords(&view, columns[i])[lane] =
                    ((uint64_t)random_word() << 32 | random_word()) & 0xbfffffffffffffffu;
            else
                sg_matrix_words(&view, columns[i])[lane] = random_register(type);
}

static bool is_nan(const void *at, uint8_t type)
{
    float single;
    double number;
    switch (type) {
    case SG_MATRIX_F32:
        memcpy(&single, at, sizeof(single));
        return isnan(single);
    case SG_MATRIX_F64:
        memcpy(&number, at, sizeof(number));
        return isnan(number);
    default:
        return false;
    }
}

static void check(const char *set, sg_matrix_multiplier multiplier, size_t number, bool in_place)
{
    static struct sg_matrix_scratch scratch;
    struct sg_matrix_op op = {.kind = {.operation = SG_MATRIX_MULTIPLY,
                                       .m = kinds[number].m,
                                       .n = kinds[number].n,
                                       .k_quarter = kinds[number].k_quarter,
                                       .a = kinds[number].a,
                                       .b = kinds[number].b,
                                       .c_d = (uint8_t)(kinds[number].c | kinds[number].d << 4),
                                       .flags = random_word() % 2 ? SG_MATRIX_SATURATE : 0}};
    uint32_t m = op.kind.m, n = op.kind.n, k = op.kind.k_quarter * 4u, c = kinds[number].c,
             d = kinds[number].d;
    uint32_t width = op.kind.a == SG_MATRIX_F64 ? 64 : 32;
    uint32_t n_a = m * k / 32 * bits_of(op.kind.a) / width, n_b = n * k / 32 * bits_of(op.kind.b) / width;
    uint32_t n_c = m * n / 32 * bits_of((uint8_t)c) / width, n_d = m * n / 32 * bits_of((uint8_t)d) / width;
    fill(op.a, n_a, 1, op.kind.a);
    fill(op.b, n_b, 17, op.kind.b);
    fill(op.c, n_c, 33, (uint8_t)c);
    fill(op.d, n_d, in_place ? 33 : 49, SG_MATRIX_F16);
    if (in_place)
        fill(op.c, n_c, 33, (uint8_t)c);

    struct sg_matrix_request made[SG_WARP_SIZE], *requests[SG_WARP_SIZE];
    static struct sg_matrix_fragments fragments[SG_WARP_SIZE];
    size_t size = width / 8;
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
        const struct {
            const uint32_t *columns;
            uint32_t count, *words;
        } parts[] = {
            {op.a, n_a, fragments[lane].a}, {op.b, n_b, fragments[lane].b}, {op.c, n_c, fragments[lane].c}};
        for (size_t part = 0; part < 3; part++)
            for (uint32_t i = 0; i < parts[part].count; i++)
                memcpy((char *)parts[part].words + i * size,
                       width == 64 ? (void *)(sg_matrix_doublewords(&view, parts[part].columns[i]) + lane)
                                   : (void *)(sg_matrix_words(&view, parts[part].columns[i]) + lane),
                       size);
        made[lane] = (struct sg_matrix_request){.kind = op.kind, .fragments = &fragments[lane]};
        requests[lane] = &made[lane];
    }
    bool done = multiplier(&scratch, &view, &op);
    if (!done) {
        CHECK(op.kind.a == SG_MATRIX_F64); /* without fused multiply-add it is left to the lanes */
        return;
    }
    sg_matrix_resolve_same(&scratch, requests, &op.kind);
    for (uint32_t i = 0; i < n_d; i++)
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
            const void *got = width == 64 ? (void *)(sg_matrix_doublewords(&view, op.d[i]) + lane)
                                          : (void *)(sg_matrix_words(&view, op.d[i]) + lane);
            const char *wanted = (const char *)fragments[lane].c + i * size;
            if (memcmp(got, wanted, size) == 0 || (is_nan(got, (uint8_t)d) && is_nan(wanted, (uint8_t)d)))
                continue;
            uint64_t g = 0, w = 0;
            memcpy(&g, got, size);
            memcpy(&w, wanted, size);
            fprintf(stderr, "%s: m%un%uk%u of type %u: register %u of lane %u is %llx, not %llx\n", set, m, n,
                    k, op.kind.a, i, lane, (unsigned long long)g, (unsigned long long)w);
            test_failures++;
            return;
        }
}

int main(void)
{
    const struct {
        const char *name;
        sg_matrix_multiplier multiplier;
        bool there;
    } sets[] = {
        {"plain", sg_matrix_multiply_plain, true},
#if defined __x86_64__
        {"AVX2", sg_matrix_multiply_avx2,
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")},
        {"AVX-512", sg_matrix_multiply_avx512,
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq")},
#endif
    };
    for (size_t set = 0; set < sizeof(sets) / sizeof(sets[0]); set++) {
        if (!sets[set].there)
            fprintf(stderr, "%s: not on this processor\n", sets[set].name);
        for (size_t i = 0; sets[set].there && i < sizeof(kinds) / sizeof(kinds[0]); i++)
            for (uint32_t round = 0; round < ROUNDS; round++)
                check(sets[set].name, sets[set].multiplier, i, round % 2);
    }
    return TEST_RESULT();
}
