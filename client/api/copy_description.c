/*
 * copy_description.c - the ends of a copy in up to three dimensions, as the API describes them, become regions. What they reach is
 * computed without overflow, and boxes of arrays lie in them; whether memory is there is for the worker to say.
 */
#include "client/api/copy_description.h"

#include "client/api/region_copy.h"
#include "client/core/address_map.h"
#include "client/core/call.h"
#include "client/core/handle.h"

#include <limits.h>

enum rg_region_kind rg_copy_place_of(uint64_t address)
{
    return rg_on_device(address, 0, 1, 1) ? RG_REGION_DEVICE : RG_REGION_HOST;
}

static bool add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*sum, product, sum);
}

static CUresult resolve_array(CUarray array, size_t x, size_t y, size_t z, struct rg_region *out)
{
    const struct rg_shadow *shadow;
    RG_TRY(rg_handle_live(RG_KIND_ARRAY, (uint64_t)array, &shadow));
    const CUDA_ARRAY3D_DESCRIPTOR *d = &shadow->array.descriptor;
    const size_t texel = shadow->array.texel_size, row = d->Width * texel, height = d->Height ? d->Height : 1,
                 depth = d->Depth ? d->Depth : 1;
    if (x > row || out->width > row - x || y > height || out->height > height - y || z > depth ||
        out->depth > depth - z || x % texel || out->width % texel)
        return CUDA_ERROR_INVALID_VALUE;
    out->kind = RG_REGION_ARRAY;
    out->array = array;
    out->x = x;
    out->y = y;
    out->z = z;
    return CUDA_SUCCESS;
}

/* As on a GPU an offset may be larger than the pitch (as the textures of Dr.Jit want): then it leads into a later row. */
static CUresult resolve_memory(uint64_t base, enum rg_region_kind kind, size_t x, size_t y, size_t z,
                               size_t pitch, size_t rows, struct rg_region *out)
{
    uint64_t row_end = x, extent = out->width;
    const bool several = out->height > 1 || out->depth > 1;
    if (!add_product(&row_end, out->width, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (!pitch)
        pitch = row_end;
    if (!rows)
        rows = y + out->height;
    if (!base || pitch < out->width || (out->depth > 1 && (rows < out->height || rows - out->height < y)))
        return CUDA_ERROR_INVALID_VALUE;
    if (several && pitch > INT_MAX) /* CU_DEVICE_ATTRIBUTE_MAX_PITCH, an int, is that of host memory, too */
        return CUDA_ERROR_INVALID_VALUE;
    out->kind = kind;
    out->address = base;
    out->pitch = pitch;
    if (!add_product(&out->address, x, 1) || __builtin_mul_overflow(pitch, rows, &out->slice) ||
        !add_product(&out->address, y, pitch) || !add_product(&out->address, z, out->slice) ||
        !add_product(&extent, out->height - 1, pitch) || !add_product(&extent, out->depth - 1, out->slice))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The source (or destination) of a copy of something. */
static CUresult resolve(const CUDA_MEMCPY3D *c, bool source, struct rg_region *out)
{
    const CUmemorytype type = source ? c->srcMemoryType : c->dstMemoryType;
    const size_t x = source ? c->srcXInBytes : c->dstXInBytes, y = source ? c->srcY : c->dstY,
                 z = source ? c->srcZ : c->dstZ, pitch = source ? c->srcPitch : c->dstPitch,
                 rows = source ? c->srcHeight : c->dstHeight;
    const uint64_t host = (uint64_t)(source ? c->srcHost : c->dstHost),
                   memory = source ? c->srcDevice : c->dstDevice;
    *out = (struct rg_region){.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    switch (type) {
    case CU_MEMORYTYPE_ARRAY:
        return resolve_array(source ? c->srcArray : c->dstArray, x, y, z, out);
    case CU_MEMORYTYPE_HOST:
        return resolve_memory(host, rg_copy_place_of(host), x, y, z, pitch, rows, out);
    case CU_MEMORYTYPE_DEVICE:
        return resolve_memory(memory, RG_REGION_DEVICE, x, y, z, pitch, rows, out);
    case CU_MEMORYTYPE_UNIFIED:
        return resolve_memory(memory, rg_copy_place_of(memory), x, y, z, pitch, rows, out);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult rg_copy_described(const CUDA_MEMCPY3D *c, CUstream stream, bool asynchronous, bool in_order)
{
    struct rg_copy copy = {
        .stream = rg_effective_stream(stream), .asynchronous = asynchronous, .in_order = in_order};
    if (!c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_SUCCESS;
    RG_TRY(resolve(c, true, &copy.from));
    RG_TRY(resolve(c, false, &copy.to));
    return rg_region_copy(&copy);
}
