/*
 * texel_formats.c - a transcript of arrays of every linear format: copies to and from them, what kernels write by the format
 * (sust.p) and read as texels, and wrong numbers of channels. What is written and read is also compared with values that follow
 * from the format, so the program fails by itself where they differ.
 */
#include "tests/fidelity/must.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { WIDTH = 5, HEIGHT = 3, X = 3, Y = 1, TEXEL_MAX = 16, PITCH = 512 };
enum kind { NORMALISED, INTEGER, FLOATING };

static const struct format {
    const char *name;
    CUarray_format number;
    unsigned channels, bits;
    enum kind kind;
    bool is_signed;
} formats[] = {
    {"unorm8x1", CU_AD_FORMAT_UNORM_INT8X1, 1, 8, NORMALISED, false},
    {"unorm8x2", CU_AD_FORMAT_UNORM_INT8X2, 2, 8, NORMALISED, false},
    {"unorm8x4", CU_AD_FORMAT_UNORM_INT8X4, 4, 8, NORMALISED, false},
    {"unorm16x1", CU_AD_FORMAT_UNORM_INT16X1, 1, 16, NORMALISED, false},
    {"unorm16x2", CU_AD_FORMAT_UNORM_INT16X2, 2, 16, NORMALISED, false},
    {"unorm16x4", CU_AD_FORMAT_UNORM_INT16X4, 4, 16, NORMALISED, false},
    {"snorm8x1", CU_AD_FORMAT_SNORM_INT8X1, 1, 8, NORMALISED, true},
    {"snorm8x2", CU_AD_FORMAT_SNORM_INT8X2, 2, 8, NORMALISED, true},
    {"snorm8x4", CU_AD_FORMAT_SNORM_INT8X4, 4, 8, NORMALISED, true},
    {"snorm16x1", CU_AD_FORMAT_SNORM_INT16X1, 1, 16, NORMALISED, true},
    {"snorm16x2", CU_AD_FORMAT_SNORM_INT16X2, 2, 16, NORMALISED, true},
    {"snorm16x4", CU_AD_FORMAT_SNORM_INT16X4, 4, 16, NORMALISED, true},
    {"u8", CU_AD_FORMAT_UNSIGNED_INT8, 4, 8, INTEGER, false},
    {"s8", CU_AD_FORMAT_SIGNED_INT8, 2, 8, INTEGER, true},
    {"u16", CU_AD_FORMAT_UNSIGNED_INT16, 4, 16, INTEGER, false},
    {"s16", CU_AD_FORMAT_SIGNED_INT16, 1, 16, INTEGER, true},
    {"u32", CU_AD_FORMAT_UNSIGNED_INT32, 2, 32, INTEGER, false},
    {"s32", CU_AD_FORMAT_SIGNED_INT32, 4, 32, INTEGER, true},
    {"half", CU_AD_FORMAT_HALF, 4, 16, FLOATING, true},
    {"float", CU_AD_FORMAT_FLOAT, 4, 32, FLOATING, true},
};

#define ENTRY(name, body)                                                                                    \
    ".visible .entry " name "(.param .u64 t, .param .u64 x, .param .u64 y, .param .u64 p)\n{\n"              \
    ".reg .b32 %r<5>, %x, %y; .reg .b64 %t, %p, %a, %b;\n"                                                   \
    "ld.param.u64 %t, [t]; ld.param.u64 %a, [x]; ld.param.u64 %b, [y]; ld.param.u64 %p, [p];\n"              \
    "cvt.u32.u64 %x, %a; cvt.u32.u64 %y, %b;\n" body "ret;\n}\n"
#define STORE(dimensions, vector, bound, place, values)                                                      \
    "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%p];\n"                                                         \
    "sust.p." dimensions vector ".b32." bound " [%t, " place "], " values ";\n"
#define READ(dimensions, place)                                                                              \
    "tex." dimensions ".v4.f32.s32 {%r1, %r2, %r3, %r4}, [%t, " place                                        \
    "]; st.global.v4.b32 [%p], {%r1, %r2, %r3, %r4};\n"

/* clang-format off */
static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ENTRY("write", STORE("2d", ".v4", "trap", "{%x, %y}", "{%r1, %r2, %r3, %r4}"))
    ENTRY("clamp", STORE("2d", ".v4", "clamp", "{%x, %y}", "{%r1, %r2, %r3, %r4}"))
    ENTRY("zero", STORE("2d", ".v4", "zero", "{%x, %y}", "{%r1, %r2, %r3, %r4}"))
    ENTRY("row", STORE("1d", ".v2", "zero", "{%x}", "{%r1, %r2}"))
    ENTRY("one", STORE("3d", "", "zero", "{%x, %y, %y, %y}", "%r1"))
    ENTRY("read", READ("2d", "{%x, %y}"))
    ENTRY("line", READ("1d", "{%x}"));
/* clang-format on */

static CUmodule module;
static CUdeviceptr words, rows;
static bool wrong;

static void launch(const char *name, unsigned long long object, int x, int y, void *values, bool read)
{
    uint64_t at_x = (uint32_t)x, at_y = (uint32_t)y;
    void *arguments[] = {&object, &at_x, &at_y, &words};
    CUfunction k;
    CHECK(cuModuleGetFunction(&k, module, name));
    CHECK(cuMemcpyHtoD_v2(words, values, 16));
    CHECK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuCtxSynchronize());
    if (read)
        CHECK(cuMemcpyDtoH_v2(values, words, 16));
}

static void copy(CUarray array, size_t texel, unsigned char *bytes, bool to_array)
{
    CUDA_MEMCPY2D c = {.WidthInBytes = WIDTH * texel, .Height = HEIGHT};
    c.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = c.dstHost = bytes;
    c.srcArray = c.dstArray = array;
    c.srcPitch = c.dstPitch = WIDTH * texel;
    CHECK(cuMemcpy2D_v2(&c));
}

/* --- what the formats mean --- */

static double largest(const struct format *f)
{
    return ldexp(1, (int)(f->bits - f->is_signed)) - 1;
}

static double clamped(double value, double least, double most)
{
    return value > most ? most : value > least ? value : least;
}

/* The channel that a word written by the format becomes; only halves that are exact are asked for. */
static uint64_t channel_of(const struct format *f, uint32_t word)
{
    const double most = largest(f);
    float value;
    memcpy(&value, &word, sizeof value);
    if (f->kind == NORMALISED) {
        const double fraction = isnan(value) ? 0 : clamped(value, f->is_signed ? -1 : 0, 1);
        return (uint64_t)(int64_t)round(fraction * most);
    }
    if (f->bits == 32)
        return word;
    if (f->kind == INTEGER)
        return (uint64_t)(int64_t)clamped(f->is_signed ? (double)(int32_t)word : (double)word,
                                          f->is_signed ? -most - 1 : 0, most);
    int exponent;
    const float mantissa = frexpf(fabsf(value), &exponent);
    return (signbit(value) ? 0x8000u : 0) |
           (value == 0 ? 0 : (uint64_t)(exponent + 14) << 10 | ((uint32_t)ldexpf(mantissa, 11) & 1023));
}

/* What a channel of normalised integers is read as. */
static float fraction_of(const struct format *f, const unsigned char *channel)
{
    int64_t value;
    if (f->bits == 8)
        value = f->is_signed ? (int8_t)*channel : *channel;
    else
        value = f->is_signed ? (int16_t)(channel[0] | channel[1] << 8) : channel[0] | channel[1] << 8;
    return (float)clamped((double)value / largest(f), -1, 1);
}

static size_t size_of(const struct format *f)
{
    return f->channels * f->bits / 8;
}

static void expect(bool good, const struct format *f, const char *what)
{
    printf("  %s: %s\n", what, good ? "as it should be" : "wrong");
    if (!good)
        printf("  of %s\n", f->name);
    wrong |= !good;
}

/* --- */

static CUarray make(const struct format *f, size_t height, size_t depth, unsigned flags)
{
    const CUDA_ARRAY3D_DESCRIPTOR d = {WIDTH, height, depth, f->number, f->channels, flags};
    CUDA_ARRAY3D_DESCRIPTOR back;
    CUarray array;
    CHECK(cuArray3DCreate_v2(&array, &d));
    CHECK(cuArray3DGetDescriptor_v2(&back, array));
    if (back.Format != f->number || back.NumChannels != f->channels)
        expect(false, f, "description");
    return array;
}

static CUsurfObject surface_of(CUarray array)
{
    CUsurfObject surface;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    CHECK(cuSurfObjectCreate(&surface, &resource));
    return surface;
}

static CUtexObject texture_of(const CUDA_RESOURCE_DESC *resource, unsigned flags)
{
    const CUDA_TEXTURE_DESC t = {
        .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP},
        .flags = flags};
    CUtexObject texture;
    CHECK(cuTexObjectCreate(&texture, resource, &t, NULL));
    return texture;
}

/* Four words for a format: in its range, beyond both ends, and between two of its numbers. */
static void values_for(const struct format *f, unsigned round, uint32_t out[4])
{
    static const float fractions[3][4] = {
        {0.25f, -0.5f, 0.75f, 1.0f}, {-3.0f, 7.0f, NAN, -0.0f}, {0.1f, 0.3f, -0.9f, INFINITY}};
    static const float floats[3][4] = {
        {0.25f, -1.5f, 1024.0f, 0.0f}, {-0.0f, 1.0f, -2.0f, 3.0f}, {0.5f, 4.0f, 8.0f, -16.0f}};
    static const int32_t integers[3][4] = {
        {1, 127, 100, 0}, {300, -300, 70000, -70000}, {INT32_MAX, INT32_MIN, -1, 128}};
    memcpy(out,
           f->kind == NORMALISED ? (const void *)fractions[round]
           : f->kind == FLOATING ? (const void *)floats[round]
                                 : (const void *)integers[round],
           16);
}

/* Writes texels by the format, inside and outside, and looks at the whole array after each. */
static void writes(const struct format *f, CUarray array, CUsurfObject surface)
{
    static const struct {
        const char *kernel;
        int x, y;       /* what is asked for */
        int at_x, at_y; /* where it goes; -1: nowhere */
    } places[] = {{"write", X, Y, X, Y},
                  {"clamp", -2, HEIGHT + 4, 0, HEIGHT - 1},
                  {"clamp", 1 << 30, 0, WIDTH - 1, 0},
                  {"zero", WIDTH, 0, -1, -1},
                  {"zero", 0, 0, 0, 0}};
    unsigned char model[WIDTH * HEIGHT * TEXEL_MAX], got[sizeof model];
    const size_t texel = size_of(f), channel = f->bits / 8;
    memset(model, 0x5a, sizeof model);
    copy(array, texel, model, true);
    bool good = true;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
            uint32_t values[4];
            values_for(f, round, values);
            for (unsigned c = 0; c < f->channels && places[i].at_x >= 0; c++) {
                const uint64_t number = channel_of(f, values[c]);
                memcpy(model + (size_t)(places[i].at_y * WIDTH + places[i].at_x) * texel + c * channel,
                       &number, channel);
            }
            launch(places[i].kernel, surface, places[i].x, places[i].y, values, false);
            copy(array, texel, got, false);
            good &= memcmp(got, model, WIDTH * HEIGHT * texel) == 0;
        }
    expect(good, f, "written");
}

/* Fetches a texel from `texture` and compares it with that in memory. */
static void reads(const struct format *f, const char *kernel, CUtexObject texture, const unsigned char *texel,
                  const char *what)
{
    float got[4];
    bool good = true;
    launch(kernel, texture, X, Y, got, true);
    printf("  %a %a %a %a\n", got[0], got[1], got[2], got[3]);
    for (unsigned c = 0; c < 4; c++)
        good &= got[c] == (c < f->channels ? fraction_of(f, texel + c * f->bits / 8) : c == 3 ? 1.0f : 0.0f);
    expect(good, f, what);
    CHECK(cuTexObjectDestroy(texture));
}

/* Of a format of normalised integers: as arrays and as linear memory, asked for as integers or not. */
static void reads_of(const struct format *f, CUarray array)
{
    unsigned char bytes[WIDTH * HEIGHT * TEXEL_MAX];
    const size_t texel = size_of(f);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(0x80 + i * 37);
    copy(array, texel, bytes, true);
    const unsigned char *expected = bytes + (Y * WIDTH + X) * texel;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    reads(f, "read", texture_of(&resource, 0), expected, "read");
    reads(f, "read", texture_of(&resource, CU_TRSF_READ_AS_INTEGER), expected, "read as integers");
    for (unsigned y = 0; y < HEIGHT; y++)
        CHECK(cuMemcpyHtoD_v2(rows + y * PITCH, bytes + y * WIDTH * texel, WIDTH * texel));
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D,
                                    .res.pitch2D = {rows, f->number, f->channels, WIDTH, HEIGHT, PITCH}};
    reads(f, "read", texture_of(&resource, 0), expected, "read from rows");
    resource = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR,
                                    .res.linear = {rows, f->number, f->channels, WIDTH * texel}};
    reads(f, "line", texture_of(&resource, 0), bytes + X * texel, "read from a line");
}

/* A line and a box, of which fewer channels are written than there are. */
static void few_channels(void)
{
    const struct format *f = &formats[2];
    const uint32_t untouched = 0x11223344;
    uint32_t ones[4] = {0x3f800000, 0x3f800000, 0x3f800000, 0x3f800000}, got = 0;
    CUarray line = make(f, 0, 0, CUDA_ARRAY3D_SURFACE_LDST), box = make(f, 2, 2, CUDA_ARRAY3D_SURFACE_LDST);
    CUsurfObject of_line = surface_of(line), of_box = surface_of(box);
    CHECK(cuMemcpyHtoA_v2(line, 2 * 4, &untouched, 4));
    launch("row", of_line, 2, 0, ones, false);
    CHECK(cuMemcpyAtoH_v2(&got, line, 2 * 4, 4));
    printf("two channels of a line: %04x\n", got & 0xffff);
    wrong |= (got & 0xffff) != 0xffff;
    launch("one", of_box, 4, 1, ones, false);
    CUDA_MEMCPY3D c = {.srcXInBytes = 4 * 4,
                       .srcY = 1,
                       .srcZ = 1,
                       .srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = box,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = &got,
                       .dstPitch = 4,
                       .dstHeight = 1,
                       .WidthInBytes = 4,
                       .Height = 1,
                       .Depth = 1};
    CHECK(cuMemcpy3D_v2(&c));
    printf("one channel in a box: %02x\n", got & 0xff);
    wrong |= (got & 0xff) != 0xff;
    CHECK(cuSurfObjectDestroy(of_line));
    CHECK(cuSurfObjectDestroy(of_box));
    CHECK(cuArrayDestroy(line));
    CHECK(cuArrayDestroy(box));
}

/* Other numbers of channels than a format's, and levels of a mipmapped array. */
static void others(void)
{
    CUarray array;
    CUmipmappedArray mipmap;
    CUDA_ARRAY3D_DESCRIPTOR d = {8, 8, 0, CU_AD_FORMAT_UNORM_INT8X4, 2, 0};
    printf("two channels of four: %d\n", (int)cuArray3DCreate_v2(&array, &d));
    d.NumChannels = 4;
    CHECK(cuMipmappedArrayCreate(&mipmap, &d, 2));
    CHECK(cuMipmappedArrayGetLevel(&array, mipmap, 1));
    uint32_t texel = 0x89abcdef, got = 0;
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = &texel,
                        .srcPitch = 4,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .dstXInBytes = 3 * 4,
                        .dstY = 3,
                        .WidthInBytes = 4,
                        .Height = 1};
    CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 3 * 4,
                          .srcY = 3,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = &got,
                          .dstPitch = 4,
                          .WidthInBytes = 4,
                          .Height = 1};
    CHECK(cuMemcpy2D_v2(&to));
    CHECK(cuMemcpy2D_v2(&from));
    printf("in a level: %x\n", got);
    wrong |= got != texel;
    to.dstXInBytes = 4 * 4;
    printf("beyond it: %d\n", (int)cuMemcpy2D_v2(&to));
    CHECK(cuMipmappedArrayDestroy(mipmap));
}

int main(void)
{
    use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuMemAlloc_v2(&words, 16));
    CHECK(cuMemAlloc_v2(&rows, PITCH * HEIGHT));
    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++) {
        /* surface objects, other than references, need no flag: slang-rhi sets none */
        CUarray array = make(&formats[i], HEIGHT, 0, i % 2 ? CUDA_ARRAY3D_SURFACE_LDST : 0);
        CUsurfObject surface = surface_of(array);
        printf("%s\n", formats[i].name);
        writes(&formats[i], array, surface);
        if (formats[i].kind == NORMALISED)
            reads_of(&formats[i], array);
        CHECK(cuSurfObjectDestroy(surface));
        CHECK(cuArrayDestroy(array));
    }
    few_channels();
    others();
    CHECK(cuMemFree_v2(words));
    CHECK(cuMemFree_v2(rows));
    CHECK(cuModuleUnload(module));
    puts(wrong ? "wrong" : "done");
    return wrong;
}
