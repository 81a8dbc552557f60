/*
 * surface_forms.c - a transcript of every form of the instructions on surfaces, and of the queries of textures and surfaces.
 *
 * For each geometry there is one kernel of all its loads, one of its stores and one of its reductions, with one place for
 * all; what each must give follows from the definition, so the program fails by itself as well.
 */
#include "tests/fidelity/must.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum geometry { G1D, G2D, G3D, GA1D, GA2D, GEOMETRIES };

static const struct {
    const char *name;
    unsigned dimensions;
    bool layered;
    size_t width, height, depth;
} geometries[GEOMETRIES] = {
    [G1D] = {"1d", 1, false, 8, 0, 0},  [G2D] = {"2d", 2, false, 8, 4, 0},  [G3D] = {"3d", 3, false, 8, 4, 3},
    [GA1D] = {"a1d", 1, true, 8, 0, 3}, [GA2D] = {"a2d", 2, true, 8, 4, 3},
};

enum { TEXEL = 16, ROW = 8 * TEXEL, ALL = ROW * 4 * 3, FORMS_MAX = 128 };
enum bound { TRAP, CLAMP, ZERO };
static const char *const bounds[] = {".trap", ".clamp", ".zero"};

static struct {
    unsigned bytes;
    enum bound bound;
} forms[FORMS_MAX];
static unsigned n_forms;
static char text[1 << 18];
static size_t used;
static CUdeviceptr in, out;
static bool wrong;

static void add(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    used += (size_t)vsnprintf(text + used, sizeof text - used, format, arguments);
    va_end(arguments);
}

/* The place is in words 0 to 2, a layer in word 3; `declared` is one of %b, %u and %s. */
static void place(enum geometry g, char declared)
{
    const unsigned n = geometries[g].dimensions;
    add("[%%t, {");
    if (geometries[g].layered)
        add("%%%c3, ", declared);
    for (unsigned d = 0; d < n; d++)
        add(d ? ", %%%c%u" : "%%%c%u", declared, d);
    add(n + geometries[g].layered == 3 ? ", %%%c0}]" : "}]", declared);
}

static void vector(const char *name, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        add(i ? ", %s%u" : count > 1 ? "{%s%u" : "%s%u", name, i);
    add(count > 1 ? "}" : "");
}

/* Loads and stores of every type and vector, in turn with registers of the same size, wider, and of other types. */
static void add_accesses(enum geometry g, bool store, bool traps)
{
    static const char *const vectors[] = {"", "", ".v2", "", ".v4"};
    static const char *const registers[4][2] = {{"%h", "%r"}, {"%h", "%r"}, {"%r", "%f"}, {"%d", "%e"}};
    n_forms = 0;
    for (enum bound bound = TRAP; bound <= ZERO; bound++)
        for (unsigned power = 0; power < 4; power++)
            for (unsigned count = 1; count <= 4 && count << power <= 16; count *= 2) {
                if ((bound == TRAP) != traps)
                    continue;
                const unsigned bytes = count << power, bits = 8u << power;
                const char *name = registers[power][n_forms % 2], declared = "bus"[n_forms % 3];
                const unsigned size = name[1] == 'h' ? 2 : name[1] == 'r' || name[1] == 'f' ? 4 : 8;
                const char *type = name[1] == 'f'   ? "f32"
                                   : name[1] == 'e' ? "f64"
                                   : size == 2      ? "b16"
                                   : size == 4      ? "b32"
                                                    : "b64";
                if (store) { /* form n writes its own bytes, where the place is and n rows further */
                    for (unsigned i = 0; i < count; i++)
                        add("ld.global.%s %s%u, [%%o+%u];\n", type, name, i, 64 * n_forms + 8 * i);
                    add("sust.b.%s%s.b%u%s ", geometries[g].name, vectors[count], bits, bounds[bound]);
                    place(g, declared);
                    add(", ");
                    vector(name, count);
                    add(";\nadd.u32 %%b0, %%b0, 16; add.u32 %%u0, %%u0, 16; add.s32 %%s0, %%s0, 16;\n");
                } else {
                    add("suld.b.%s%s.b%u%s ", geometries[g].name, vectors[count], bits, bounds[bound]);
                    vector(name, count);
                    add(", ");
                    place(g, declared);
                    add(";\n");
                    for (unsigned i = 0; i < count; i++)
                        add("st.global.%s [%%o+%u], %s%u;\n", type, 64 * n_forms + 8 * i, name, i);
                }
                forms[n_forms].bytes = bytes;
                forms[n_forms++].bound = bound;
            }
}

static void add_reductions(enum geometry g)
{
    static const char *const operations[] = {"add.u32", "min.s32", "max.u32", "and.b32",
                                             "or.b32",  "add.u64", "min.s64", "max.u64"};
    for (unsigned i = 0; i < 8; i++) {
        const char *dot = strchr(operations[i], '.');
        add("sured.b.%.*s.%s%s%s ", (int)(dot - operations[i]), operations[i], geometries[g].name, dot,
            bounds[i % 4 == 3 ? ZERO : CLAMP]);
        place(g, "bus"[i % 3]);
        add(", %s;\nadd.u32 %%b0, %%b0, 16; add.u32 %%u0, %%u0, 16; add.s32 %%s0, %%s0, 16;\n",
            i == 3   ? "0xff00ff"
            : i == 1 ? "-5"
            : i < 5  ? "%r9"
            : i == 6 ? "%d9"
                     : "0x123456789a");
    }
}

static CUmodule compile(CUfunction *k, enum geometry g, int kind, bool traps)
{
    CUmodule module;
    used = 0;
    add(".version 8.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry k(.param .u64 t, .param .u64 i, .param .u64 o)\n{\n"
        ".reg .b64 %%t, %%i, %%o, %%d<10>; .reg .f64 %%e<4>; .reg .f32 %%f<4>; .reg .b16 %%h<4>; .reg .b32 "
        "%%b<4>, %%r<10>;\n"
        ".reg .u32 %%u<4>; .reg .s32 %%s<4>;\n"
        "ld.param.u64 %%t, [t]; ld.param.u64 %%i, [i]; ld.param.u64 %%o, [o]; mov.b32 %%r9, 77; mov.b64 "
        "%%d9, -77;\n"
        "ld.global.v4.b32 {%%b0, %%b1, %%b2, %%b3}, [%%i]; ld.global.v4.u32 {%%u0, %%u1, %%u2, %%u3}, "
        "[%%i];\n"
        "ld.global.v4.s32 {%%s0, %%s1, %%s2, %%s3}, [%%i];\n");
    if (kind == 2)
        add_reductions(g);
    else
        add_accesses(g, kind == 1, traps);
    add("ret;\n}\n");
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(k, module, "k"));
    return module;
}

/* --- what they must do --- */

static long clamped(long at, long last)
{
    return at < 0 ? 0 : at < last ? at : last;
}

/* Where an access goes among the bytes of the surface, or -1. */
static long locate(enum geometry g, const int32_t at[4], unsigned bytes, enum bound bound)
{
    const long rows = geometries[g].height ? (long)geometries[g].height : 1;
    const long slices = geometries[g].depth ? (long)geometries[g].depth : 1;
    long x = at[0], y = geometries[g].dimensions > 1 ? at[1] : 0,
         z = geometries[g].dimensions > 2 ? at[2] : 0;
    if (geometries[g].layered)
        z = (uint32_t)at[3];
    const long last = ROW - (long)bytes;
    const bool outside = x < 0 || x > last || y < 0 || y >= rows || z < 0 || z >= slices;
    if (outside && bound == ZERO)
        return -1;
    return (clamped(z, slices - 1) * rows + clamped(y, rows - 1)) * ROW + clamped(x, last);
}

static void copy(CUarray array, enum geometry g, unsigned char *bytes, bool to_array)
{
    CUDA_MEMCPY3D c = {.WidthInBytes = ROW,
                       .Height = geometries[g].height ? geometries[g].height : 1,
                       .Depth = geometries[g].depth ? geometries[g].depth : 1};
    c.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = c.dstHost = bytes;
    c.srcArray = c.dstArray = array;
    c.srcPitch = c.dstPitch = ROW;
    c.srcHeight = c.dstHeight = c.Height;
    CHECK(cuMemcpy3D_v2(&c));
}

static void check(bool good, const char *what, enum geometry g, unsigned form)
{
    if (good)
        return;
    printf("  %s %s: form %u is wrong\n", what, geometries[g].name, form);
    wrong = true;
}

static void launch(CUfunction k, CUsurfObject surface, const int32_t at[4])
{
    void *arguments[] = {&surface, &in, &out};
    CHECK(cuMemcpyHtoD_v2(in, at, 16));
    CHECK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuCtxSynchronize());
}

/* The value of element `i` of a form's vector in the buffer, where each has eight bytes. */
static const unsigned char *element(const unsigned char *buffer, unsigned form, unsigned i)
{
    return buffer + 64 * form + 8 * i;
}

static void loads(CUsurfObject surface, enum geometry g, const unsigned char *bytes, const int32_t at[4],
                  bool traps)
{
    static unsigned char got[64 * FORMS_MAX];
    CUfunction k;
    CUmodule module = compile(&k, g, 0, traps);
    CHECK(cuMemsetD8_v2(out, 0xee, sizeof got));
    launch(k, surface, at);
    CHECK(cuMemcpyDtoH_v2(got, out, sizeof got));
    unsigned n = 0;
    for (enum bound bound = TRAP; bound <= ZERO; bound++)
        for (unsigned power = 0; power < 4; power++)
            for (unsigned count = 1; count <= 4 && count << power <= 16; count *= 2) {
                if ((bound == TRAP) != traps)
                    continue;
                static const unsigned char zero[16];
                const long from = locate(g, at, count << power, bound);
                bool good = true;
                for (unsigned i = 0; i < count; i++)
                    good &= memcmp(element(got, n, i), from < 0 ? zero : bytes + from + (i << power),
                                   1u << power) == 0;
                check(good, "load", g, n++);
            }
    printf("loads %s at %d %d %d %d: %u forms\n", geometries[g].name, at[0], at[1], at[2], at[3], n);
    CHECK(cuModuleUnload(module));
}

static void stores(CUarray array, CUsurfObject surface, enum geometry g, const int32_t at[4], bool traps)
{
    static unsigned char values[64 * FORMS_MAX], model[ALL], got[ALL];
    CUfunction k;
    CUmodule module = compile(&k, g, 1, traps);
    for (unsigned i = 0; i < sizeof values; i++)
        values[i] = (unsigned char)(i * 7 + i / 64);
    memset(model, 0x55, sizeof model);
    memset(got, 0x55, sizeof got);
    copy(array, g, model, true);
    CHECK(cuMemcpyHtoD_v2(out, values, sizeof values));
    launch(k, surface, at);
    copy(array, g, got, false);
    int32_t here[4];
    memcpy(here, at, sizeof here);
    unsigned n = 0;
    for (enum bound bound = TRAP; bound <= ZERO; bound++)
        for (unsigned power = 0; power < 4; power++)
            for (unsigned count = 1; count <= 4 && count << power <= 16; count *= 2) {
                if ((bound == TRAP) != traps)
                    continue;
                const long to = locate(g, here, count << power, bound);
                for (unsigned i = 0; i < count && to >= 0; i++)
                    memcpy(model + to + (i << power), element(values, n, i), 1u << power);
                here[0] += 16;
                n++;
            }
    check(memcmp(model, got, sizeof got) == 0, "store", g, n);
    printf("stores %s at %d %d %d %d: %u forms\n", geometries[g].name, at[0], at[1], at[2], at[3], n);
    CHECK(cuModuleUnload(module));
}

/* As the device does them, one texel after another. */
static void reductions(CUarray array, CUsurfObject surface, enum geometry g, const int32_t at[4])
{
    static unsigned char model[ALL], got[ALL];
    CUfunction k;
    CUmodule module = compile(&k, g, 2, false);
    for (unsigned i = 0; i < ALL; i++)
        got[i] = model[i] = (unsigned char)(i * 37 + 11);
    copy(array, g, model, true);
    launch(k, surface, at);
    copy(array, g, got, false);
    int32_t here[4];
    memcpy(here, at, sizeof here);
    for (unsigned i = 0; i < 8; i++, here[0] += 16) {
        const long to = locate(g, here, i < 5 ? 4 : 8, i % 4 == 3 ? ZERO : CLAMP);
        uint32_t word;
        uint64_t wide;
        if (to < 0)
            continue;
        memcpy(&word, model + to, 4);
        memcpy(&wide, model + to, 8);
        word = i == 0   ? word + 77
               : i == 1 ? (int32_t)word < -5 ? word : (uint32_t)-5
               : i == 2 ? word > 77 ? word : 77
               : i == 3 ? word & 0xff00ff
                        : word | 77;
        wide = i == 5                ? wide + 0x123456789a
               : i == 6              ? (int64_t)wide < -77 ? wide : (uint64_t)-77
               : wide > 0x123456789a ? wide
                                     : 0x123456789a;
        memcpy(model + to, i < 5 ? (const void *)&word : (const void *)&wide, i < 5 ? 4 : 8);
    }
    check(memcmp(model, got, sizeof got) == 0, "reduction", g, 0);
    printf("reductions %s at %d %d %d %d\n", geometries[g].name, at[0], at[1], at[2], at[3]);
    CHECK(cuModuleUnload(module));
}

static void surfaces(enum geometry g)
{
    static const int32_t inside[2][4] = {{0, 0, 0, 0}, {0, 3, 2, 2}};
    static const int32_t outside[5][4] = {
        {-16, 0, 0, 0}, {128, 1, 1, 1}, {112, -1, 4, 3}, {0, 9, -2, -1}, {-48, 2, 1, 1 << 30}};
    static unsigned char bytes[ALL];
    CUarray array;
    CUsurfObject surface;
    const CUDA_ARRAY3D_DESCRIPTOR d = {geometries[g].width,
                                       geometries[g].height,
                                       geometries[g].depth,
                                       CU_AD_FORMAT_UNSIGNED_INT32,
                                       4,
                                       CUDA_ARRAY3D_SURFACE_LDST |
                                           (geometries[g].layered ? CUDA_ARRAY3D_LAYERED : 0)};
    CHECK(cuArray3DCreate_v2(&array, &d));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    CHECK(cuSurfObjectCreate(&surface, &resource));
    for (unsigned i = 0; i < ALL; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 256);
    copy(array, g, bytes, true);
    for (int i = 0; i < 2; i++)
        loads(surface, g, bytes, inside[i], true);
    for (int i = 0; i < 7; i++)
        loads(surface, g, bytes, i < 5 ? outside[i] : inside[i - 5], false);
    for (int i = 0; i < 5; i++) {
        stores(array, surface, g, outside[i], false);
        reductions(array, surface, g, outside[i]);
    }
    reductions(array, surface, g, inside[1]);
    CHECK(cuSurfObjectDestroy(surface));
    CHECK(cuArrayDestroy(array));
}

/* --- queries --- */

static const char *const texture_queries[] = {"width",
                                              "height",
                                              "depth",
                                              "array_size",
                                              "num_mipmap_levels",
                                              "num_samples",
                                              "normalized_coords",
                                              "filter_mode",
                                              "addr_mode_0",
                                              "addr_mode_1",
                                              "addr_mode_2"};
enum { QUERIES = 11, OF_LEVELS = 12 };

/* What the queries give of a mipmapped (or of a plain) array of 8 x 4 texels. */
static void queries(size_t depth, unsigned flags, unsigned levels, const uint32_t *expected)
{
    uint32_t got[QUERIES + OF_LEVELS] = {0};
    const CUDA_ARRAY3D_DESCRIPTOR d = {
        8, flags & CUDA_ARRAY3D_CUBEMAP ? 8 : 4, depth, CU_AD_FORMAT_FLOAT, 1, flags};
    CUDA_RESOURCE_DESC resource = {.resType =
                                       levels ? CU_RESOURCE_TYPE_MIPMAPPED_ARRAY : CU_RESOURCE_TYPE_ARRAY};
    CUDA_TEXTURE_DESC t = {
        .addressMode = {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_BORDER},
        .filterMode = CU_TR_FILTER_MODE_LINEAR,
        .flags = levels ? CU_TRSF_NORMALIZED_COORDINATES : 0,
        .maxMipmapLevelClamp = 9};
    CUtexObject texture;
    CUmodule module;
    CUfunction k;
    used = 0;
    add(".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 t, .param .u64 o)\n{\n"
        ".reg .b64 %%t, %%o; .reg .b32 %%r; .reg .u32 %%u; .reg .s32 %%s; .reg .b32 %%b;\n"
        "ld.param.u64 %%t, [t]; ld.param.u64 %%o, [o]; mov.u32 %%u, 1; mov.s32 %%s, 2; mov.b32 %%b, 1;\n");
    for (unsigned i = 0; i < QUERIES; i++)
        add("txq.%s.b32 %%r, [%%t]; st.global.b32 [%%o+%u], %%r;\n", texture_queries[i], 4 * i);
    for (unsigned i = 0; i < OF_LEVELS; i++)
        add("txq.level.%s.b32 %%r, [%%t], %s; st.global.b32 [%%o+%u], %%r;\n", texture_queries[i % 3],
            (const char *[]){"%b", "%u", "%s", "2"}[i / 3], 4 * (QUERIES + i));
    add("ret;\n}\n");
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&k, module, "k"));
    if (levels)
        CHECK(cuMipmappedArrayCreate(&resource.res.mipmap.hMipmappedArray, &d, levels));
    else
        CHECK(cuArray3DCreate_v2(&resource.res.array.hArray, &d));
    CHECK(cuTexObjectCreate(&texture, &resource, &t, NULL));
    void *arguments[] = {&texture, &out};
    CHECK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuMemcpyDtoH_v2(got, out, sizeof got));
    for (unsigned i = 0; i < QUERIES + OF_LEVELS; i++) {
        const uint32_t want = i < 8         ? expected[i]
                              : i < QUERIES ? (const uint32_t[]){0, 3, 4}[i - 8]
                                            : expected[8 + (i - QUERIES) % 3 + (i - QUERIES) / 6 * 3];
        printf("query %u: %u\n", i, got[i]);
        if (got[i] != want) {
            printf("  %u was expected\n", want);
            wrong = true;
        }
    }
    CHECK(cuTexObjectDestroy(texture));
    CHECK(levels ? cuMipmappedArrayDestroy(resource.res.mipmap.hMipmappedArray)
                 : cuArrayDestroy(resource.res.array.hArray));
    CHECK(cuModuleUnload(module));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    use_first_device();
    CHECK(cuMemAlloc_v2(&in, 256));
    CHECK(cuMemAlloc_v2(&out, 64 * FORMS_MAX));
    for (enum geometry g = 0; g < GEOMETRIES; g++)
        surfaces(g);
    /* by place in texture_queries up to the filter, then the extents of levels 1 and 2 */
    queries(0, 0, 3, (const uint32_t[]){8, 4, 1, 0, 3, 0, 1, 1, 4, 2, 1, 2, 1, 1});
    queries(6, 0, 3, (const uint32_t[]){8, 4, 6, 0, 3, 0, 1, 1, 4, 2, 3, 2, 1, 1});
    queries(5, CUDA_ARRAY3D_LAYERED, 3, (const uint32_t[]){8, 4, 5, 5, 3, 0, 1, 1, 4, 2, 5, 2, 1, 5});
    queries(12, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP, 3,
            (const uint32_t[]){8, 8, 12, 2, 3, 0, 1, 1, 4, 4, 12, 2, 2, 12});
    queries(0, 0, 0, (const uint32_t[]){8, 4, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0});
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong;
}
