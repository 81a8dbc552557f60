/*
 * textures.c - a transcript of arrays, mipmapped arrays, textures of every geometry and surfaces: what kernels fetch, and
 * wrong use. What is fetched is also compared with values that follow from the definition, so the program fails by itself
 * where they differ.
 */
#include "tests/fidelity/must.h"

#include <cuda.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

/* A kernel: texture, coordinates (8 floats a fetch), results (4 words each); a thread a fetch. */
#define KERNEL(name, body)                                                                                   \
    ".visible .entry " name "(.param .u64 t, .param .u64 in, .param .u64 out)\n{\n"                          \
    ".reg .f32 %c<9>, %r<5>; .reg .b64 %t, %a, %b, %o; .reg .b32 %i, %n<5>; .reg .s32 %k<4>;\n"              \
    "ld.param.u64 %t, [t]; ld.param.u64 %a, [in]; ld.param.u64 %b, [out];\n"                                 \
    "mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 32; add.u64 %a, %a, %o;\n"                                     \
    "mul.wide.u32 %o, %i, 16; add.u64 %b, %b, %o;\n"                                                         \
    "ld.global.v4.f32 {%c0, %c1, %c2, %c3}, [%a]; ld.global.v4.f32 {%c4, %c5, %c6, %c7}, [%a+16];\n"         \
    "cvt.rmi.s32.f32 %k0, %c0; cvt.rmi.s32.f32 %k1, %c1; cvt.rmi.s32.f32 %k2, %c2;\n" body                   \
    "st.global.v4.f32 [%b], {%r1, %r2, %r3, %r4};\nret;\n}\n"
#define R "{%r1, %r2, %r3, %r4}"

/* clang-format off */
static const char *ptx =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".global .texref image;\n.visible .global .surfref screen;\n"
    KERNEL("f1", "tex.1d.v4.f32.f32 " R ", [%t, {%c0}];\n")
    KERNEL("f2", "tex.2d.v4.f32.f32 " R ", [%t, {%c0, %c1}];\n")
    KERNEL("f3", "tex.3d.v4.f32.f32 " R ", [%t, {%c0, %c1, %c2, %c2}];\n")
    KERNEL("fa1", "tex.a1d.v4.f32.f32 " R ", [%t, {%k1, %c0}];\n")
    KERNEL("fa2", "tex.a2d.v4.f32.f32 " R ", [%t, {%k2, %c0, %c1, %c1}];\n")
    KERNEL("fc", "tex.cube.v4.f32.f32 " R ", [%t, {%c0, %c1, %c2, %c2}];\n")
    KERNEL("i2", "tex.2d.v4.f32.s32 " R ", [%t, {%k0, %k1}];\n")
    KERNEL("u2", "tex.2d.v4.u32.f32 {%n1, %n2, %n3, %n4}, [%t, {%c0, %c1}];\n"
                 "cvt.rn.f32.u32 %r1, %n1; cvt.rn.f32.u32 %r2, %n2; cvt.rn.f32.u32 %r3, %n3;\n"
                 "cvt.rn.f32.u32 %r4, %n4;\n")
    KERNEL("o2", "tex.2d.v4.f32.f32 " R ", [%t, {%c0, %c1}], {1, -1};\n")
    KERNEL("l2", "tex.level.2d.v4.f32.f32 " R ", [%t, {%c0, %c1}], %c4;\n")
    KERNEL("la2", "tex.level.a2d.v4.f32.f32 " R ", [%t, {%k2, %c0, %c1, %c1}], %c4;\n")
    KERNEL("l3", "tex.level.3d.v4.f32.f32 " R ", [%t, {%c0, %c1, %c2, %c2}], %c4;\n")
    KERNEL("g2", "tex.grad.2d.v4.f32.f32 " R ", [%t, {%c0, %c1}], {%c4, %c5}, {%c6, %c7};\n")
    KERNEL("g3", "tex.grad.3d.v4.f32.f32 " R
                 ", [%t, {%c0, %c1, %c2, %c2}], {%c4, %c5, %c5, %c5}, {%c6, %c7, %c7, %c7};\n")
    KERNEL("gather", "tld4.g.2d.v4.f32.f32 " R ", [%t, {%c0, %c1}];\n")
    KERNEL("query", "txq.width.b32 %n1, [%t]; txq.height.b32 %n2, [%t]; txq.num_mipmap_levels.b32 %n3, [%t];\n"
                    "cvt.rzi.u32.f32 %n4, %c0; txq.level.width.b32 %n4, [%t], %n4;\n"
                    "cvt.rn.f32.u32 %r1, %n1; cvt.rn.f32.u32 %r2, %n2; cvt.rn.f32.u32 %r3, %n3;\n"
                    "cvt.rn.f32.u32 %r4, %n4;\n")
    /* by references */
    KERNEL("byref", "tex.2d.v4.f32.f32 " R ", [image, {%c0, %c1}];\n")
    KERNEL("bylevel", "tex.level.2d.v4.f32.f32 " R ", [image, {%c0, %c1}], %c4;\n")
    KERNEL("bysurf", "suld.b.2d.b32.trap %r1, [screen, {%k0, %k1}];\n"
                     "mov.f32 %r2, %r1; mov.f32 %r3, %r1; mov.f32 %r4, %r1;\n")
    KERNEL("swrite", "suld.b.2d.v4.b32.zero {%r1, %r2, %r3, %r4}, [%t, {%k0, %k1}];\n"
                     "add.f32 %r1, %r1, 0f3F800000;\n"
                     "sust.b.2d.v4.b32.zero [%t, {%k0, %k1}], {%r1, %r2, %r3, %r4};\n");
/* clang-format on */

static CUmodule module;
static CUdeviceptr in, out;
static bool wrong;

/* Fetches at `n` places and prints what comes; `expected` (of the first channel) may be NULL. */
static void fetch(const char *kernel, unsigned long long texture, int n, const float (*at)[8],
                  const float *expected)
{
    CUfunction function;
    float got[16][4];
    void *arguments[] = {&texture, &in, &out};
    CHECK(cuModuleGetFunction(&function, module, kernel));
    CHECK(cuMemcpyHtoD_v2(in, at, (size_t)n * 32));
    CHECK(cuMemsetD32_v2(out, 0xdeadbeef, 64));
    CHECK(cuLaunchKernel(function, 1, 1, 1, (unsigned)n, 1, 1, 0, NULL, arguments, NULL));
    CHECK(cuMemcpyDtoH_v2(got, out, (size_t)n * 16));
    for (int i = 0; i < n; i++) {
        printf("  %s %g %g %g, %g %g %g %g: %.9g %.9g %.9g %.9g\n", kernel, at[i][0], at[i][1], at[i][2],
               at[i][4], at[i][5], at[i][6], at[i][7], got[i][0], got[i][1], got[i][2], got[i][3]);
        if (expected && got[i][0] != expected[i]) {
            printf("  %.9g was expected\n", expected[i]);
            wrong = true;
        }
    }
}

static CUtexObject texture_of(const CUDA_RESOURCE_DESC *resource, CUfilter_mode filter, CUfilter_mode levels,
                              CUaddress_mode address, unsigned flags, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CUtexObject texture = 0;
    CUDA_TEXTURE_DESC t = {.addressMode = {address, address, address},
                           .filterMode = filter,
                           .flags = flags,
                           .mipmapFilterMode = levels,
                           .maxAnisotropy = 4,
                           .maxMipmapLevelClamp = 16,
                           .borderColor = {-1, -2, -3, -4}};
    CHECK(cuTexObjectCreate(&texture, resource, &t, view));
    return texture;
}

/* Texel (x, y, z) of level l holds l * 1000 + z * 100 + y * 10 + x, and its successors in further channels. */
static float value(unsigned level, size_t z, size_t y, size_t x)
{
    return (float)(level * 1000 + z * 100 + y * 10 + x);
}

static void fill(CUarray array, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    CHECK(cuArray3DGetDescriptor_v2(&d, array));
    const size_t height = d.Height ? d.Height : 1, depth = d.Depth ? d.Depth : 1,
                 n = d.Width * height * depth * d.NumChannels;
    float *data = malloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++) {
        const size_t texel = i / d.NumChannels;
        data[i] = value(level, texel / d.Width / height, texel / d.Width % height, texel % d.Width) +
                  0.25f * (float)(i % d.NumChannels);
    }
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = data,
                          .srcPitch = d.Width * d.NumChannels * sizeof *data,
                          .srcHeight = height,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = d.Width * d.NumChannels * sizeof *data,
                          .Height = height,
                          .Depth = depth};
    CHECK(cuMemcpy3D_v2(&copy));
    free(data);
}

static CUarray make(size_t width, size_t height, size_t depth, unsigned channels, unsigned flags)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {width, height, depth, CU_AD_FORMAT_FLOAT, channels, flags};
    CHECK(cuArray3DCreate_v2(&array, &d));
    fill(array, 0);
    return array;
}

static CUDA_RESOURCE_DESC of_array(CUarray array)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    resource.res.array.hArray = array;
    return resource;
}

static CUDA_RESOURCE_DESC of_mipmap(CUmipmappedArray mipmap)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    resource.res.mipmap.hMipmappedArray = mipmap;
    return resource;
}

static void geometries(void)
{
    static const float at[6][8] = {{0.5f, 0.5f, 0}, {3.5f, 1.5f, 1}, {2.25f, 1.0f, 1},
                                   {-3, 0.5f, 0},   {9, 9, 9},       {1.999f, 0.5f, 2}};
    static const char *const kernels[] = {"f1", "f2", "f3", "fa1", "fa2", "fc"};
    const struct {
        size_t width, height, depth;
        unsigned flags;
    } shapes[] = {{8, 0, 0, 0},
                  {8, 4, 0, 0},
                  {8, 4, 3, 0},
                  {8, 0, 3, CUDA_ARRAY3D_LAYERED},
                  {8, 4, 3, CUDA_ARRAY3D_LAYERED},
                  {4, 4, 6, CUDA_ARRAY3D_CUBEMAP}};
    for (int i = 0; i < 6; i++) {
        CUarray array = make(shapes[i].width, shapes[i].height, shapes[i].depth, 1, shapes[i].flags);
        const CUDA_RESOURCE_DESC resource = of_array(array);
        for (unsigned mode = 0; mode < 8; mode++) {
            CUtexObject texture =
                texture_of(&resource, mode & 1 ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
                           CU_TR_FILTER_MODE_POINT, (CUaddress_mode)(mode >> 1),
                           mode & 4 ? CU_TRSF_NORMALIZED_COORDINATES : 0, NULL);
            printf("geometry %s, mode %u\n", kernels[i], mode);
            fetch(kernels[i], texture, 6, at, NULL);
            CHECK(cuTexObjectDestroy(texture));
        }
        CHECK(cuArrayDestroy(array));
    }
}

static void exact(void)
{
    static const float at[4][8] = {{2.5f, 1.5f}, {3.0f, 2.0f}, {2.501f, 1.5f}, {2.503f, 1.5f}};
    /* weights have 8 bits: 0.001 is none, 0.003 is one of 256 */
    const float expected[4] = {12, 17.5f, 12, 12 + 1.0f / 256};
    const float offset[4] = {3, 8.5f, 3, 3 + 1.0f / 256};
    static const float places[2][8] = {{3, 2}, {7, 3}};
    const float texels[2] = {23, 37};
    CUarray array = make(8, 4, 0, 2, 0);
    const CUDA_RESOURCE_DESC resource = of_array(array);
    CUtexObject texture = texture_of(&resource, CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT,
                                     CU_TR_ADDRESS_MODE_CLAMP, 0, NULL);
    fetch("f2", texture, 4, at, expected);
    fetch("o2", texture, 4, at, offset);
    fetch("gather", texture, 2, at, NULL);
    fetch("i2", texture, 2, places, texels);
    CHECK(cuTexObjectDestroy(texture));
    CHECK(cuArrayDestroy(array));
}

/* Integers that are read as such are not filtered, by a texture whose description says so either. */
static void integers(void)
{
    static const float at[4][8] = {{0, 0}, {2.5f, 1.5f}, {3.0f, 2.0f}, {2.75f, 1.9f}};
    static const float texels[4] = {0, 12, 23, 12};
    CUarray array = NULL;
    const CUDA_ARRAY3D_DESCRIPTOR d = {8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    unsigned char data[4][8];
    for (int i = 0; i < 32; i++)
        data[i / 8][i % 8] = (unsigned char)value(0, 0, (size_t)i / 8, (size_t)i % 8);
    CHECK(cuArray3DCreate_v2(&array, &d));
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = data,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = array,
                                .WidthInBytes = 8,
                                .Height = 4};
    CHECK(cuMemcpy2D_v2(&copy));
    const CUDA_RESOURCE_DESC resource = of_array(array);
    CUtexObject texture = texture_of(&resource, CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_POINT,
                                     CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_READ_AS_INTEGER, NULL);
    fetch("u2", texture, 4, at, texels);
    CHECK(cuTexObjectDestroy(texture));
    CHECK(cuArrayDestroy(array));
}

static void mipmaps(void)
{
    CUmipmappedArray mipmap = NULL, none = NULL;
    CUarray level = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {16, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0}, got;
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements;
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    TRY(cuMipmappedArrayCreate(NULL, &d, 3));
    TRY(cuMipmappedArrayCreate(&mipmap, NULL, 3));
    TRY(cuMipmappedArrayCreate(&mipmap, &d, 100));
    for (unsigned i = 0; i < 6; i++) {
        CUresult result = cuMipmappedArrayGetLevel(&level, mipmap, i);
        printf("level %u: %d\n", i, (int)result);
        if (result != CUDA_SUCCESS)
            continue;
        TRY(cuArray3DGetDescriptor_v2(&got, level));
        printf("  %zu %zu %zu, %u %u %u\n", got.Width, got.Height, got.Depth, (unsigned)got.Format,
               got.NumChannels, got.Flags);
        fill(level, i);
    }
    TRY(cuMipmappedArrayGetLevel(NULL, mipmap, 0));
    TRY(cuMipmappedArrayGetLevel(&level, none, 0));
    TRY(cuMipmappedArrayGetLevel(&level, mipmap, 0));
    TRY(cuArrayDestroy(level));
    TRY(cuMipmappedArrayGetMemoryRequirements(&requirements, mipmap, 0));
    TRY(cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
    TRY(cuArrayGetMemoryRequirements(&requirements, level, 0));
    TRY(cuArrayGetSparseProperties(&sparse, level));
    TRY(cuArrayGetPlane(&level, level, 0));

    CUDA_RESOURCE_DESC resource = of_mipmap(mipmap);
    CUDA_TEXTURE_DESC unnormalised = {.maxMipmapLevelClamp = 16};
    CUtexObject texture;
    TRY(cuTexObjectCreate(&texture, &resource, &unnormalised, NULL));
    /* in the middle of texel (1, 0) of each level, and between levels */
    static const float at[7][8] = {{1.5f / 16, 0.5f / 8, 0, 0, 0},
                                   {1.5f / 8, 0.5f / 4, 0, 0, 1},
                                   {1.5f / 4, 0.5f / 2, 0, 0, 2},
                                   {0.75f, 0.5f, 0, 0, 3},
                                   {0.5f, 0.5f, 0, 0, 4},
                                   {0.5f, 0.5f, 0, 0, 40},
                                   {1.5f / 8, 0.5f / 4, 0, 0, 0.5078125f}};
    const float points[7] = {1, 1001, 2001, 3001, 4000, 4000, 1001};
    texture = texture_of(&resource, CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_POINT,
                         CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES, NULL);
    fetch("l2", texture, 7, at, points);
    fetch("f2", texture, 2, at, NULL);
    fetch("query", texture, 2, (const float[2][8]){{0}, {2}}, (const float[]){16, 16});
    CHECK(cuTexObjectDestroy(texture));
    /* level 0 has (5/2, 1/2) there: 2.5 + 5 */
    const float lines[7] = {1, 1001, 2001, 3001, 4000, 4000, (1 - 0.5078125f) * 7.5f + 0.5078125f * 1001};
    texture = texture_of(&resource, CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_LINEAR,
                         CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES, NULL);
    fetch("l2", texture, 7, at, lines);
    /* gradients of 2, then 4 texels of level 0, along one axis each */
    static const float gradients[3][8] = {{1.5f / 8, 0.5f / 4, 0, 0, 2.0f / 16, 0, 0, 1.0f / 8},
                                          {1.5f / 4, 0.5f / 2, 0, 0, 0, 0, 0, 4.0f / 8},
                                          {1.5f / 16, 0.5f / 8, 0, 0, 0, 0, 0, 0}};
    fetch("g2", texture, 3, gradients, (const float[]){1001, 2001, 1});
    CHECK(cuTexObjectDestroy(texture));

    CUDA_RESOURCE_VIEW_DESC view = {.format = CU_RES_VIEW_FORMAT_FLOAT_1X32,
                                    .width = 16,
                                    .height = 8,
                                    .firstMipmapLevel = 1,
                                    .lastMipmapLevel = 2};
    texture = texture_of(&resource, CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_POINT,
                         CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES, &view);
    static const float viewed[3][8] = {
        {1.5f / 8, 0.5f / 4, 0, 0, 0}, {1.5f / 4, 0.5f / 2, 0, 0, 1}, {1.5f / 4, 0.5f / 2, 0, 0, 9}};
    fetch("l2", texture, 3, viewed, (const float[]){1001, 2001, 2001});
    CHECK(cuTexObjectDestroy(texture));
    view.lastMipmapLevel = 5;
    TRY(cuTexObjectCreate(&texture, &resource, &(CUDA_TEXTURE_DESC){.flags = CU_TRSF_NORMALIZED_COORDINATES},
                          &view));
    TRY(cuMipmappedArrayDestroy(mipmap));
    TRY(cuMipmappedArrayDestroy(mipmap));
    TRY(cuArray3DGetDescriptor_v2(&got, level));

    d = (CUDA_ARRAY3D_DESCRIPTOR){8, 8, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    static const float layered[2][8] = {{0.3125f, 0.0625f, 2, 0, 0}, {0.375f, 0.125f, 2, 0, 1}};
    for (int kind = 0; kind < 2; kind++) {
        CHECK(cuMipmappedArrayCreate(&mipmap, &d, 2));
        for (unsigned i = 0; i < 2; i++) {
            CHECK(cuMipmappedArrayGetLevel(&level, mipmap, i));
            fill(level, i);
        }
        resource = of_mipmap(mipmap);
        texture = texture_of(&resource, CU_TR_FILTER_MODE_LINEAR, CU_TR_FILTER_MODE_LINEAR,
                             CU_TR_ADDRESS_MODE_CLAMP, CU_TRSF_NORMALIZED_COORDINATES, NULL);
        if (kind == 0) {
            fetch("la2", texture, 2, layered, (const float[]){202, 1201});
        } else {
            static const float inside[2][8] = {{0.3125f, 0.0625f, 0.625f, 0, 0},
                                               {0.375f, 0.125f, 0.75f, 0, 1}};
            fetch("l3", texture, 2, inside, (const float[]){202, 1101});
            fetch("g3", texture, 2, inside, NULL);
        }
        CHECK(cuTexObjectDestroy(texture));
        CHECK(cuMipmappedArrayDestroy(mipmap));
        d = (CUDA_ARRAY3D_DESCRIPTOR){8, 8, 4, CU_AD_FORMAT_FLOAT, 1, 0};
    }
    d.Flags = CUDA_ARRAY3D_SPARSE;
    TRY(cuMipmappedArrayCreate(&mipmap, &d, 2));
    d = (CUDA_ARRAY3D_DESCRIPTOR){8, 8, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0};
    TRY(cuMipmappedArrayCreate(&mipmap, &d, 2));
}

static void surfaces(void)
{
    CUsurfObject surface;
    CUarray array = make(4, 4, 0, 4, CUDA_ARRAY3D_SURFACE_LDST);
    const CUDA_RESOURCE_DESC resource = of_array(array);
    static const float at[3][8] = {{0, 0}, {48, 3}, {64, 0}};
    float row[16];
    CHECK(cuSurfObjectCreate(&surface, &resource));
    fetch("swrite", surface, 3, at, (const float[]){1, 34, 1});
    CHECK(cuMemcpyAtoH_v2(row, array, 0, sizeof row));
    printf("row: %g %g %g\n", row[0], row[1], row[4]);
    wrong |= row[0] != 1 || row[4] != 1;
    CHECK(cuSurfObjectDestroy(surface));
    CHECK(cuArrayDestroy(array));
}

static void batches(void)
{
    CUarray array = make(8, 4, 2, 2, 0), other = make(8, 4, 0, 1, 0);
    CUstream stream;
    float data[16], back[16] = {0};
    size_t fail = 7;
    for (int i = 0; i < 16; i++)
        data[i] = (float)(i + 1);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY3D_BATCH_OP ops[3] = {
        {.extent = {2, 2, 2}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL},
        {.extent = {2, 2, 2}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
        {.extent = {24, 2, 1}, .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
    ops[0].src.type = ops[1].dst.type = ops[2].src.type = ops[2].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].dst.type = ops[1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].src.op.ptr.ptr = (CUdeviceptr)(size_t)data;
    ops[0].dst.op.array.array = ops[1].src.op.array.array = array;
    ops[0].dst.op.array.offset = ops[1].src.op.array.offset = (CUoffset3D){3, 1, 0};
    ops[1].dst.op.ptr.ptr = in;
    ops[2].src.op.ptr.ptr = in;
    ops[2].src.op.ptr.rowLength = 32;
    ops[2].dst.op.ptr.ptr = (CUdeviceptr)(size_t)back;
    TRY(cuMemcpy3DBatchAsync_v2(3, ops, 0, stream));
    TRY(cuStreamSynchronize(stream));
    for (int i = 0; i < 12; i++) {
        printf(" %g", back[i]);
        wrong |= back[i] != (float)(i < 6 ? i + 1 : i + 3);
    }
    printf("\n");
    TRY(cuMemcpy3DBatchAsync_v2(0, ops, 0, stream));
    TRY(cuMemcpy3DBatchAsync_v2(3, NULL, 0, stream));
    TRY(cuMemcpy3DBatchAsync_v2(3, ops, 1, stream));
    TRY(cuMemcpy3DBatchAsync_v2(3, ops, 0, NULL));
    ops[1].extent.width = 0;
    TRY(cuMemcpy3DBatchAsync(3, ops, &fail, 0, stream));
    printf("failed: %zu\n", fail);
    ops[1].extent.width = 7; /* beyond the array: the copies before it are made */
    TRY(cuMemcpy3DBatchAsync(3, ops, &fail, 0, stream));
    printf("failed: %zu\n", fail);
    ops[0] = ops[1];
    ops[0].extent.width = 2;
    ops[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].dst.op.array.array = other; /* of other elements */
    ops[0].dst.op.array.offset = (CUoffset3D){0, 0, 0};
    TRY(cuMemcpy3DBatchAsync(1, ops, &fail, 0, stream));
    TRY(cuStreamDestroy_v2(stream));
    TRY(cuArrayDestroy(array));
    TRY(cuArrayDestroy(array));
    TRY(cuArrayDestroy(other));
    TRY(cuArrayGetPlane(NULL, other, 0));
    TRY(cuArrayGetPlane(&array, other, 0));
}

/* What programs that launch in pieces say of each reference, PyCUDA among them. */
static void reference_as_parameter(CUtexref image)
{
    CUfunction function = NULL;
    CHECK(cuModuleGetFunction(&function, module, "byref"));
    CHECK(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, image));
    TRY(cuParamSetTexRef(function, 0, image));
    TRY(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, NULL));
    TRY(cuParamSetTexRef(NULL, CU_PARAM_TR_DEFAULT, image));
}

/* Fetches by references: no object is passed. */
static void references(void)
{
    CUtexref image = NULL, again = NULL, own = NULL, none = NULL;
    CUsurfref screen = NULL;
    CUarray array = make(8, 4, 0, 1, CUDA_ARRAY3D_SURFACE_LDST), got = NULL;
    CUmipmappedArray mipmap = NULL, got_mipmap = NULL;
    CUarray level;
    CUDA_ARRAY3D_DESCRIPTOR d = {16, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY_DESCRIPTOR pitched = {8, 4, CU_AD_FORMAT_FLOAT, 1};
    CUdeviceptr memory, address = 0;
    CUfilter_mode filter;
    CUaddress_mode mode;
    CUarray_format format;
    size_t offset = 9;
    int channels, anisotropy;
    unsigned flags;
    float least, most, bias, color[4] = {5, 6, 7, 8};
    static const float at[3][8] = {{2.5f, 1.5f}, {3, 2}, {-5, 1.5f}};
    TRY(cuModuleGetTexRef(NULL, module, "image"));
    TRY(cuModuleGetTexRef(&image, module, NULL));
    TRY(cuModuleGetTexRef(&image, NULL, "image"));
    TRY(cuModuleGetTexRef(&image, module, "nothing"));
    TRY(cuModuleGetTexRef(&image, module, "screen"));
    TRY(cuModuleGetSurfRef(&screen, module, "image"));
    TRY(cuModuleGetGlobal_v2(&address, &offset, module, "image"));
    TRY(cuModuleGetTexRef(&image, module, "image"));
    TRY(cuModuleGetTexRef(&again, module, "image"));
    printf("the same: %d\n", image == again);
    TRY(cuModuleGetSurfRef(&screen, module, "screen"));
    reference_as_parameter(image);

    TRY(cuTexRefGetArray(&got, image));
    TRY(cuTexRefSetArray(image, array, 0));
    TRY(cuTexRefSetArray(image, NULL, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefSetArray(none, array, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefSetArray(image, array, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_CLAMP));
    TRY(cuTexRefSetAddressMode(image, 1, CU_TR_ADDRESS_MODE_CLAMP));
    TRY(cuTexRefSetAddressMode(image, 3, CU_TR_ADDRESS_MODE_CLAMP));
    TRY(cuTexRefGetArray(&got, image));
    printf("bound: %d\n", got == array);
    fetch("byref", 0, 3, at, (const float[]){12, 23, 10});
    TRY(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
    fetch("byref", 0, 3, at, (const float[]){12, 17.5f, 10});
    TRY(cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_BORDER));
    TRY(cuTexRefSetBorderColor(image, color));
    TRY(cuTexRefSetBorderColor(image, NULL));
    fetch("byref", 0, 3, at, (const float[]){12, 17.5f, 5});
    TRY(cuTexRefGetFormat(&format, &channels, image));
    TRY(cuTexRefGetFilterMode(&filter, image));
    TRY(cuTexRefGetAddressMode(&mode, image, 0));
    printf("%d %d %d %d\n", (int)format, channels, (int)filter, (int)mode);
    memset(color, 0, sizeof color);
    TRY(cuTexRefGetBorderColor(color, image));
    printf("%g %g %g %g\n", color[0], color[1], color[2], color[3]);

    CHECK(cuMemAlloc_v2(&memory, 4096));
    for (unsigned i = 0; i < 4; i++)
        CHECK(cuMemsetD32_v2(memory + 512 * i, 0x40000000 + (i << 23), 8)); /* 2, 4, 8, 16 */
    TRY(cuTexRefSetAddress2D_v3(image, &pitched, memory, 512));
    TRY(cuTexRefSetAddress2D_v3(image, NULL, memory, 512));
    TRY(cuTexRefGetArray(&got, image));
    TRY(cuTexRefGetAddress_v2(&address, image));
    printf("bound: %d\n", address == memory);
    TRY(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_POINT));
    fetch("byref", 0, 1, (const float[1][8]){{1, 3}}, (const float[]){16});
    TRY(cuTexRefSetAddress_v2(&offset, image, memory + 516, 64));
    printf("offset: %zu\n", offset);
    TRY(cuTexRefSetAddress_v2(NULL, image, memory + 516, 64));
    TRY(cuTexRefSetAddress_v2(&offset, image, memory, 5000));

    CHECK(cuMipmappedArrayCreate(&mipmap, &d, 2));
    for (unsigned i = 0; i < 2; i++) {
        CHECK(cuMipmappedArrayGetLevel(&level, mipmap, i));
        fill(level, i);
    }
    TRY(cuTexRefSetMipmappedArray(image, mipmap, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefGetMipmappedArray(&got_mipmap, image));
    printf("bound: %d\n", got_mipmap == mipmap);
    TRY(cuTexRefSetFlags(image, CU_TRSF_NORMALIZED_COORDINATES));
    TRY(cuTexRefSetFlags(image, 1u << 20));
    TRY(cuTexRefGetFlags(&flags, image));
    TRY(cuTexRefSetMipmapLevelClamp(image, 0, 8));
    TRY(cuTexRefSetMipmapLevelBias(image, 0.25f));
    TRY(cuTexRefSetMipmapFilterMode(image, CU_TR_FILTER_MODE_POINT));
    TRY(cuTexRefSetMaxAnisotropy(image, 4));
    TRY(cuTexRefGetMipmapLevelClamp(&least, &most, image));
    TRY(cuTexRefGetMipmapLevelBias(&bias, image));
    TRY(cuTexRefGetMipmapFilterMode(&filter, image));
    TRY(cuTexRefGetMaxAnisotropy(&anisotropy, image));
    printf("%g %g %g %d %d %u\n", least, most, bias, (int)filter, anisotropy, flags);
    static const float levels[2][8] = {{1.5f / 16, 0.5f / 8, 0, 0, 0.1f}, {1.5f / 8, 0.5f / 4, 0, 0, 0.3f}};
    fetch("bylevel", 0, 2, levels, (const float[]){1, 1001});

    TRY(cuSurfRefGetArray(&got, screen));
    TRY(cuSurfRefSetArray(screen, level, 0));
    TRY(cuSurfRefSetArray(screen, array, 1));
    TRY(cuSurfRefSetArray(screen, array, 0));
    TRY(cuSurfRefGetArray(&got, screen));
    printf("bound: %d\n", got == array);
    fetch("bysurf", 0, 2, (const float[2][8]){{4, 1}, {12, 2}}, (const float[]){11, 23});

    TRY(cuTexRefCreate(&own));
    TRY(cuTexRefSetArray(own, array, CU_TRSA_OVERRIDE_FORMAT));
    TRY(cuTexRefDestroy(image));
    TRY(cuTexRefDestroy(own));
    TRY(cuTexRefGetFlags(&flags, own));
    TRY(cuMemFree_v2(memory));
    TRY(cuMipmappedArrayDestroy(mipmap));
    TRY(cuArrayDestroy(array));
    TRY(cuModuleUnload(module));
    TRY(cuTexRefGetFlags(&flags, image));
    TRY(cuSurfRefGetArray(&got, screen));
    CHECK(cuModuleLoadData(&module, ptx));
    TRY(cuModuleGetTexRef(&image, module, "image"));
}

/* A texture of linear memory may say that it is larger than the memory: NVIDIA's sample convolutionFFT2D does. */
static void larger_than_its_memory(void)
{
    CUtexObject texture = 0;
    CUdeviceptr memory;
    CHECK(cuMemAlloc_v2(&memory, 4096));
    const CUDA_RESOURCE_DESC resource = {
        .resType = CU_RESOURCE_TYPE_LINEAR,
        .res.linear = {
            .devPtr = memory, .format = CU_AD_FORMAT_FLOAT, .numChannels = 1, .sizeInBytes = 4096 + 65536}};
    const CUDA_TEXTURE_DESC description = {.flags = CU_TRSF_READ_AS_INTEGER};
    TRY(cuTexObjectCreate(&texture, &resource, &description, NULL));
    TRY(cuTexObjectDestroy(texture));
    CHECK(cuMemFree_v2(memory));
}

int main(void)
{
    use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuMemAlloc_v2(&in, 512));
    CHECK(cuMemAlloc_v2(&out, 512));
    geometries();
    exact();
    integers();
    mipmaps();
    surfaces();
    batches();
    references();
    larger_than_its_memory();
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong;
}
