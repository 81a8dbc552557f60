/* fill.c - cuMemset in all its forms: fills of linear and pitched memory, a transfer without a source (transfer.h). */
#include "common/cuda/graph/graph.h"
#include "softgpu/driver/context/implied_context.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/memory/transfer.h"

static CUresult fill(uint64_t to, size_t pitch, uint32_t value, uint32_t size, size_t width, size_t height,
                     bool asynchronous, CUstream stream)
{
    SG_IMPLY_CONTEXT(SG_KIND_STREAM, stream);
    struct sg_transfer t = {.to = {.address = to, .pitch = pitch},
                            .height = height,
                            .depth = 1,
                            .fill_size = size,
                            .fill_value = value};
    SG_CONTEXT_OR_RETURN(context);
    if (rg_capture_takes(stream))
        return asynchronous ? rg_capture_fill(to, pitch, value, size, width, height, stream)
                            : rg_capture_refuse(stream);
    if (__builtin_mul_overflow(width, size, &t.width) || to % size != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (height > 1 && (pitch < t.width || pitch % size != 0))
        return CUDA_ERROR_INVALID_VALUE;
    sg_transfer_join_rows(&t, pitch);
    return sg_transfer(&t, true, false, asynchronous, stream);
}

#define FILLS(suffix, type, bytes)                                                                           \
    CUresult cuMemsetD##suffix##_v2(CUdeviceptr to, type value, size_t n)                                    \
    {                                                                                                        \
        return fill(to, 0, value, bytes, n, 1, false, NULL);                                                 \
    }                                                                                                        \
    CUresult cuMemsetD##suffix##Async(CUdeviceptr to, type value, size_t n, CUstream stream)                 \
    {                                                                                                        \
        return fill(to, 0, value, bytes, n, 1, true, stream);                                                \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) \
    {                                                                                                        \
        return fill(to, pitch, value, bytes, width, height, false, NULL);                                    \
    }                                                                                                        \
    CUresult cuMemsetD2D##suffix##Async(CUdeviceptr to, size_t pitch, type value, size_t width,              \
                                        size_t height, CUstream stream)                                      \
    {                                                                                                        \
        return fill(to, pitch, value, bytes, width, height, true, stream);                                   \
    }

FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned int, 4)
