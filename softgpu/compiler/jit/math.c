/*
 * math.c - see math.h. Directed rounding of double takes the nearest result and its error, which is exact
 * where nothing overflows or underflows: the sign of the error says whether the wanted result is the
 * neighbour. All other cases switch the host's rounding mode around the operation, which takes many times as
 * long (tens of nanoseconds on virtual machines) and is kept from moving by volatile operands. Any thread.
 */
#include "softgpu/compiler/jit/math.h"
#include "softgpu/compiler/ir/instruction.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/*
 * The host's rounding mode is set around the operation and put back. fesetround would also set the x87
 * unit's, which costs ten times the operation and which nothing here uses.
 */
#ifdef __x86_64__

typedef uint32_t host_mode_t;

static inline host_mode_t begin_rounding(uint32_t round)
{
    static const uint8_t modes[] = {[SG_RN] = 0, [SG_RM] = 1, [SG_RP] = 2, [SG_RZ] = 3};
    uint32_t before, during;
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    during = (before & ~0x6000u) | (round < sizeof(modes) ? (uint32_t)modes[round] << 13 : 0);
    __asm__ volatile("ldmxcsr %0" : : "m"(during));
    return before;
}

static inline void end_rounding(host_mode_t before)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(before));
}

#else

typedef int host_mode_t;

static inline host_mode_t begin_rounding(uint32_t round)
{
    fesetround(round == SG_RZ   ? FE_TOWARDZERO
               : round == SG_RM ? FE_DOWNWARD
               : round == SG_RP ? FE_UPWARD
                                : FE_TONEAREST);
    return FE_TONEAREST;
}

static inline void end_rounding(host_mode_t before)
{
    fesetround(before);
}

#endif

#define ROUNDED(type, expression)                                                                            \
    do {                                                                                                     \
        host_mode_t before_ = begin_rounding(round);                                                         \
        volatile type result = (expression);                                                                 \
        end_rounding(before_);                                                                               \
        return result;                                                                                       \
    } while (0)

/* Magnitudes between which an error is neither lost to underflow nor spoiled by overflow. */
#define LEAST    0x1p-900
#define GREATEST 0x1p1000

static inline bool between(double value)
{
    double magnitude = fabs(value);
    return magnitude > LEAST && magnitude < GREATEST;
}

/** The wanted result, where `nearest` is not 0 and the exact one exceeds it by the sign of `error`. */
static inline double adjust(double nearest, double error, uint32_t round)
{
    bool negative = nearest < 0;
    if (round == SG_RZ)
        round = negative ? SG_RP : SG_RM;
    int64_t bits, step = round == SG_RP ? error > 0 : round == SG_RM ? -(error < 0) : 0;
    memcpy(&bits, &nearest, sizeof(bits));
    bits += negative ? -step : step;
    memcpy(&nearest, &bits, sizeof(bits));
    return nearest;
}

double sg_math_add_f64(double a, double b, uint32_t round)
{
    double sum = a + b;
    if (sum != 0 && fabs(a) < GREATEST && fabs(b) < GREATEST) {
        double b_part = sum - a, a_part = sum - b_part;
        return adjust(sum, (a - a_part) + (b - b_part), round);
    }
    volatile double x = a, y = b;
    ROUNDED(double, x + y);
}

double sg_math_mul_f64(double a, double b, uint32_t round)
{
    double product = a * b;
    if (between(product))
        return adjust(product, fma(a, b, -product), round);
    volatile double x = a, y = b;
    ROUNDED(double, x *y);
}

double sg_math_fma_f64(double a, double b, double c, uint32_t round)
{
    volatile double x = a, y = b, z = c;
    ROUNDED(double, fma(x, y, z));
}

double sg_math_div_f64(double a, double b, uint32_t round)
{
    double quotient = a / b;
    if (between(quotient) && between(a) && between(b)) {
        double rest = fma(-quotient, b, a);
        return adjust(quotient, b < 0 ? -rest : rest, round);
    }
    volatile double x = a, y = b;
    ROUNDED(double, x / y);
}

float sg_math_div_f32(float a, float b, uint32_t round)
{
    volatile float x = a, y = b;
    ROUNDED(float, x / y);
}

double sg_math_sqrt_f64(double a, uint32_t round)
{
    if (a > 0 && between(a)) {
        double root = sqrt(a);
        return adjust(root, fma(-root, root, a), round);
    }
    volatile double x = a;
    ROUNDED(double, sqrt(x));
}

float sg_math_sqrt_f32(float a, uint32_t round)
{
    volatile float x = a;
    ROUNDED(float, sqrtf(x));
}

double sg_math_integer_to_f64(uint64_t value, uint32_t is_signed, uint32_t round)
{
    volatile uint64_t x = value;
    ROUNDED(double, is_signed ? (double)(int64_t)x : (double)x);
}

/* --- bits --- */

uint32_t sg_math_fns(uint32_t mask, uint32_t base, uint32_t offset)
{
    int32_t wanted = (int32_t)offset;
    if (base > 31)
        return UINT32_MAX;
    if (wanted == 0)
        return (mask >> base & 1) != 0 ? base : UINT32_MAX;
    int32_t step = wanted > 0 ? 1 : -1, left = wanted > 0 ? wanted : -wanted;
    for (int32_t place = (int32_t)base; place >= 0 && place < 32; place += step)
        if ((mask >> place & 1) != 0 && --left == 0)
            return (uint32_t)place;
    return UINT32_MAX;
}

/* --- 128-bit exchanges: one at a time --- */

static pthread_mutex_t wide_mutex = PTHREAD_MUTEX_INITIALIZER;

void sg_atomic_cas_128(void *address, const void *expected, const void *value, void *old)
{
    pthread_mutex_lock(&wide_mutex);
    memcpy(old, address, 16);
    if (memcmp(old, expected, 16) == 0)
        memcpy(address, value, 16);
    pthread_mutex_unlock(&wide_mutex);
}

void sg_atomic_exch_128(void *address, const void *value, void *old)
{
    pthread_mutex_lock(&wide_mutex);
    memcpy(old, address, 16);
    memcpy(address, value, 16);
    pthread_mutex_unlock(&wide_mutex);
}

#define OWN(function)                                                                                        \
    {                                                                                                        \
#function, (void *)(uintptr_t)(function)                                                             \
    }
/* What LLVM calls for intrinsics and for copies, by the C library's names. */
const struct sg_rt_symbol sg_math_symbols[] = {
    OWN(sg_math_add_f64),
    OWN(sg_math_mul_f64),
    OWN(sg_math_fma_f64),
    OWN(sg_math_div_f64),
    OWN(sg_math_div_f32),
    OWN(sg_math_sqrt_f64),
    OWN(sg_math_sqrt_f32),
    OWN(sg_math_integer_to_f64),
    OWN(sg_math_half_to_float),
    OWN(sg_math_float_to_half),
    OWN(sg_math_fns),
    OWN(sg_atomic_cas_128),
    OWN(sg_atomic_exch_128),
    OWN(fmaf),
    OWN(fma),
    OWN(floorf),
    OWN(floor),
    OWN(ceilf),
    OWN(ceil),
    OWN(truncf),
    OWN(trunc),
    OWN(roundevenf),
    OWN(roundeven),
    OWN(ldexpf),
    OWN(ldexp),
    OWN(sqrtf),
    OWN(sqrt),
    OWN(fmodf),
    OWN(fmod),
    OWN(fminf),
    OWN(fmaxf),
    OWN(fmin),
    OWN(fmax),
    OWN(memcpy),
    OWN(memmove),
    OWN(memset),
    OWN(memcmp),
    OWN(bcmp),
    {NULL, NULL},
};
