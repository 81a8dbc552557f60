/*
 * narrow.c - conversions to and from the formats of 8, 6 and 4 bits, compared with what defines them: the
 * number of the format that is nearest to the value, found by looking at every one. All codes and all halves,
 * and floats at and beside every point where rounding changes.
 */
#include "tests/softgpu/compiler/harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 256u

struct format {
    const char *name;
    unsigned exponent, mantissa, bits; /* of an element in its pair */
    unsigned codes;                    /* magnitudes that are finite */
};

static const struct format formats[] = {
    {"e4m3x2", 4, 3, 8, 0x7f}, {"e5m2x2", 5, 2, 8, 0x7c}, {"e2m3x2", 2, 3, 8, 0x20},
    {"e3m2x2", 3, 2, 8, 0x20}, {"e2m1x2", 2, 1, 4, 0x08},
};

static double value_of(const struct format *format, unsigned magnitude)
{
    int bias = (1 << (format->exponent - 1)) - 1, power = (int)(magnitude >> format->mantissa);
    unsigned digits = magnitude & ((1u << format->mantissa) - 1);
    if (power == 0)
        return ldexp(digits, 1 - bias - (int)format->mantissa);
    return ldexp(digits + (1u << format->mantissa), power - bias - (int)format->mantissa);
}

/* The code of the nearest number; of two as near the even one. */
static unsigned nearest(const struct format *format, float value, bool relu)
{
    unsigned sign = 1u << (format->exponent + format->mantissa), best = 0;
    if (isnan(value))
        return format->bits == 8 && sign == 0x80 ? 0x7f : format->codes - 1;
    if (relu && !(value > 0))
        return 0;
    double x = fabs((double)value), least = INFINITY;
    if (x > value_of(format, format->codes - 1))
        return (format->codes - 1) | (signbit(value) ? sign : 0);
    for (unsigned code = 0; code < format->codes; code++) {
        double distance = fabs(value_of(format, code) - x);
        if (distance < least || (distance == least && code % 2 == 0)) {
            least = distance;
            best = code;
        }
    }
    return best | (signbit(value) ? sign : 0);
}

static float half_value(unsigned bits)
{
    const struct format half = {"", 5, 10, 16, 0x7c00};
    unsigned magnitude = bits & 0x7fff;
    double value = magnitude > 0x7c00    ? (double)NAN
                   : magnitude == 0x7c00 ? (double)INFINITY
                                         : value_of(&half, magnitude);
    return (float)(bits & 0x8000 ? -value : value);
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Runs `instruction`, from %r1 and %r2, or %f1 and %f2, to %r0, on each pair of inputs. */
static void convert(const char *instruction, const uint32_t (*in)[2], uint32_t *out, uint32_t count)
{
    char *text = NULL;
    cr_assert(
        asprintf(&text,
                 ".visible .entry k(.param .u64 pin, .param .u64 pout) {\n"
                 ".reg .b64 %%in, %%out; .reg .b32 %%t, %%r<4>; .reg .f32 %%f<4>; .reg .b16 %%h<4>; .reg .b8 "
                 "%%b;\n"
                 "ld.param.u64 %%in, [pin]; ld.param.u64 %%out, [pout]; mov.u32 %%t, %%tid.x;\n"
                 "mov.u32 %%r0, %%ctaid.x; mad.lo.u32 %%t, %%r0, %u, %%t;\n"
                 "mad.wide.u32 %%in, %%t, 8, %%in; ld.global.v2.u32 {%%r1, %%r2}, [%%in];\n"
                 "mov.b32 %%f1, %%r1; mov.b32 %%f2, %%r2; cvt.u16.u32 %%h1, %%r1; cvt.u8.u32 %%b, %%r1;\n"
                 "%s\n"
                 "mad.wide.u32 %%out, %%t, 4, %%out; st.global.u32 [%%out], %%r0; ret;\n}\n",
                 THREADS, instruction) > 0);
    cr_assert_eq(count % THREADS, 0);
    run_grid_of(text, count / THREADS, THREADS, PARAMS(in, out));
    free(text);
}

#define COUNT 65536u
static uint32_t in[COUNT][2], out[COUNT];

static void expect(const char *instruction, const struct format *format, uint32_t i, float low, float high,
                   bool relu)
{
    unsigned wanted = nearest(format, low, relu) | nearest(format, high, relu) << format->bits;
    cr_assert_eq(out[i], wanted, "%s of %a, %a: %#x, not %#x", instruction, (double)low, (double)high, out[i],
                 wanted);
}

Test(narrow, every_code_widened)
{
    for (size_t n = 0; n < sizeof(formats) / sizeof(formats[0]); n++) {
        const struct format *format = &formats[n];
        unsigned all = format->bits == 4 ? 16 : 256, sign = 1u << (format->exponent + format->mantissa);
        for (unsigned relu = 0; relu < 2; relu++) {
            char instruction[128];
            snprintf(instruction, sizeof(instruction), "cvt.rn%s.f16x2.%s %%r0, %s;", relu ? ".relu" : "",
                     format->name, format->bits == 4 ? "%b" : "%h1");
            for (uint32_t i = 0; i < COUNT; i++)
                in[i][0] = format->bits == 4 ? i % 256 : i;
            convert(instruction, (const uint32_t(*)[2])in, out, COUNT);
            for (uint32_t i = 0; i < COUNT; i++) {
                for (unsigned part = 0; part < 2; part++) {
                    unsigned code = in[i][0] >> (part * format->bits) & (all - 1),
                             magnitude = code & (sign - 1);
                    uint32_t half = out[i] >> (part * 16) & 0xffff;
                    double value = magnitude < format->codes     ? value_of(format, magnitude)
                                   : n == 1 && magnitude == 0x7c ? (double)INFINITY
                                                                 : (double)NAN;
                    if ((code & sign) != 0)
                        value = relu && !isnan(value) ? 0 : -value;
                    if (isnan(value))
                        cr_assert_eq(half, 0x7fff, "%s of %#x: %#x", instruction, code, half);
                    else
                        cr_assert(
                            half_value(half) == (float)value && !signbit(half_value(half)) == !signbit(value),
                            "%s of %#x: %a, not %a", instruction, code, (double)half_value(half), value);
                }
            }
        }
    }
}

Test(narrow, every_half_narrowed)
{
    for (size_t n = 0; n < sizeof(formats) / sizeof(formats[0]); n++) {
        const struct format *format = &formats[n];
        if (n == 2 || n == 3) /* there is none */
            continue;
        for (unsigned relu = 0; relu < 2; relu++) {
            char instruction[160];
            snprintf(instruction, sizeof(instruction), "cvt.rn.satfinite%s.%s.f16x2 %s", relu ? ".relu" : "",
                     format->name,
                     format->bits == 4 ? "%b, %r1; cvt.u32.u8 %r0, %b;" : "%h0, %r1; cvt.u32.u16 %r0, %h0;");
            for (uint32_t i = 0; i < COUNT; i++)
                in[i][0] = i | (i * 40503u & 0xffff) << 16; /* odd: every half is in the upper place, too */
            convert(instruction, (const uint32_t(*)[2])in, out, COUNT);
            for (uint32_t i = 0; i < COUNT; i++)
                expect(instruction, format, i, half_value(in[i][0] & 0xffff), half_value(in[i][0] >> 16),
                       relu);
        }
    }
}

/* Values at and next to each number of the format and each middle of two, and at the ends of float. */
static uint32_t interesting_floats(const struct format *format, uint32_t *list)
{
    static const uint32_t ends[] = {0,          1,          0x7fffff,   0x800000,  0x7f7fffff,
                                    0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        list[count++] = ends[i];
    for (unsigned code = 0; code <= format->codes; code++) {
        double here = value_of(format, code), next = value_of(format, code + 1);
        const double points[2] = {here, (here + next) / 2};
        for (int p = 0; p < 2; p++)
            for (int step = -1; step <= 1; step++)
                list[count++] = f32_bits((float)points[p]) + (uint32_t)(points[p] > 0 ? step : 0);
    }
    for (uint32_t i = 0, n = count; i < n; i++)
        list[count++] = list[i] | 0x80000000u;
    return count;
}

Test(narrow, floats_narrowed)
{
    static uint32_t list[4096];
    for (size_t n = 0; n < sizeof(formats) / sizeof(formats[0]); n++) {
        const struct format *format = &formats[n];
        uint32_t count = interesting_floats(format, list), random = 12345;
        for (uint32_t i = 0; i < COUNT; i++) {
            random = random * 1664525 + 1013904223;
            in[i][0] = i < count ? list[i] : 0x3c000000 + (random >> 5) % 0x08000000 + (random & 0x80000000);
            in[i][1] = i < count ? list[count - 1 - i] : in[i - 1][0];
        }
        for (unsigned relu = 0; relu < 2; relu++) {
            char instruction[160];
            snprintf(instruction, sizeof(instruction), "cvt.rn.satfinite%s.%s.f32 %s", relu ? ".relu" : "",
                     format->name,
                     format->bits == 4 ? "%b, %f1, %f2; cvt.u32.u8 %r0, %b;"
                                       : "%h0, %f1, %f2; cvt.u32.u16 %r0, %h0;");
            convert(instruction, (const uint32_t(*)[2])in, out, COUNT);
            for (uint32_t i = 0; i < COUNT; i++) /* the first operand is the upper element */
                expect(instruction, format, i, from_bits(in[i][1]), from_bits(in[i][0]), relu);
        }
    }
}

/* The power of two between 2^-127 and 2^127 next to the magnitude, in the direction. */
static unsigned scale_of(float value, bool up, bool finite)
{
    double x = fabs((double)value);
    if (isnan(value))
        return 0xff;
    unsigned code = 0;
    if (up)
        while (code < 0xff && ldexp(1, (int)code - 127) < x)
            code++;
    else if (isinf(value))
        code = 0xff;
    else
        while (code < 0xfe && ldexp(1, (int)code + 1 - 127) <= x)
            code++;
    return finite && code == 0xff ? 0xfe : code;
}

Test(narrow, scales)
{
    static const uint32_t digits[] = {0, 1, 0x10000, 0x3fffff, 0x400000, 0x400001, 0x7f0000, 0x7fffff};
    for (int form = 0; form < 8; form++) {
        bool up = form & 1, finite = form & 2, packed = form & 4;
        char instruction[160];
        snprintf(instruction, sizeof(instruction), "cvt.%s%s.ue8m0x2.%s; cvt.u32.u16 %%r0, %%h0;",
                 up ? "rp" : "rz", finite ? ".satfinite" : "",
                 packed ? "bf16x2 %h0, %r1" : "f32 %h0, %f1, %f2");
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t bits = (i / 8 % 512) << 23 | digits[i % 8];
            in[i][0] = packed ? i | (i * 40503u & 0xffff) << 16 : bits;
            in[i][1] = bits ^ 0x80000000u;
        }
        convert(instruction, (const uint32_t(*)[2])in, out, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            float low = from_bits(packed ? in[i][0] << 16 : in[i][1]),
                  high = from_bits(packed ? in[i][0] & 0xffff0000u : in[i][0]);
            unsigned wanted = scale_of(low, up, finite) | scale_of(high, up, finite) << 8;
            cr_assert_eq(out[i], wanted, "%s of %a, %a: %#x, not %#x", instruction, (double)low, (double)high,
                         out[i], wanted);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++)
        in[i][0] = i;
    convert("cvt.rn.bf16x2.ue8m0x2 %r0, %h1;", (const uint32_t(*)[2])in, out, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        for (unsigned part = 0; part < 2; part++) {
            unsigned code = i >> (8 * part) & 0xff;
            uint32_t bits = out[i] >> (16 * part) & 0xffff;
            if (code == 0xff)
                cr_assert_eq(bits, 0x7fff);
            else
                cr_assert_eq((double)from_bits(bits << 16), ldexp(1, (int)code - 127), "%#x: %#x", code,
                             bits);
        }
}

Test(narrow, tf32)
{
    static const struct {
        const char *instruction;
        uint32_t in, out;
    } cases[] = {
        {"cvt.rna.satfinite.tf32.f32 %r0, %f1;", 0x7f7fffff, 0x7f7fe000},
        {"cvt.rna.satfinite.tf32.f32 %r0, %f1;", 0xff800000, 0xff7fe000},
        {"cvt.rna.satfinite.tf32.f32 %r0, %f1;", 0x7f800001, 0x7fffffff},
        {"cvt.rna.satfinite.tf32.f32 %r0, %f1;", 0xbf801000, 0xbf802000},
        {"cvt.rn.satfinite.tf32.f32 %r0, %f1;", 0xbf801000, 0xbf800000},
        {"cvt.rn.satfinite.tf32.f32 %r0, %f1;", 0x3f803000, 0x3f804000},
        {"cvt.rn.satfinite.tf32.f32 %r0, %f1;", 0xff7ff000, 0xff7fe000},
        {"cvt.rn.satfinite.relu.tf32.f32 %r0, %f1;", 0xff7ff000, 0},
        {"cvt.rz.satfinite.tf32.f32 %r0, %f1;", 0x7f800000, 0x7f7fe000},
        {"cvt.rz.relu.tf32.f32 %r0, %f1;", 0x3f803fff, 0x3f802000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t result = run_b32(cases[i].instruction, IN(cases[i].in));
        cr_expect_eq(result, cases[i].out, "%s of %#x: %#x", cases[i].instruction, cases[i].in, result);
    }
}
