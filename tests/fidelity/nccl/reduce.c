/*
 * reduce.c - what NCCL is to compute, computed by the host: inputs of every type, and each operator in the order of a ring.
 */
#include "tests/fidelity/nccl/reduce.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int n;
unsigned char *inputs[DEVICES_MAX], *expected;

void reduce_begin(int ranks)
{
    n = ranks;
    expected = malloc(SIZE);
    for (int rank = 0; rank < n; rank++)
        inputs[rank] = malloc(SIZE);
}

static uint64_t seed = 1;

static unsigned any(unsigned below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 33) % below;
}

unsigned small_float(int value, int exponent_bits, int mantissa)
{
    if (!value)
        return 0;
    const int bias = (1 << (exponent_bits - 1)) - 1, size = abs(value);
    int exponent = 0;
    while (size >> (exponent + 1))
        exponent++;
    const int fraction = exponent > mantissa ? (size - (1 << exponent)) >> (exponent - mantissa)
                                             : (size - (1 << exponent)) << (mantissa - exponent);
    return (unsigned)(value < 0) << (exponent_bits + mantissa) | (unsigned)(exponent + bias) << mantissa |
           (unsigned)fraction;
}

bool has_small_floats(ncclDataType_t type, int *exponent, int *mantissa)
{
    switch (type) {
    case ncclFloat16:
        *exponent = 5, *mantissa = 10;
        return true;
    case ncclBfloat16:
        *exponent = 8, *mantissa = 7;
        return true;
    case ncclFloat8e4m3:
        *exponent = 4, *mantissa = 3;
        return true;
    case ncclFloat8e5m2:
        *exponent = 5, *mantissa = 2;
        return true;
    default:
        return false;
    }
}

static int small[DEVICES_MAX][4096]; /* what the inputs of such types are */

void fill(int rank, ncclDataType_t type, size_t count)
{
    int exponent, mantissa;
    const size_t width = rg_nccl_type_size(type);
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = inputs[rank] + i * width;
        if (has_small_floats(type, &exponent, &mantissa)) {
            small[rank][i] =
                (int)any(2); /* no sum, product or average of up to 4 needs more bits than there are */
            const unsigned bits = small_float(small[rank][i], exponent, mantissa);
            memcpy(at, &bits, width);
        } else if (type == ncclFloat32) {
            const float value = (float)any(1u << 30) / 12345.6f - 40000;
            memcpy(at, &value, width);
        } else if (type == ncclFloat64) {
            const double value = (double)any(1u << 30) / 12345.6 - 40000;
            memcpy(at, &value, width);
        } else {
            for (size_t b = 0; b < width; b++)
                at[b] = (unsigned char)any(256);
        }
    }
}

#define COMBINE(type, name)                                                                                  \
    static type name(type a, type b, int op)                                                                 \
    {                                                                                                        \
        return op == ncclProd  ? (type)(a * b)                                                               \
               : op == ncclMax ? (a > b ? a : b)                                                             \
               : op == ncclMin ? (a < b ? a : b)                                                             \
                               : (type)(a + b);                                                              \
    }
COMBINE(float, combine_float)
COMBINE(double, combine_double)

static uint64_t load_integer(const unsigned char *at, ncclDataType_t type)
{
    const size_t width = rg_nccl_type_size(type);
    const bool is_signed = type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
    uint64_t value = 0;
    memcpy(&value, at, width);
    if (is_signed && width < 8 && value >> (8 * width - 1))
        value |= ~0ull << (8 * width);
    return value;
}

static uint64_t combine_integers(uint64_t a, uint64_t b, int op, bool is_signed)
{
    const bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    return op == ncclProd ? a * b : op == ncclMax ? (less ? b : a) : op == ncclMin ? (less ? a : b) : a + b;
}

static void reduce_integer(unsigned char *to, ncclDataType_t type, int op, const size_t *offsets)
{
    const size_t width = rg_nccl_type_size(type);
    const bool is_signed = type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
    uint64_t value = load_integer(inputs[0] + offsets[0] * width, type);
    for (int rank = 1; rank < n; rank++)
        value = combine_integers(value, load_integer(inputs[rank] + offsets[0] * width, type), op, is_signed);
    if (op == ncclAvg) {
        memcpy(to, &value, width); /* of the sum as it wraps */
        value = load_integer(to, type);
        value = is_signed ? (uint64_t)((int64_t)value / n) : value / (unsigned)n;
    }
    memcpy(to, &value, width);
}

void reduce_element(unsigned char *to, ncclDataType_t type, int op, size_t i, int last, const double *factors)
{
    const size_t width = rg_nccl_type_size(type);
    int exponent, mantissa;
    if (has_small_floats(type, &exponent, &mantissa)) {
        int value = 0;
        for (int k = 0; k < n; k++) {
            const int next = small[k][i] * (factors ? (int)factors[k] : 1);
            value = k ? (int)combine_double(value, next, op) : next;
        }
        unsigned bits = small_float(value, exponent, mantissa);
        if (op == ncclAvg) /* n is a power of two */
            bits -= value ? (unsigned)(n == 2 ? 1 : 2) << mantissa : 0;
        memcpy(to, &bits, width);
    } else if (type == ncclFloat32) {
        float value = 0, next;
        for (int k = 0; k < n; k++) {
            memcpy(&next, inputs[(last + 1 + k) % n] + i * width, width);
            if (factors || op == ncclAvg)
                next *= factors ? (float)factors[(last + 1 + k) % n] : 1.0f / (float)n;
            value = k ? combine_float(value, next, op) : next;
        }
        memcpy(to, &value, width);
    } else if (type == ncclFloat64) {
        double value = 0, next;
        for (int k = 0; k < n; k++) {
            memcpy(&next, inputs[(last + 1 + k) % n] + i * width, width);
            if (factors || op == ncclAvg)
                next *= factors ? factors[(last + 1 + k) % n] : 1.0 / n;
            value = k ? combine_double(value, next, op) : next;
        }
        memcpy(to, &value, width);
    } else if (factors) {
        uint64_t value = 0;
        for (int k = 0; k < n; k++)
            value += load_integer(inputs[k] + i * width, type) * (uint64_t)factors[k];
        memcpy(to, &value, width);
    } else {
        reduce_integer(to, type, op, &i);
    }
}

/* The rank whose block element `i` of `count` is in. */
static int block_of(size_t i, size_t count)
{
    const size_t large = count % (size_t)n, each = count / (size_t)n;
    return (int)(i < large * (each + 1) ? i / (each + 1) : large + (i - large * (each + 1)) / each);
}

void reduce_all(ncclDataType_t type, int op, size_t count, int root, const double *factors)
{
    const size_t width = rg_nccl_type_size(type);
    for (size_t i = 0; i < count; i++)
        reduce_element(expected + i * width, type, op, i, root >= 0 ? root : block_of(i, count), factors);
}
