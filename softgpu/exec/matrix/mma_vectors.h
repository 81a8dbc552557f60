/*
 * mma_vectors.h - multiplication of matrices that are columns of a whole warp, compiled for several
 * instruction sets: the including file names the function (SG_MATRIX_MULTIPLY_NAME) and is compiled for its
 * set.
 *
 * The four lanes of one g (mma.c) follow each other in a column, so four words of a column are a piece of a
 * row of a, of a column of b (along k), or, from two columns in turn, of a row of c.
 */
#include "softgpu/exec/matrix/matrix.h"
#include "softgpu/small_floats.h"

#include <string.h>
#if defined __F16C__ && defined __AVX2__
#include <immintrin.h>
#endif

typedef float v4 __attribute__((vector_size(16)));
typedef double v4d __attribute__((vector_size(32)));
typedef float v8 __attribute__((vector_size(32)));
typedef int32_t i8x32 __attribute__((vector_size(32)));
typedef uint16_t u8x16 __attribute__((vector_size(16)));
#if defined __AVX512F__
typedef float wide __attribute__((vector_size(64)));
#else
typedef float wide __attribute__((vector_size(32)));
#endif
#define WIDTH ((uint32_t)(sizeof(wide) / sizeof(float)))

#define LOAD(type, from)                                                                                     \
    ({                                                                                                       \
        type loaded_;                                                                                        \
        memcpy(&loaded_, (from), sizeof(loaded_));                                                           \
        loaded_;                                                                                             \
    })
#define STORE(to, value)                                                                                     \
    do {                                                                                                     \
        __typeof__(value) stored_ = (value);                                                                 \
        memcpy((to), &stored_, sizeof(stored_));                                                             \
    } while (0)

/* --- eight elements --- */

#if defined __F16C__ && defined __AVX2__
static inline v8 from_halves(u8x16 halves)
{
    return (v8)_mm256_cvtph_ps((__m128i)halves);
}

static inline u8x16 to_halves(v8 values)
{
    __m128i halves = _mm256_cvtps_ph((__m256)values, _MM_FROUND_TO_NEAREST_INT);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps((__m256)values, (__m256)values, _CMP_UNORD_Q));
    __m128i wrong = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    return (u8x16)_mm_blendv_epi8(halves, _mm_set1_epi16(0x7fff),
                                  wrong); /* the one NaN of these instructions */
}
#else
static inline v8 from_halves(u8x16 halves)
{
    v8 values;
    for (uint32_t i = 0; i < 8; i++)
        values[i] = sg_float_of_half(halves[i]);
    return values;
}

static inline u8x16 to_halves(v8 values)
{
    u8x16 halves;
    for (uint32_t i = 0; i < 8; i++)
        halves[i] = sg_half_of_float(values[i]);
    return halves;
}
#endif

static inline v8 from_bfloats(u8x16 bfloats)
{
    typedef uint32_t u8x32 __attribute__((vector_size(32)));
    u8x32 words = __builtin_convertvector(bfloats, u8x32);
    return (v8)(words << 16);
}

/* Eight rows of eight become eight columns. */
static inline void transpose(v8 rows[8])
{
    v8 pairs[8], fours[8];
    for (uint32_t i = 0; i < 8; i += 2) {
        pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (uint32_t i = 0; i < 8; i += 4)
        for (uint32_t n = 0; n < 2; n++) {
            fours[i + n] = __builtin_shufflevector(pairs[i + n], pairs[i + n + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            fours[i + n + 2] =
                __builtin_shufflevector(pairs[i + n], pairs[i + n + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (uint32_t i = 0; i < 4; i++) {
        rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* --- factors: a by rows, b with k outermost --- */

/* Words 4 g to 4 g + 3 of a column: piece `part` of eight elements (tf32: of four, and four zeros). */
static inline v8 piece_of(const uint32_t *words, uint8_t type, uint32_t part)
{
    typedef int8_t s8x8 __attribute__((vector_size(8)));
    typedef uint8_t u8x8 __attribute__((vector_size(8)));
    switch (type) {
    case SG_MATRIX_F16:
        return from_halves(LOAD(u8x16, words));
    case SG_MATRIX_BF16:
        return from_bfloats(LOAD(u8x16, words));
    case SG_MATRIX_S8:
        return __builtin_convertvector(LOAD(s8x8, words + (size_t)2 * part), v8);
    case SG_MATRIX_U8:
        return __builtin_convertvector(LOAD(u8x8, words + (size_t)2 * part), v8);
    default: {
        typedef uint32_t u4x32 __attribute__((vector_size(16)));
        u4x32 four = LOAD(u4x32, words) & 0xffffe000u;
        return __builtin_shufflevector((v4)four, (v4){0}, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    }
}

static inline uint32_t elements_of(uint8_t type) /* of a word */
{
    return type == SG_MATRIX_TF32 ? 1 : type == SG_MATRIX_S8 || type == SG_MATRIX_U8 ? 4 : 2;
}

/* a[row * k + …] */
static inline void unpack_a(float *a, const struct sg_matrix_view *view, const uint32_t *columns,
                            uint8_t type, uint32_t m, uint32_t k)
{
    uint32_t per = elements_of(type), blocks = m / 8, count = m * k / 32 / per;
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t *words = sg_matrix_words(view, columns[r]);
        float *to = a + (size_t)(8 * (r % blocks)) * k + (size_t)4 * per * (r / blocks);
        for (uint32_t g = 0; g < 8; g++) {
            for (uint32_t part = 0; part < (per + 1) / 2; part++) {
                v8 piece = piece_of(words + (size_t)4 * g, type, part);
                if (per > 1)
                    STORE(to + (size_t)g * k + (size_t)8 * part, piece);
                else
                    memcpy(to + (size_t)g * k, &piece, sizeof(v4));
            }
        }
    }
}

/* b[place along k * n + column] */
static inline void unpack_b(float *b, const struct sg_matrix_view *view, const uint32_t *columns,
                            uint8_t type, uint32_t n, uint32_t k)
{
    uint32_t per = elements_of(type), blocks = n / 8, count = n * k / 32 / per;
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t *words = sg_matrix_words(view, columns[r]);
        float *to = b + (size_t)4 * per * (r / blocks) * n + (size_t)8 * (r % blocks);
        for (uint32_t part = 0; part < (per + 1) / 2; part++) {
            v8 rows[8];
            for (uint32_t g = 0; g < 8; g++)
                rows[g] = piece_of(words + (size_t)4 * g, type, part);
            transpose(rows);
            for (uint32_t e = 0; e < (per > 1 ? 8 : 4); e++)
                STORE(to + (size_t)(8 * part + e) * n, rows[e]);
        }
    }
}

/* --- sums, by rows --- */

static inline void unpack_sum(float *c, const struct sg_matrix_view *view, const uint32_t *columns,
                              uint8_t type, uint32_t m, uint32_t n)
{
    uint32_t blocks = m / 8;
    for (uint32_t i = 0; i < m * n / 64; i++) {
        float *to = c + (size_t)(8 * (i % blocks)) * n + (size_t)8 * (i / blocks);
        for (uint32_t g = 0; g < 8; g++) {
            if (type == SG_MATRIX_F16) {
                STORE(to + (size_t)g * n,
                      from_halves(LOAD(u8x16, sg_matrix_words(view, columns[i]) + (size_t)4 * g)));
                continue;
            }
            v4 even = LOAD(v4, sg_matrix_words(view, columns[2 * i]) + (size_t)4 * g);
            v4 odd = LOAD(v4, sg_matrix_words(view, columns[2 * i + 1]) + (size_t)4 * g);
            STORE(to + (size_t)g * n, __builtin_shufflevector(even, odd, 0, 4, 1, 5, 2, 6, 3, 7));
        }
    }
}

static inline void pack_sum(const float *c, const struct sg_matrix_view *view, const uint32_t *columns,
                            uint8_t type, uint32_t m, uint32_t n)
{
    uint32_t blocks = m / 8;
    for (uint32_t i = 0; i < m * n / 64; i++) {
        const float *from = c + (size_t)(8 * (i % blocks)) * n + (size_t)8 * (i / blocks);
        for (uint32_t g = 0; g < 8; g++) {
            v8 row = LOAD(v8, from + (size_t)g * n);
            if (type == SG_MATRIX_F16) {
                STORE(sg_matrix_words(view, columns[i]) + (size_t)4 * g, to_halves(row));
                continue;
            }
            STORE(sg_matrix_words(view, columns[2 * i]) + (size_t)4 * g,
                  __builtin_shufflevector(row, row, 0, 2, 4, 6));
            STORE(sg_matrix_words(view, columns[2 * i + 1]) + (size_t)4 * g,
                  __builtin_shufflevector(row, row, 1, 3, 5, 7));
        }
    }
}

/* --- multiplication --- */

/* `rows` rows of `vectors` vectors each, kept in registers while k advances. */
#define TILE(name, vector, rows, vectors)                                                                    \
    static inline void name(float *c, const float *a, const float *b, uint32_t n, uint32_t k)                \
    {                                                                                                        \
        enum { LANES = sizeof(vector) / sizeof(float) };                                                     \
        vector sums[rows][vectors];                                                                          \
        for (uint32_t i = 0; i < (rows); i++)                                                                \
            for (uint32_t j = 0; j < (vectors); j++)                                                         \
                sums[i][j] = LOAD(vector, c + (size_t)i * n + (size_t)j * LANES);                            \
        for (uint32_t l = 0; l < k; l++) {                                                                   \
            for (uint32_t j = 0; j < (vectors); j++) {                                                       \
                vector factor = LOAD(vector, b + (size_t)l * n + (size_t)j * LANES);                         \
                for (uint32_t i = 0; i < (rows); i++)                                                        \
                    sums[i][j] += a[(size_t)i * k + l] * factor;                                             \
            }                                                                                                \
        }                                                                                                    \
        for (uint32_t i = 0; i < (rows); i++)                                                                \
            for (uint32_t j = 0; j < (vectors); j++)                                                         \
                STORE(c + (size_t)i * n + (size_t)j * LANES, sums[i][j]);                                    \
    }

TILE(tile_narrow, v8, 8, 1)
TILE(tile_wide, wide, 4, 16 / WIDTH)

static inline void multiply(float *c, const float *a, const float *b, uint32_t m, uint32_t n, uint32_t k)
{
    if (n == 8) {
        for (uint32_t i = 0; i < m; i += 8)
            tile_narrow(c + (size_t)i * n, a + (size_t)i * k, b, n, k);
        return;
    }
    for (uint32_t i = 0; i < m; i += 4)
        for (uint32_t j = 0; j < n; j += 16)
            tile_wide(c + (size_t)i * n + j, a + (size_t)i * k, b + j, n, k);
}

static void multiply_floats(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                            const struct sg_matrix_op *op)
{
    uint32_t m = op->kind.m, n = op->kind.n, k = op->kind.k_quarter * 4u;
    switch (op->kind.a) { /* a copy of the code for each */
    case SG_MATRIX_F16:
        unpack_a(scratch->a.f32, view, op->a, SG_MATRIX_F16, m, k);
        unpack_b(scratch->b.f32, view, op->b, SG_MATRIX_F16, n, k);
        break;
    case SG_MATRIX_BF16:
        unpack_a(scratch->a.f32, view, op->a, SG_MATRIX_BF16, m, k);
        unpack_b(scratch->b.f32, view, op->b, SG_MATRIX_BF16, n, k);
        break;
    default:
        unpack_a(scratch->a.f32, view, op->a, SG_MATRIX_TF32, m, k);
        unpack_b(scratch->b.f32, view, op->b, SG_MATRIX_TF32, n, k);
        break;
    }
    if ((op->kind.c_d & 15) == SG_MATRIX_F16)
        unpack_sum(scratch->c.f32, view, op->c, SG_MATRIX_F16, m, n);
    else
        unpack_sum(scratch->c.f32, view, op->c, SG_MATRIX_F32, m, n);
    multiply(scratch->c.f32, scratch->a.f32, scratch->b.f32, m, n, k);
    if (op->kind.c_d >> 4 == SG_MATRIX_F16)
        pack_sum(scratch->c.f32, view, op->d, SG_MATRIX_F16, m, n);
    else
        pack_sum(scratch->c.f32, view, op->d, SG_MATRIX_F32, m, n);
}

/* Bytes: sums of up to 32 products are below 2^24, so float has them exactly; c is added as an integer. */
static void multiply_bytes(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                           const struct sg_matrix_op *op)
{
    uint32_t m = op->kind.m, n = op->kind.n, k = op->kind.k_quarter * 4u;
    bool saturates = (op->kind.flags & SG_MATRIX_SATURATE) != 0;
    unpack_a(scratch->a.f32, view, op->a, op->kind.a, m, k);
    unpack_b(scratch->b.f32, view, op->b, op->kind.b, n, k);
    memset(scratch->c.f32, 0, (size_t)m * n * sizeof(float));
    multiply(scratch->c.f32, scratch->a.f32, scratch->b.f32, m, n, k);
    for (uint32_t i = 0; i < m * n / 32; i++)
        memcpy(scratch->sum + (size_t)i * SG_WARP_SIZE, sg_matrix_words(view, op->c[i]),
               sizeof(uint32_t) * SG_WARP_SIZE);
    for (uint32_t i = 0; i < m * n / 32; i++) {
        uint32_t blocks = m / 8, row = 8 * (i / 2 % blocks), column = 8 * (i / 2 / blocks) + i % 2;
        uint32_t *to = sg_matrix_words(view, op->d[i]);
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
            float product = scratch->c.f32[(row + lane / 4) * n + column + lane % 4 * 2];
            int64_t sum = (int64_t)scratch->sum[i * SG_WARP_SIZE + lane] + (int32_t)product;
            if (saturates)
                sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            to[lane] = (uint32_t)sum;
        }
    }
}

#if defined __FMA__
/*
 * Chains of fused multiply-adds; one double a register, so a column's four lanes of one g are four steps
 * along k.
 */
static void multiply_doubles(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                             const struct sg_matrix_op *op)
{
    uint32_t m = op->kind.m, n = op->kind.n, k = op->kind.k_quarter * 4u, blocks = m / 8;
    double *a = scratch->a.f64, *b = scratch->b.f64;
    for (uint32_t r = 0; r < m * k / 32; r++)
        for (uint32_t g = 0; g < 8; g++)
            STORE(a + (size_t)(8 * (r % blocks) + g) * k + (size_t)4 * (r / blocks),
                  LOAD(v4d, sg_matrix_doublewords(view, op->a[r]) + (size_t)4 * g));
    for (uint32_t r = 0; r < n * k / 32; r++) {
        const uint64_t *words = sg_matrix_doublewords(view, op->b[r]);
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
            memcpy(b + (size_t)(4 * r + lane % 4) * n + lane / 4, words + lane, sizeof(double));
    }
    for (uint32_t i = 0; i < m / 4; i++) /* n is 8 */
        memcpy(scratch->c.f64 + (size_t)i * SG_WARP_SIZE, sg_matrix_doublewords(view, op->c[i]),
               sizeof(double) * SG_WARP_SIZE);
    for (uint32_t row = 0; row < m; row++) {
        uint32_t i = row / 8 * 2, g = row % 8;
        const double *c = scratch->c.f64 + (size_t)i * SG_WARP_SIZE + (size_t)4 * g;
        v4d even = LOAD(v4d, c), odd = LOAD(v4d, c + SG_WARP_SIZE);
        v4d low = __builtin_shufflevector(even, odd, 0, 4, 1, 5),
            high = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
        for (uint32_t l = 0; l < k; l++) {
            low += a[(size_t)row * k + l] * LOAD(v4d, b + (size_t)l * n);
            high += a[(size_t)row * k + l] * LOAD(v4d, b + (size_t)l * n + 4);
        }
        STORE(sg_matrix_doublewords(view, op->d[i]) + (size_t)4 * g,
              __builtin_shufflevector(low, high, 0, 2, 4, 6));
        STORE(sg_matrix_doublewords(view, op->d[i + 1]) + (size_t)4 * g,
              __builtin_shufflevector(low, high, 1, 3, 5, 7));
    }
}
#endif

bool SG_MATRIX_MULTIPLY_NAME(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                             const struct sg_matrix_op *op)
{
    const struct sg_matrix_kind *kind = &op->kind;
    if (kind->m == 8 && kind->k_quarter == 1 && kind->a == SG_MATRIX_F16)
        return false; /* four multiplications */
    if ((kind->flags & SG_MATRIX_SPARSE) != 0)
        return false;
    switch (kind->a) {
    case SG_MATRIX_F16:
    case SG_MATRIX_BF16:
    case SG_MATRIX_TF32:
        multiply_floats(scratch, view, op);
        return true;
    case SG_MATRIX_S8:
    case SG_MATRIX_U8:
        if (kind->b != SG_MATRIX_S8 && kind->b != SG_MATRIX_U8)
            return false;
        multiply_bytes(scratch, view, op);
        return true;
#if defined __FMA__
    case SG_MATRIX_F64:
        multiply_doubles(scratch, view, op);
        return true;
#endif
    default:
        return false;
    }
}
