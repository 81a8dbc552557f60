/* reduce.c - see reduce.h. The same loops for each type: the types differ in how an element is loaded, combined and stored. */
#include "softgpu/nccl/reduce.h"

#include "softgpu/small_floats.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK 8192u /* bytes that are combined at once, so that partial results stay in the nearest cache */

/* --- small floating types ------------------------------------------------------------------------------- */

/* As sg_float_of_small has them. */
struct format {
    int exponent, mantissa;
    uint32_t nan, largest;
};
static const struct format e4m3 = {4, 3, 0x7f, 0x7e}, e5m2 = {5, 2, 0x7f, 0x7b};

/* To the nearest, ties to even; beyond the largest to `largest`. */
static uint32_t encode(const struct format *format, float value)
{
    const uint32_t sign = (sg_bits_of_float(value) >> 31) << (format->exponent + format->mantissa);
    const int bias = (1 << (format->exponent - 1)) - 1;
    if (isnan(value))
        return format->nan;
    value = fabsf(value);
    if (isinf(value))
        return sign | format->largest;
    int exponent;
    frexpf(value, &exponent); /* value = f * 2^exponent with f in [0.5, 1) */
    exponent--;
    if (value == 0 || exponent < 1 - bias)
        exponent = 1 - bias;
    /* In units of the last place; a carry into the next exponent is right by itself. */
    const uint32_t units = (uint32_t)rintf(ldexpf(value, format->mantissa - exponent));
    const uint32_t x = ((uint32_t)(exponent + bias - 1) << format->mantissa) + units;
    return sign | (x > format->largest ? format->largest : x);
}

static float from_e4m3(uint8_t x)
{
    return sg_float_of_small(x, 4, 3);
}
static uint8_t to_e4m3(float value)
{
    return (uint8_t)encode(&e4m3, value);
}
static float from_e5m2(uint8_t x)
{
    return sg_float_of_small(x, 5, 2);
}
static uint8_t to_e5m2(float value)
{
    return (uint8_t)encode(&e5m2, value);
}

/* --- the loops ------------------------------------------------------------------------------------------ */

#define SAME(x)            (x)
#define INTEGER_MAX(a, b)  ((a) > (b) ? (a) : (b))
#define INTEGER_MIN(a, b)  ((a) < (b) ? (a) : (b))
#define LARGER(a, b)       ((a) > (b) || isnan(b) ? (a) : (b))
#define SMALLER(a, b)      ((a) < (b) || isnan(b) ? (a) : (b))
#define DIVIDED(x, n)      ((x) / (n))
#define NOT_DIVIDED(x, n)  (x)
#define NO_FACTOR(type, n) ((type)1)
#define FACTOR(type, n)    ((type)1 / (type)(n))

/* The first two inputs, then each further one: loops without a choice inside, which compilers make vectors of. */
#define INPUT(STORED, k) ((const STORED *)inputs[k] + first)
#define COMBINE(STORED, COMBINED)                                                                            \
    {                                                                                                        \
        const STORED *restrict second = INPUT(STORED, 1);                                                    \
        for (size_t i = 0; i < count; i++)                                                                   \
            out[i] = COMBINED(one[i], second[i]);                                                            \
    }                                                                                                        \
    for (int k = 2; k < n; k++) {                                                                            \
        const STORED *restrict next = INPUT(STORED, k);                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            out[i] = COMBINED(out[i], next[i]);                                                              \
    }

/*
 * STORED: the type in memory; WIDE: that in which it is computed, unsigned for integers so that they wrap. An average's factor goes
 * through the stored type, too, as a scalar would.
 */
#define REDUCE(NAME, STORED, WIDE, LOAD, STORE, MAX, MIN, AVERAGE_FACTOR, AVERAGE_END)                       \
    static void NAME##_scaled(const struct sg_reduction *reduction, STORED *restrict out,                    \
                              const void *const *inputs, const void *const *scalars, size_t first,           \
                              size_t count)                                                                  \
    {                                                                                                        \
        const int n = reduction->n;                                                                          \
        for (int k = 0; k < n; k++) {                                                                        \
            const STORED *restrict in = INPUT(STORED, k);                                                    \
            STORED stored = STORE(AVERAGE_FACTOR(WIDE, n));                                                  \
            if (reduction->op == SG_NCCL_PRE_MUL_SUM)                                                        \
                memcpy(&stored, scalars[k], sizeof stored);                                                  \
            const WIDE factor = (WIDE)LOAD(stored);                                                          \
            for (size_t i = 0; i < count && k == 0; i++)                                                     \
                out[i] = (STORED)STORE((WIDE)LOAD(in[i]) * factor);                                          \
            for (size_t i = 0; i < count && k > 0; i++) {                                                    \
                const STORED x = (STORED)STORE((WIDE)LOAD(in[i]) * factor);                                  \
                out[i] = (STORED)STORE((WIDE)LOAD(out[i]) + (WIDE)LOAD(x));                                  \
            }                                                                                                \
        }                                                                                                    \
        for (size_t i = 0; reduction->op == ncclAvg && i < count; i++)                                       \
            out[i] = (STORED)AVERAGE_END(out[i], (STORED)n);                                                 \
    }                                                                                                        \
    static STORED NAME##_sum(STORED a, STORED b)                                                             \
    {                                                                                                        \
        return (STORED)STORE((WIDE)LOAD(a) + (WIDE)LOAD(b));                                                 \
    }                                                                                                        \
    static STORED NAME##_product(STORED a, STORED b)                                                         \
    {                                                                                                        \
        return (STORED)STORE((WIDE)LOAD(a) * (WIDE)LOAD(b));                                                 \
    }                                                                                                        \
    static STORED NAME##_largest(STORED a, STORED b)                                                         \
    {                                                                                                        \
        return (STORED)STORE(MAX(LOAD(a), LOAD(b)));                                                         \
    }                                                                                                        \
    static STORED NAME##_least(STORED a, STORED b)                                                           \
    {                                                                                                        \
        return (STORED)STORE(MIN(LOAD(a), LOAD(b)));                                                         \
    }                                                                                                        \
    static void NAME(const struct sg_reduction *reduction, STORED *restrict out, const void *const *inputs,  \
                     const void *const *scalars, size_t first, size_t count)                                 \
    {                                                                                                        \
        const int n = reduction->n;                                                                          \
        if (reduction->op == SG_NCCL_PRE_MUL_SUM || reduction->op == ncclAvg) {                              \
            NAME##_scaled(reduction, out, inputs, scalars, first, count);                                    \
            return;                                                                                          \
        }                                                                                                    \
        const STORED *restrict one = INPUT(STORED, 0);                                                       \
        if (n == 1) {                                                                                        \
            memcpy(out, one, count * sizeof *out);                                                           \
            return;                                                                                          \
        }                                                                                                    \
        switch (reduction->op) {                                                                             \
        case ncclProd:                                                                                       \
            COMBINE(STORED, NAME##_product)                                                                  \
            break;                                                                                           \
        case ncclMax:                                                                                        \
            COMBINE(STORED, NAME##_largest)                                                                  \
            break;                                                                                           \
        case ncclMin:                                                                                        \
            COMBINE(STORED, NAME##_least)                                                                    \
            break;                                                                                           \
        default:                                                                                             \
            COMBINE(STORED, NAME##_sum)                                                                      \
        }                                                                                                    \
    }

#define REDUCE_INTEGER(NAME, STORED, WIDE)                                                                   \
    REDUCE(NAME, STORED, WIDE, SAME, SAME, INTEGER_MAX, INTEGER_MIN, NO_FACTOR, DIVIDED)
#define REDUCE_FLOATING(NAME, STORED, WIDE, LOAD, STORE)                                                     \
    REDUCE(NAME, STORED, WIDE, LOAD, STORE, LARGER, SMALLER, FACTOR, NOT_DIVIDED)

REDUCE_INTEGER(reduce_int8, int8_t, uint32_t)
REDUCE_INTEGER(reduce_uint8, uint8_t, uint32_t)
REDUCE_INTEGER(reduce_int32, int32_t, uint32_t)
REDUCE_INTEGER(reduce_uint32, uint32_t, uint32_t)
REDUCE_INTEGER(reduce_int64, int64_t, uint64_t)
REDUCE_INTEGER(reduce_uint64, uint64_t, uint64_t)
REDUCE_FLOATING(reduce_float, float, float, SAME, SAME)
REDUCE_FLOATING(reduce_double, double, double, SAME, SAME)
REDUCE_FLOATING(reduce_half, uint16_t, float, sg_float_of_half, sg_half_of_float)
REDUCE_FLOATING(reduce_bfloat16, uint16_t, float, sg_float_of_bfloat16, sg_bfloat16_of_float)
REDUCE_FLOATING(reduce_e4m3, uint8_t, float, from_e4m3, to_e4m3)
REDUCE_FLOATING(reduce_e5m2, uint8_t, float, from_e5m2, to_e5m2)

/* The elements from `first` on. */
static void reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
                   const void *const *scalars, size_t first, size_t count)
{
    switch (reduction->type) {
#define TYPE(name, function)                                                                                 \
    case name:                                                                                               \
        function(reduction, out, inputs, scalars, first, count);                                             \
        break;
        TYPE(ncclInt8, reduce_int8)
        TYPE(ncclUint8, reduce_uint8)
        TYPE(ncclInt32, reduce_int32)
        TYPE(ncclUint32, reduce_uint32)
        TYPE(ncclInt64, reduce_int64)
        TYPE(ncclUint64, reduce_uint64)
        TYPE(ncclFloat16, reduce_half)
        TYPE(ncclFloat32, reduce_float)
        TYPE(ncclFloat64, reduce_double)
        TYPE(ncclBfloat16, reduce_bfloat16)
        TYPE(ncclFloat8e4m3, reduce_e4m3)
        TYPE(ncclFloat8e5m2, reduce_e5m2)
#undef TYPE
    case ncclNumTypes:
        break;
    }
}

void sg_reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
               const void *const *scalars, size_t count)
{
    const size_t width = rg_nccl_type_size(reduction->type), most = BLOCK / width;
    _Alignas(64) unsigned char partial[BLOCK];
    bool in_place = false;
    for (int k = 0; k < reduction->n; k++)
        in_place = in_place || inputs[k] == out;
    for (size_t first = 0; first < count; first += most) {
        const size_t n = count - first < most ? count - first : most;
        unsigned char *to = (unsigned char *)out + first * width;
        reduce(reduction, in_place ? partial : to, inputs, scalars, first, n);
        if (in_place)
            memcpy(to, partial, n * width);
    }
}
