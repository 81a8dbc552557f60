/*
 * texture_forms.c - a transcript of every form of the instructions that fetch from textures, on mipmapped textures whose
 * levels, layers and texels all differ: the instruction decides of which type each operand is, whatever the registers are
 * that hold it.
 *
 * For each geometry there is one kernel of all its forms. What each must give follows from the definition, so the program
 * fails by itself as well.
 */
#include "tests/fidelity/must.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum geometry { G1D, G2D, G3D, GA1D, GA2D, GCUBE, GACUBE, GEOMETRIES };
enum mode { PLAIN, BASE, LEVEL, GRADIENT, GATHER, MODES };
/* How operands are written; one of integers in the place of a float holds its bits. */
enum style { DECLARED, BITS, UNSIGNED, SIGNED, LITERAL, STYLES };

static const struct {
    const char *name;
    unsigned dimensions; /* of coordinates */
    bool layered;
    size_t width, height, depth;
    unsigned flags;
} geometries[GEOMETRIES] = {
    [G1D] = {"1d", 1, false, 8, 0, 0, 0},
    [G2D] = {"2d", 2, false, 8, 4, 0, 0},
    [G3D] = {"3d", 3, false, 8, 4, 4, 0},
    [GA1D] = {"a1d", 1, true, 8, 0, 3, CUDA_ARRAY3D_LAYERED},
    [GA2D] = {"a2d", 2, true, 8, 4, 3, CUDA_ARRAY3D_LAYERED},
    [GCUBE] = {"cube", 3, false, 8, 8, 6, CUDA_ARRAY3D_CUBEMAP},
    [GACUBE] = {"acube", 3, true, 8, 8, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED},
};
static const char *const modes[] = {"", ".base", ".level", ".grad"};

enum { LEVELS = 3, FORMS_MAX = 400, WORDS = 16 };

/* What a kernel is given: words of whatever type their place has. */
struct place {
    float u[3];
    int32_t index[3], layer;
    float level;
    int32_t level_index;
    float across[3], down[3];
    int32_t unused;
};

struct form {
    enum mode mode;
    bool integer, literal, offset;
    unsigned component;
    char result; /* f: words of the texture's type, h: halves, p: pairs of halves */
};

static struct form forms[FORMS_MAX];
static unsigned n_forms;
static char text[1 << 20];
static size_t used;
static CUdeviceptr in, out;
static bool wrong;

/* --- the kernels --- */

static void add(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, arguments);
    va_end(arguments);
}

/* The place that literals name: texel (1, 0, 0) of level 1, of layer 1; of cubes the same on the first face. */
static const struct place literal = {.u = {0.375f, 0.25f, 0.25f},
                                     .index = {1, 0, 0},
                                     .layer = 1,
                                     .level = 1,
                                     .level_index = 1,
                                     .across = {0.25f}};
static const struct place literal_cube = {
    .u = {1.0f, 0.75f, 0.25f}, .layer = 1, .level = 1, .level_index = 1, .across = {0, 0, 0.5f}};

/* Word `w` of the place, as an operand of a float or of an integer. */
static void operand(const struct place *constants, unsigned w, bool is_float, enum style style)
{
    static const char *const registers[] = {[BITS] = "%b", [UNSIGNED] = "%u", [SIGNED] = "%s"};
    uint32_t word;
    float number;
    memcpy(&word, (const char *)constants + 4 * w, 4);
    memcpy(&number, &word, 4);
    if (style == LITERAL && is_float && w % 2)
        add("0f%08X", word);
    else if (style == LITERAL && is_float)
        add("%f", (double)number);
    else if (style == LITERAL)
        add("%d", (int)word);
    else
        add("%s%u", style == DECLARED ? is_float ? "%f" : "%s" : registers[style], w);
}

static void vector(const struct place *constants, unsigned first, unsigned count, unsigned padded,
                   bool is_float, enum style style)
{
    for (unsigned i = 0; i < padded; i++) {
        add(i ? ", " : "{");
        operand(constants, first + (i < count ? i : count - 1), is_float, style);
    }
    add("}");
}

static void coordinates(const struct place *constants, enum geometry g, bool integer, enum style style)
{
    const unsigned n = geometries[g].dimensions, all = n + geometries[g].layered;
    add("[%%t, {");
    if (geometries[g].layered) {
        operand(constants, 6, false, style);
        add(", ");
    }
    for (unsigned i = 0; i < n; i++) {
        add(i ? ", " : "");
        operand(constants, (integer ? 3 : 0) + i, !integer, style);
    }
    if (all == 3) { /* a vector of four, of which the last is ignored */
        add(", ");
        operand(constants, integer ? 3 : 0, !integer, style);
    }
    add("}]");
}

/* One instruction, and what it gives stored behind what the others give. */
static void add_form(enum geometry g, bool ints, struct form form, enum style style, bool resident)
{
    const struct place *constants = g >= GCUBE ? &literal_cube : &literal;
    const unsigned n = geometries[g].dimensions, padded = n == 3 ? 4 : n;
    const char *type = form.result == 'h'   ? "v4.f16"
                       : form.result == 'p' ? "v2.f16x2"
                       : ints               ? "v4.s32"
                                            : "v4.f32";
    if (form.mode == GATHER)
        add("tld4.%c", "rgba"[form.component]);
    else
        add("tex%s", modes[form.mode]);
    add(".%s.%s.%s ", geometries[g].name, type, form.integer ? "s32" : "f32");
    if (form.result == 'h')
        add("{%%h0, %%h1, %%h2, %%h3}");
    else if (form.result == 'p')
        add("{%%r0, %%r1}");
    else
        add(style == UNSIGNED       ? "{%%ru0, %%ru1, %%ru2, %%ru3}"
            : ints || style == BITS ? "{%%r0, %%r1, %%r2, %%r3}"
                                    : "{%%rf0, %%rf1, %%rf2, %%rf3}");
    add("%s, ", resident ? "|%p" : "");
    coordinates(constants, g, form.integer, style);
    if (form.mode == LEVEL) {
        const bool braces = !form.integer && (style == UNSIGNED || style == SIGNED);
        add(braces ? ", {" : ", ");
        operand(constants, form.integer ? 8 : 7, !form.integer, style);
        add(braces ? "}" : "");
    }
    for (unsigned i = 0; i < 2 && form.mode == GRADIENT; i++) {
        add(", ");
        vector(constants, 9 + 3 * i, n, padded, true, style == UNSIGNED || style == SIGNED ? BITS : style);
    }
    if (form.offset)
        add(n == 1 ? ", {1}" : n == 2 ? ", {1, -1}" : ", {1, -1, %%one, 0}");
    add(";\n");
    if (form.result == 'h')
        add("mov.b32 %%r0, {%%h0, %%h1}; mov.b32 %%r1, {%%h2, %%h3};\n");
    if (form.result != 'f')
        add("st.global.v2.b32 [%%o+%u], {%%r0, %%r1};\n", 32 * n_forms);
    else
        for (int i = 0; i < 4; i++)
            add("st.global.b32 [%%o+%u], %%%s%d;\n", 32 * n_forms + 4 * (unsigned)i,
                style == UNSIGNED       ? "ru"
                : ints || style == BITS ? "r"
                                        : "rf",
                i);
    if (resident)
        add("selp.b32 %%r0, 1, 0, %%p; st.global.b32 [%%o+%u], %%r0;\n", 32 * n_forms + 16);
    form.literal = style == LITERAL;
    forms[n_forms++] = form;
}

static void add_forms(enum geometry g, bool ints)
{
    const bool cube = g >= GCUBE, flat = geometries[g].dimensions == 2;
    unsigned turn = 0;
    n_forms = 0;
    for (enum mode mode = PLAIN; mode <= GRADIENT; mode++)
        for (int integer = 0; integer <= !cube; integer++)
            for (enum style style = DECLARED; style < STYLES; style++)
                for (int offset = 0; offset <= !cube; offset++)
                    add_form(g, ints, (struct form){mode, integer, false, offset, 0, 'f'}, style, turn++ & 1);
    for (enum mode mode = PLAIN; mode <= GRADIENT && !ints; mode++)
        for (int integer = 0; integer <= !cube; integer++)
            for (int pairs = 0; pairs < 2; pairs++)
                add_form(g, ints, (struct form){mode, integer, false, false, 0, pairs ? 'p' : 'h'},
                         (enum style)(turn % STYLES), turn & 1),
                    turn++;
    for (unsigned component = 0; component < 4 && (flat || cube); component++)
        for (int offset = 0; offset <= !cube; offset++)
            add_form(g, ints, (struct form){GATHER, false, false, offset, component, 'f'},
                     (enum style)(component % (SIGNED + 1)), component & 1);
}

static CUmodule make_kernel(enum geometry g, bool ints)
{
    CUmodule module;
    used = 0;
    add(".version 8.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry k(.param .u64 t, .param .u64 i, .param .u64 o)\n{\n"
        ".reg .b64 %%t, %%i, %%o; .reg .f32 %%f<16>, %%rf<4>; .reg .b32 %%b<16>, %%r<4>; .reg .u32 %%u<16>, "
        "%%ru<4>;\n"
        ".reg .s32 %%s<16>, %%one; .reg .b16 %%h<4>; .reg .pred %%p;\n"
        "ld.param.u64 %%t, [t]; ld.param.u64 %%i, [i]; ld.param.u64 %%o, [o]; mov.s32 %%one, 1;\n");
    for (unsigned w = 0; w < WORDS; w++)
        add("ld.global.f32 %%f%u, [%%i+%u]; mov.b32 %%b%u, %%f%u; mov.b32 %%u%u, %%f%u; mov.b32 %%s%u, "
            "%%f%u;\n",
            w, 4 * w, w, w, w, w, w, w);
    add_forms(g, ints);
    add("ret;\n}\n");
    CHECK(cuModuleLoadData(&module, text));
    return module;
}

/* --- what they must give --- */

static size_t at_level(size_t extent, unsigned level)
{
    return extent >> level ? extent >> level : 1;
}

/* Channel `c` of a texel; the third coordinate is the slice, the layer or the face. */
static float value(unsigned level, long z, long y, long x, unsigned c)
{
    return (float)((((level * 12 + z) * 8 + y) * 8 + x) * 4 + (long)c);
}

static long clamped(long at, size_t extent)
{
    return at < 0 ? 0 : at < (long)extent ? at : (long)extent - 1;
}

static unsigned level_of(const struct form *f, const struct place *p, enum geometry g)
{
    if (f->mode == LEVEL)
        return (unsigned)(f->integer ? p->level_index : (int)p->level);
    const float longest = fmaxf(fabsf(p->across[0]), fabsf(p->across[2]) / 2);
    (void)g; /* all are as wide */
    return f->mode == GRADIENT ? (unsigned)log2f(longest * 8) : 0;
}

/* Where on the first face of a cube a direction is: its first component is 1. */
static float on_face(const struct place *p, unsigned d)
{
    return (1 - p->u[2 - d]) / 2;
}

static void expect(const struct form *f, enum geometry g, const struct place *given, float result[4])
{
    const bool cube = g >= GCUBE;
    const struct place *p = !f->literal ? given : cube ? &literal_cube : &literal;
    const unsigned level = level_of(f, p, g), n = cube ? 2 : geometries[g].dimensions;
    const size_t extents[3] = {at_level(geometries[g].width, level), at_level(geometries[g].height, level),
                               n == 3 ? at_level(geometries[g].depth, level) : geometries[g].depth};
    static const long offsets[3] = {1, -1, 1}, corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    long at[3] = {0};
    for (unsigned d = 0; d < n; d++) {
        const float u = (cube ? on_face(p, d) : p->u[d]) * (float)extents[d] - (f->mode == GATHER ? 0.5f : 0);
        at[d] = (f->integer ? p->index[d] : (long)floorf(u)) + (f->offset ? offsets[d] : 0);
    }
    if (geometries[g].layered)
        at[2] = (uint32_t)p->layer < extents[2] / (cube ? 6 : 1) ? p->layer
                                                                 : (long)extents[2] / (cube ? 6 : 1) - 1;
    at[2] *= cube && geometries[g].layered ? 6 : 1; /* and the first face */
    if (n == 3)
        at[2] = clamped(at[2], extents[2]);
    for (unsigned i = 0; i < 4; i++) {
        const long dx = f->mode == GATHER ? corners[i][0] : 0, dy = f->mode == GATHER ? corners[i][1] : 0;
        const long y = n > 1 ? clamped(at[1] + dy, extents[1]) : 0;
        result[i] =
            value(level, at[2], y, clamped(at[0] + dx, extents[0]), f->mode == GATHER ? f->component : i);
    }
}

/* The half of an integer that a float holds, and is not too large for it; rounded to nearest even. */
static uint32_t half_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return number == 0 ? 0 : (bits - (112u << 23) + 0xfffu + (bits >> 13 & 1)) >> 13;
}

static bool same(const struct form *f, bool ints, const uint32_t *got, const float *expected)
{
    for (unsigned i = 0; i < 4; i++) {
        uint32_t word = ints ? (uint32_t)(int32_t)expected[i] : 0, have = got[i];
        if (!ints)
            memcpy(&word, &expected[i], 4);
        if (f->result != 'f') {
            word = half_of(expected[i]);
            have = got[i / 2] >> 16 * (i % 2) & 0xffff;
        }
        if (have != word)
            return false;
    }
    return true;
}

/* --- textures --- */

static void fill(CUarray array, enum geometry g, unsigned level, bool ints)
{
    const size_t width = at_level(geometries[g].width, level), height = at_level(geometries[g].height, level);
    const size_t depth = g == G3D ? at_level(4, level) : geometries[g].depth ? geometries[g].depth : 1;
    float *data = malloc(width * height * depth * 4 * sizeof *data);
    for (size_t i = 0; i < width * height * depth * 4; i++) {
        const size_t texel = i / 4;
        const float number = value(level, (long)(texel / width / height), (long)(texel / width % height),
                                   (long)(texel % width), i % 4);
        const int32_t integer = (int32_t)number;
        memcpy(&data[i], ints ? (const void *)&integer : (const void *)&number, 4);
    }
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = data,
                          .srcPitch = width * 16,
                          .srcHeight = height,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = width * 16,
                          .Height = height,
                          .Depth = depth};
    CHECK(cuMemcpy3D_v2(&copy));
    free(data);
}

static CUtexObject make_texture(enum geometry g, bool ints, CUmipmappedArray *mipmap)
{
    CUtexObject texture;
    CUarray level;
    const CUDA_ARRAY3D_DESCRIPTOR d = {geometries[g].width,
                                       geometries[g].height,
                                       geometries[g].depth,
                                       ints ? CU_AD_FORMAT_SIGNED_INT32 : CU_AD_FORMAT_FLOAT,
                                       4,
                                       geometries[g].flags};
    CHECK(cuMipmappedArrayCreate(mipmap, &d, LEVELS));
    for (unsigned i = 0; i < LEVELS; i++) {
        CHECK(cuMipmappedArrayGetLevel(&level, *mipmap, i));
        fill(level, g, i, ints);
    }
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    resource.res.mipmap.hMipmappedArray = *mipmap;
    const CUaddress_mode clamp = CU_TR_ADDRESS_MODE_CLAMP;
    const CUDA_TEXTURE_DESC t = {.addressMode = {clamp, clamp, clamp},
                                 .flags =
                                     CU_TRSF_NORMALIZED_COORDINATES | (ints ? CU_TRSF_READ_AS_INTEGER : 0),
                                 .maxMipmapLevelClamp = 16};
    CHECK(cuTexObjectCreate(&texture, &resource, &t, NULL));
    return texture;
}

/* In the middle of a texel of a level, near another in texels' indices. */
static struct place make_place(enum geometry g, unsigned level, unsigned number)
{
    const size_t extents[3] = {at_level(geometries[g].width, level), at_level(geometries[g].height, level),
                               at_level(geometries[g].depth, level)};
    struct place p = {
        .layer = (int[]){0, 1, 2, 7, -1}[number % 5], .level = (float)level, .level_index = (int)level};
    for (unsigned d = 0; d < 3; d++) {
        const size_t i = (number + d) % extents[d];
        p.u[d] = ((float)i + 0.5f) / (float)extents[d];
        p.index[d] = (int)i;
    }
    p.across[0] = (float)(1u << level) / 8;
    if (g >= GCUBE) {
        p.u[2] = 1 - 2 * p.u[0];
        p.u[1] = 1 - 2 * p.u[1];
        p.u[0] = 1;
        p.across[2] = 2 * p.across[0];
        p.across[0] = 0;
    }
    return p;
}

static void run(CUfunction k, CUtexObject texture, enum geometry g, bool ints, const struct place *p)
{
    static uint32_t got[FORMS_MAX][8];
    void *arguments[] = {&texture, &in, &out};
    unsigned right = 0;
    CHECK(cuMemcpyHtoD_v2(in, p, sizeof *p));
    CHECK(cuMemsetD32_v2(out, 1, sizeof got / 4));
    CHECK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuMemcpyDtoH_v2(got, out, sizeof got));
    for (unsigned i = 0; i < n_forms; i++) {
        float expected[4];
        expect(&forms[i], g, p, expected);
        if (same(&forms[i], ints, got[i], expected) && got[i][4] == 1) {
            right++;
            continue;
        }
        printf("  form %u (mode %d, integer %d, literal %d, offset %d, component %u, result %c) at level %d: "
               "%08x %08x "
               "%08x %08x, %u; expected %g %g %g %g\n",
               i, (int)forms[i].mode, forms[i].integer, forms[i].literal, forms[i].offset, forms[i].component,
               forms[i].result, p->level_index, got[i][0], got[i][1], got[i][2], got[i][3], got[i][4],
               (double)expected[0], (double)expected[1], (double)expected[2], (double)expected[3]);
        wrong = true;
    }
    printf("%s %s, level %d: %u of %u\n", geometries[g].name, ints ? "integers" : "floats", p->level_index,
           right, n_forms);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    use_first_device();
    CHECK(cuMemAlloc_v2(&in, 4096));
    CHECK(cuMemAlloc_v2(&out, FORMS_MAX * 32));
    for (int kind = 0; kind < 2 * GEOMETRIES; kind++) {
        const enum geometry g = (enum geometry)(kind / 2);
        CUmipmappedArray mipmap;
        CUfunction k;
        CUmodule module = make_kernel(g, kind & 1);
        CUtexObject texture = make_texture(g, kind & 1, &mipmap);
        CHECK(cuModuleGetFunction(&k, module, "k"));
        for (unsigned number = 0; number < 5 * LEVELS; number++) {
            const struct place p = make_place(g, number % LEVELS, number);
            run(k, texture, g, kind & 1, &p);
        }
        CHECK(cuTexObjectDestroy(texture));
        CHECK(cuMipmappedArrayDestroy(mipmap));
        CHECK(cuModuleUnload(module));
    }
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong;
}
