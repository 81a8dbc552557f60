/* texture.c - what texture and surface objects, references and tensor maps are made of, and what is refused. */
#include "tests/softgpu/driver/support.h"

#include <stdint.h>
#include <stdlib.h>

static CUarray array_of(unsigned flags)
{
    const CUDA_ARRAY3D_DESCRIPTOR wanted = {
        .Width = 16, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = flags};
    CUarray array;
    OK(cuArray3DCreate_v2(&array, &wanted));
    return array;
}

Test(texture, objects)
{
    CUtexObject texture;
    CUDA_RESOURCE_DESC back;
    CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_LINEAR,
                             .addressMode = {CU_TR_ADDRESS_MODE_CLAMP}},
                      how_back;
    start_device();
    const CUarray array = array_of(0);
    const CUDA_RESOURCE_DESC what = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(NULL, &what, &how, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, NULL, &how, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &what, NULL, NULL));
    OK(cuTexObjectCreate(&texture, &what, &how, NULL));
    cr_expect_neq(texture, 0);
    OK(cuTexObjectGetResourceDesc(&back, texture));
    cr_expect(back.resType == CU_RESOURCE_TYPE_ARRAY && back.res.array.hArray == array);
    OK(cuTexObjectGetTextureDesc(&how_back, texture));
    cr_expect_eq(how_back.filterMode, CU_TR_FILTER_MODE_LINEAR);
    OK(cuTexObjectDestroy(texture));
    OK(cuArrayDestroy(array));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuArrayDestroy(array));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(NULL));
}

/* Arrays that were not made for them have surface objects, too. */
Test(texture, surfaces)
{
    CUsurfObject surface;
    start_device();
    CUDA_RESOURCE_DESC what = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array_of(0)};
    OK(cuSurfObjectCreate(&surface, &what));
    OK(cuSurfObjectDestroy(surface));
    what.res.array.hArray = array_of(CUDA_ARRAY3D_SURFACE_LDST);
    OK(cuSurfObjectCreate(&surface, &what));
    OK(cuSurfObjectDestroy(surface));
}

Test(texture, tensor_maps)
{
    CUtensorMap map;
    CUdeviceptr memory;
    const cuuint64_t dims[2] = {64, 32}, strides[1] = {256}, odd[1] = {100};
    const cuuint32_t box[2] = {16, 8}, steps[2] = {1, 1}, wide[2] = {257, 8};
    start_device();
    OK(cuMemAlloc_v2(&memory, 64 * 32 * 4));
#define ENCODE(at, rows, part)                                                                               \
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)(at), dims, rows,    \
                           part, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,           \
                           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    OK(ENCODE(memory, strides, box));
    EXPECT(CUDA_ERROR_INVALID_VALUE, ENCODE(memory + 4, strides, box)); /* 16 bytes */
    EXPECT(CUDA_ERROR_INVALID_VALUE, ENCODE(memory, odd, box));
    EXPECT(CUDA_ERROR_INVALID_VALUE, ENCODE(memory, strides, wide)); /* 256 elements at most */
    OK(cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)memory));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)(memory + 1)));

    /* where Python's objects are */
    _Alignas(CUtensorMap) char room[sizeof map + 16];
    const CUtensorMap plain = map;
    CUtensorMap *crooked = (CUtensorMap *)(void *)(room + 16);
    OK(cuTensorMapEncodeTiled(crooked, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)(memory + 16),
                              dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                              CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    OK(cuTensorMapReplaceAddress(crooked, (void *)(uintptr_t)memory));
    cr_assert_eq(memcmp(&plain, room + 16, sizeof plain), 0);
}
