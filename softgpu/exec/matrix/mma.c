/*
 * mma.c - multiplication of matrices that the registers of a warp hold.
 *
 * Where an element is. A lane has the numbers g = lane / 4 and t = lane % 4. A register of a or b holds E
 * elements that follow each other in k (E = 32 / their bits; 1 for tf32 and f64). With MB = m / 8 and NB = n
 * / 8:
 *   register r of a: row g + 8 (r mod MB), and k = 4 E (r div MB) + t E + 0 … E-1
 *   register r of b: column g + 8 (r mod NB), and k = 4 E (r div NB) + t E + 0 … E-1
 *   element i of c, d: row g + 8 (i/2 mod MB), column 8 (i/2 div MB) + 2 t + i mod 2; f16: two in a register
 * For the shapes of mma.sync these are the layouts that PTX documents. Those of wmma are opaque; here they
 * follow the same rule, and registers beyond those that a matrix needs (a and b of f16) repeat them from the
 * first on.
 *
 * Of a sparse matrix a (mma.sp) there is half of the elements of each row, as a matrix of k / 2. Four bits say which of a group they
 * are: of four elements two, by two bits each; of half bytes, which come in pairs, of four pairs two; of two words one, as one of four
 * halves that it begins with. Group i of row r is described by a lane of those with g = r mod 8,
 *   of 16 bits and more: bits 4 (i mod 4) + 16 (r div 8) of lane t = first + i div 4
 *   of fewer:            bits 4 (i mod 8) of lane t = first + 2 (i div 8) + r div 8
 * with the first of the lanes that the instruction's selector chooses.
 *
 * Arithmetic. Sums begin with c and take the products in ascending k. f16, bf16 and tf32 (its upper 19 bits)
 * are multiplied and added in float, and so are the types of 8 bits and fewer: their products are exact
 * unless they leave float's range. A result of type f16 is rounded once, at the end. f64 is a chain of fused
 * multiply-adds. Integers are summed exactly, and wrap or saturate at the end.
 */
#include "softgpu/exec/matrix/matrix.h"

#include "softgpu/small_floats.h"

#include <math.h>
#include <string.h>

/* --- elements --- */

unsigned sg_matrix_bits(uint8_t type)
{
    static const uint8_t bits[] = {
        [SG_MATRIX_F16] = 16, [SG_MATRIX_BF16] = 16, [SG_MATRIX_TF32] = 32, [SG_MATRIX_F32] = 32,
        [SG_MATRIX_F64] = 64, [SG_MATRIX_S8] = 8,    [SG_MATRIX_U8] = 8,    [SG_MATRIX_S4] = 4,
        [SG_MATRIX_U4] = 4,   [SG_MATRIX_B1] = 1,    [SG_MATRIX_S32] = 32,  [SG_MATRIX_E4M3] = 8,
        [SG_MATRIX_E5M2] = 8, [SG_MATRIX_E2M1] = 8,  [SG_MATRIX_E2M3] = 8,  [SG_MATRIX_E3M2] = 8};
    return bits[type];
}

/* Element `e` of the register (for f64 of two words) at `words`. */
static float get_float(const uint32_t *words, uint8_t type, unsigned e)
{
    switch (type) {
    case SG_MATRIX_F16:
        return sg_float_of_half(*words >> 16 * e & 0xffff);
    case SG_MATRIX_BF16:
        return sg_float_of_bits(*words >> 16 * e << 16);
    case SG_MATRIX_TF32:
        return sg_float_of_bits(*words & 0xffffe000);
    case SG_MATRIX_E4M3:
        return sg_float_of_small(*words >> 8 * e, 4, 3);
    case SG_MATRIX_E5M2:
        return sg_float_of_small(*words >> 8 * e, 5, 2);
    case SG_MATRIX_E2M1:
        return sg_float_of_small(*words >> (8 * e + 2), 2, 1);
    case SG_MATRIX_E2M3:
        return sg_float_of_small(*words >> 8 * e, 2, 3);
    case SG_MATRIX_E3M2:
        return sg_float_of_small(*words >> 8 * e, 3, 2);
    default:
        return sg_float_of_bits(*words);
    }
}

static int32_t get_integer(uint32_t word, uint8_t type, unsigned e)
{
    switch (type) {
    case SG_MATRIX_S8:
        return (int8_t)(word >> 8 * e);
    case SG_MATRIX_U8:
        return (uint8_t)(word >> 8 * e);
    case SG_MATRIX_S4:
        return (int32_t)((word >> 4 * e & 15) ^ 8) - 8;
    case SG_MATRIX_U4:
        return (int32_t)(word >> 4 * e & 15);
    case SG_MATRIX_B1:
        return (int32_t)(word >> e & 1);
    default:
        return (int32_t)word;
    }
}

/* --- lanes and elements --- */

/* Which of the three ways to compute the type takes. */
enum path { PATH_FLOAT, PATH_DOUBLE, PATH_INTEGER };

static enum path path_of(uint8_t type)
{
    if (type == SG_MATRIX_F64)
        return PATH_DOUBLE;
    return type <= SG_MATRIX_F32 || type >= SG_MATRIX_E4M3 ? PATH_FLOAT : PATH_INTEGER;
}

static void put_factor(void *to, enum path path, uint32_t place, const uint32_t *words, uint8_t type,
                       unsigned e)
{
    if (path == PATH_FLOAT)
        ((float *)to)[place] = get_float(words, type, e);
    else if (path == PATH_DOUBLE)
        memcpy((double *)to + place, words, sizeof(double));
    else
        ((int32_t *)to)[place] = get_integer(*words, type, e);
}

/*
 * Spreads a lane's registers of a factor of `across` rows of a, or columns of b: element (x, y) with y along
 * k goes to y * step_k + x * step_x.
 */
static void gather_factor(void *to, const uint32_t *words, uint8_t type, uint32_t lane, uint32_t across,
                          uint32_t k, uint32_t step_x, uint32_t step_k)
{
    uint32_t g = lane / 4, t = lane % 4, blocks = across / 8;
    uint32_t width = type == SG_MATRIX_F64 ? 2 : 1, per = 32 * width / sg_matrix_bits(type);
    uint32_t count = across * k / 32 / per;
    enum path path = path_of(type);
    for (uint32_t r = 0; r < count; r++) {
        uint32_t x = g + 8 * (r % blocks), y = 4 * per * (r / blocks) + t * per;
        for (uint32_t e = 0; e < per; e++)
            put_factor(to, path, x * step_x + (y + e) * step_k, words + (size_t)r * width, type, e);
    }
}

static void gather_sum(struct sg_matrix_scratch *scratch, const struct sg_matrix_kind *kind, uint32_t lane,
                       const uint32_t *words, uint8_t type)
{
    uint32_t count = kind->m * kind->n / 32u;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = sg_matrix_sum_place(kind, lane, i);
        if (type == SG_MATRIX_F64)
            memcpy(&scratch->c.f64[place], words + (size_t)2 * i, sizeof(double));
        else if (type == SG_MATRIX_S32)
            scratch->c.s32[place] = (int32_t)words[i];
        else if (type == SG_MATRIX_F32)
            scratch->c.f32[place] = sg_float_of_bits(words[i]);
        else
            scratch->c.f32[place] = sg_float_of_half(words[i / 2] >> 16 * (i % 2) & 0xffff);
    }
}

static void scatter_sum(const struct sg_matrix_scratch *scratch, const struct sg_matrix_kind *kind,
                        uint32_t lane, uint32_t *words, uint8_t type)
{
    uint32_t count = kind->m * kind->n / 32u;
    if (type == SG_MATRIX_F16)
        memset(words, 0, count * sizeof(uint16_t));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = sg_matrix_sum_place(kind, lane, i);
        if (type == SG_MATRIX_F64)
            memcpy(words + (size_t)2 * i, &scratch->c.f64[place], sizeof(double));
        else if (type == SG_MATRIX_S32)
            words[i] = (uint32_t)scratch->c.s32[place];
        else if (type == SG_MATRIX_F32)
            words[i] = sg_bits_of_float(scratch->c.f32[place]);
        else
            words[i / 2] |= (uint32_t)sg_half_of_float(scratch->c.f32[place]) << 16 * (i % 2);
    }
}

/* --- multiplication: c += a b, with c m by n, a k by m, b k by n in memory; k is that of a --- */

/* Of a sparse matrix: which element of its row stored element `l` of row `row` is. */
static uint32_t sparse_place(struct sg_matrix_request *const *requests, const struct sg_matrix_kind *kind,
                             uint32_t row, uint32_t l)
{
    const unsigned bits = sg_matrix_bits(kind->a);
    const uint32_t stored = bits == 32 ? 1 : bits == 4 ? 4 : 2, group = l / stored, which = l % stored;
    const uint32_t t =
        (kind->flags >> SG_MATRIX_SPARSE_LANE) + (bits >= 16 ? group / 4 : group / 8 * 2 + row / 8);
    const uint32_t shift = bits >= 16 ? group % 4 * 4 + row / 8 * 16 : group % 8 * 4;
    const struct sg_matrix_request *request = requests[row % 8 * 4 + t];
    const uint32_t code = request ? request->fragments->metadata >> shift & 15 : 0;
    if (bits == 32)
        return group * 2 + (code >> 1 & 1);
    if (bits == 4)
        return group * 8 + (code >> which / 2 * 2 & 3) * 2 + which % 2;
    return group * 4 + (code >> which * 2 & 3);
}

/* Has scratch->places say which row of b goes with each element of a; k: of a. */
static void find_places(struct sg_matrix_scratch *scratch, struct sg_matrix_request *const *requests,
                        const struct sg_matrix_kind *kind, uint32_t k)
{
    const bool sparse = (kind->flags & SG_MATRIX_SPARSE) != 0;
    for (uint32_t i = 0; i < kind->m; i++)
        for (uint32_t l = 0; l < k; l++)
            scratch->places[i * k + l] = (uint8_t)(sparse ? sparse_place(requests, kind, i, l) : l);
}

static void multiply_float(struct sg_matrix_scratch *scratch, uint32_t m, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < m; i++) {
        float *restrict c = &scratch->c.f32[i * n];
        for (uint32_t l = 0; l < k; l++) {
            const float *restrict b = &scratch->b.f32[scratch->places[i * k + l] * n];
            float a = scratch->a.f32[l * m + i];
            for (uint32_t j = 0; j < n; j++)
                c[j] += a * b[j];
        }
    }
}

static void multiply_double(struct sg_matrix_scratch *scratch, uint32_t m, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t l = 0; l < k; l++)
            for (uint32_t j = 0; j < n; j++)
                scratch->c.f64[i * n + j] =
                    fma(scratch->a.f64[l * m + i], scratch->b.f64[l * n + j], scratch->c.f64[i * n + j]);
}

/* Products of at most 16 bits, at most 256 of them: their sum fits 32 bits; adding c may not. */
static void multiply_integer(struct sg_matrix_scratch *scratch, uint32_t m, uint32_t n, uint32_t k,
                             uint8_t flags, bool bits)
{
    memset(scratch->sum, 0, (size_t)m * n * sizeof(int32_t));
    for (uint32_t i = 0; i < m; i++) {
        int32_t *restrict sum = &scratch->sum[i * n];
        for (uint32_t l = 0; l < k; l++) {
            const int32_t *restrict b = &scratch->b.s32[scratch->places[i * k + l] * n];
            int32_t a = scratch->a.s32[l * m + i];
            if (bits && (flags & SG_MATRIX_XOR) != 0)
                for (uint32_t j = 0; j < n; j++)
                    sum[j] += a ^ b[j];
            else
                for (uint32_t j = 0; j < n; j++)
                    sum[j] += a * b[j];
        }
    }
    for (uint32_t i = 0; i < m * n; i++) {
        int64_t sum = (int64_t)scratch->c.s32[i] + scratch->sum[i];
        if ((flags & SG_MATRIX_SATURATE) != 0)
            sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        scratch->c.s32[i] = (int32_t)(uint32_t)sum;
    }
}

/*
 * m8n8k4 of f16. Each quarter of the warp, lanes 4 q to 4 q + 3 and those 16 further, has an 8 by 4 matrix a,
 * a 4 by 8 matrix b and 8 by 8 sums. Of its eight lanes, lane i (the upper four are 4 to 7) holds
 *   of a: row i; with .col, of rows 4 (i / 4) + 0 … 3 the column i mod 4
 *   of b: column i; with .row, of columns 4 (i / 4) + 0 … 3 the row i mod 4
 *   of f16 sums: row i
 *   of float sums element e: row (i & 1) + (e & 2) + 4 (i / 4), column (e & 4) + (i & 2) + (e & 1)
 */
static void multiply_quarter(struct sg_matrix_request *const *requests, const struct sg_matrix_kind *kind,
                             uint32_t quarter)
{
    static const struct sg_matrix_fragments zeros;
    struct sg_matrix_fragments *fragments[8];
    float a[8][4], b[4][8], c[8][8];
    uint8_t from = kind->c_d & 15, to = kind->c_d >> 4;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t lane = quarter * 4 + i % 4 + i / 4 * 16, base = i & 4;
        fragments[i] = requests[lane] ? requests[lane]->fragments : NULL;
        const struct sg_matrix_fragments *own = fragments[i] ? fragments[i] : &zeros;
        for (uint32_t e = 0; e < 4; e++) {
            float x = sg_float_of_half(own->a[e / 2] >> 16 * (e % 2) & 0xffff);
            float y = sg_float_of_half(own->b[e / 2] >> 16 * (e % 2) & 0xffff);
            bool columns = (kind->flags & SG_MATRIX_A_COLUMNS) != 0,
                 rows = (kind->flags & SG_MATRIX_B_ROWS) != 0;
            a[columns ? base + e : i][columns ? i % 4 : e] = x;
            b[rows ? i % 4 : e][rows ? base + e : i] = y;
        }
        for (uint32_t e = 0; e < 8; e++) {
            if (from == SG_MATRIX_F16)
                c[i][e] = sg_float_of_half(own->c[e / 2] >> 16 * (e % 2) & 0xffff);
            else
                c[(i & 1) + (e & 2) + base][(e & 4) + (i & 2) + (e & 1)] = sg_float_of_bits(own->c[e]);
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < 8; j++)
            for (uint32_t l = 0; l < 4; l++)
                c[i][j] += a[i][l] * b[l][j];
    for (uint32_t i = 0; i < 8; i++) {
        if (!fragments[i])
            continue;
        memset(fragments[i]->c, 0, 8 * sizeof(uint32_t));
        for (uint32_t e = 0; e < 8; e++) {
            if (to == SG_MATRIX_F16)
                fragments[i]->c[e / 2] |= (uint32_t)sg_half_of_float(c[i][e]) << 16 * (e % 2);
            else
                fragments[i]->c[e] =
                    sg_bits_of_float(c[(i & 1) + (e & 2) + (i & 4)][(e & 4) + (i & 2) + (e & 1)]);
        }
    }
}

void sg_matrix_multiply(struct sg_matrix_scratch *scratch, struct sg_matrix_request *const *requests,
                        const struct sg_matrix_kind *kind)
{
    static const struct sg_matrix_fragments zeros;
    uint32_t m = kind->m, n = kind->n, k = kind->k_quarter * 4u;
    if (m == 8 && k == 4 && kind->a == SG_MATRIX_F16) {
        for (uint32_t quarter = 0; quarter < 4; quarter++)
            multiply_quarter(requests, kind, quarter);
        return;
    }
    const uint32_t k_a = (kind->flags & SG_MATRIX_SPARSE) != 0 ? k / 2 : k;
    find_places(scratch, requests, kind, k_a);
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
        const struct sg_matrix_fragments *fragments = requests[lane] ? requests[lane]->fragments : &zeros;
        gather_factor(&scratch->a, fragments->a, kind->a, lane, m, k_a, 1, m);
        gather_factor(&scratch->b, fragments->b, kind->b, lane, n, k, 1, n);
        gather_sum(scratch, kind, lane, fragments->c, kind->c_d & 15);
    }
    switch (path_of(kind->a)) {
    case PATH_FLOAT:
        multiply_float(scratch, m, n, k_a);
        break;
    case PATH_DOUBLE:
        multiply_double(scratch, m, n, k);
        break;
    case PATH_INTEGER:
        multiply_integer(scratch, m, n, k_a, kind->flags, kind->a == SG_MATRIX_B1);
        break;
    }
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
        if (requests[lane])
            scatter_sum(scratch, kind, lane, requests[lane]->fragments->c, kind->c_d >> 4);
}
