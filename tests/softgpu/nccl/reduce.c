/* reduce.c - the arithmetic of the software device's NCCL in types that C compilers know otherwise, or whose values can all be tried. */
#include "softgpu/nccl/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { PATTERNS = 1 << 16 };

static uint16_t first[PATTERNS], second[PATTERNS], sums[PATTERNS];
static uint8_t small[256], same[256];

static void reduce(ncclDataType_t type, int op, void *out, const void *one, const void *other, size_t count)
{
    const void *inputs[] = {one, other}, *scalars[2] = {NULL, NULL};
    sg_reduce(&(struct sg_reduction){.type = type, .op = op, .n = 2}, out, inputs, scalars, count);
}

/* Every value of half precision with many others, against the compiler's arithmetic. */
Test(reduce, half_is_the_compilers)
{
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < PATTERNS; i++) {
            first[i] = (uint16_t)i;
            second[i] = (uint16_t)(i * 40503u + round * 9973u);
        }
        reduce(ncclFloat16, round % 2 ? ncclSum : ncclProd, sums, first, second, PATTERNS);
        for (unsigned i = 0; i < PATTERNS; i++) {
            _Float16 a, b, c, got;
            memcpy(&a, &first[i], 2);
            memcpy(&b, &second[i], 2);
            memcpy(&got, &sums[i], 2);
            c = round % 2 ? a + b : a * b;
            cr_assert(memcmp(&c, &got, 2) == 0 || (isnan((float)c) && isnan((float)got)),
                      "%04x and %04x give %04x", first[i], second[i], sums[i]);
        }
    }
}

/* The larger of a value and itself is that value, in whatever way it is stored. */
Test(reduce, every_pattern_is_kept)
{
    for (unsigned i = 0; i < PATTERNS; i++)
        first[i] = (uint16_t)i;
    reduce(ncclBfloat16, ncclMax, sums, first, first, PATTERNS);
    for (unsigned i = 0; i < PATTERNS; i++)
        cr_assert((i & 0x7fff) > 0x7f80 ? (sums[i] & 0x7fff) > 0x7f80 : sums[i] == i,
                  "bfloat16 %04x gives %04x", i, sums[i]);
    for (unsigned i = 0; i < 256; i++)
        small[i] = (uint8_t)i;
    reduce(ncclFloat8e4m3, ncclMax, same, small, small, 256);
    for (unsigned i = 0; i < 256; i++)
        cr_assert((i & 0x7f) == 0x7f ? (same[i] & 0x7f) == 0x7f : same[i] == i, "e4m3 %02x gives %02x", i,
                  same[i]);
    reduce(ncclFloat8e5m2, ncclMin, same, small, small, 256);
    for (unsigned i = 0; i < 256; i++) /* infinities saturate */
        cr_assert((i & 0x7f) > 0x7c    ? (same[i] & 0x7f) > 0x7c
                  : (i & 0x7f) == 0x7c ? same[i] == i - 1
                                       : same[i] == i,
                  "e5m2 %02x gives %02x", i, same[i]);
}

Test(reduce, small_types_round_to_even_and_saturate)
{
    /* e4m3: 1 is 38, 1.125 is 39, 16 is 58, 18 is 59, 448 the largest is 7e, NaN is 7f */
    const uint8_t one[] = {0x58, 0x59, 0x7e, 0x7f, 0x01, 0x00},
                  other[] = {0x38, 0x38, 0x7e, 0x38, 0x01, 0x80},
                  wanted[] = {0x58, 0x5a, 0x7e, 0x7f, 0x02, 0x00};
    uint8_t got[6];
    reduce(ncclFloat8e4m3, ncclSum, got, one, other, 6); /* 16+1 ties to 16, 18+1 to 20 */
    cr_assert(memcmp(got, wanted, 6) == 0, "%02x %02x %02x %02x %02x %02x", got[0], got[1], got[2], got[3],
              got[4], got[5]);
}

Test(reduce, numbers_are_preferred_to_nan)
{
    const float one[] = {NAN, 2, NAN}, other[] = {1, NAN, NAN};
    float got[3];
    reduce(ncclFloat32, ncclMax, got, one, other, 3);
    cr_assert(got[0] == 1 && got[1] == 2 && isnan(got[2]));
    reduce(ncclFloat32, ncclMin, got, one, other, 3);
    cr_assert(got[0] == 1 && got[1] == 2 && isnan(got[2]));
}

Test(reduce, integers_wrap_and_averages_round_towards_zero)
{
    const int8_t one[] = {127, -128, -3}, other[] = {1, -1, 0};
    int8_t got[3];
    reduce(ncclInt8, ncclSum, got, one, other, 3);
    cr_assert(got[0] == -128 && got[1] == 127 && got[2] == -3);
    reduce(ncclInt8, ncclAvg, got, one, other, 3);
    cr_assert(got[0] == -64 && got[1] == 63 && got[2] == -1);
}

/* The result may take the place of any input, whatever is computed. */
Test(reduce, in_the_place_of_an_input)
{
    enum { N = 5000, INPUTS = 3 };
    static float values[INPUTS][N], wanted[N], place[N];
    const float factors[INPUTS] = {2, 3, 5};
    for (int op = 0; op <= SG_NCCL_PRE_MUL_SUM; op++)
        for (int which = 0; which < INPUTS; which++) {
            const void *inputs[INPUTS], *scalars[INPUTS];
            for (int k = 0; k < INPUTS; k++) {
                for (size_t i = 0; i < N; i++)
                    values[k][i] = (float)((i * 7 + (size_t)k * 13) % 31) + 1;
                inputs[k] = values[k];
                scalars[k] = &factors[k];
            }
            const struct sg_reduction reduction = {.type = ncclFloat32, .op = op, .n = INPUTS};
            sg_reduce(&reduction, wanted, inputs, scalars, N);
            memcpy(place, values[which], sizeof place);
            inputs[which] = place;
            sg_reduce(&reduction, place, inputs, scalars, N);
            cr_assert(memcmp(place, wanted, sizeof place) == 0, "operator %d in the place of input %d", op,
                      which);
        }
}
