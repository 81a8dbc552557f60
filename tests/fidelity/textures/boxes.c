/*
 * boxes.c - copies of boxes of all shapes (rows and slices with and without gaps, one of either) between host and device,
 * each compared with the same copy byte by byte. A transcript; see run.py.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

enum { WIDTH = 100, SIZE = 8192, OFFSET = 37 };

static unsigned char host[2][SIZE], expected[SIZE], found[SIZE];
static CUdeviceptr device[2];

/* The copy that the driver is asked for. */
static void move(const CUDA_MEMCPY3D *box, unsigned char *to, const unsigned char *from)
{
    for (size_t z = 0; z < box->Depth; z++)
        for (size_t y = 0; y < box->Height; y++)
            memcpy(to + OFFSET + (z * box->dstHeight + y) * box->dstPitch,
                   from + OFFSET + (z * box->srcHeight + y) * box->srcPitch, box->WidthInBytes);
}

/* Whether one copy is right; both ends are filled with bytes that differ. */
static int is_right(CUDA_MEMCPY3D box, bool to_device, bool from_device, CUstream stream)
{
    box.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    box.srcDevice = device[0] + OFFSET - box.srcXInBytes, box.srcHost = host[0] + OFFSET - box.srcXInBytes;
    box.dstDevice = device[1] + OFFSET - box.dstXInBytes, box.dstHost = host[1] + OFFSET - box.dstXInBytes;
    for (unsigned i = 0; i < SIZE; i++)
        host[0][i] = (unsigned char)(i * 7 + i / 256), host[1][i] = (unsigned char)(i * 13 + 5);
    memcpy(expected, host[1], SIZE);
    move(&box, expected, host[0]);
    for (int i = 0; i < 2; i++)
        if (cuMemcpyHtoD_v2(device[i], host[i], SIZE))
            return 0;
    if (cuStreamSynchronize(NULL)) /* copies from pageable memory may return before they have arrived */
        return 0;
    if (stream ? cuMemcpy3DAsync_v2(&box, stream) || cuStreamSynchronize(stream) : cuMemcpy3D_v2(&box))
        return 0;
    if (!to_device)
        return memcmp(host[1], expected, SIZE) == 0;
    return !cuMemcpyDtoH_v2(found, device[1], SIZE) && memcmp(found, expected, SIZE) == 0;
}

/* All shapes between the two kinds of memory. */
static void shapes(bool to_device, bool from_device, CUstream stream)
{
    printf("%s to %s%s\n", from_device ? "device" : "host", to_device ? "device" : "host",
           stream ? ", asynchronously" : "");
    for (unsigned bits = 0; bits < 64; bits++) {
        const size_t height = bits & 1 ? 3 : 1, depth = bits & 2 ? 4 : 1;
        const CUDA_MEMCPY3D box = {.WidthInBytes = WIDTH,
                                   .Height = height,
                                   .Depth = depth,
                                   .srcXInBytes = bits & 4 ? OFFSET : 0,
                                   .srcPitch = bits & 4 ? 256 : WIDTH,
                                   .srcHeight = height + (bits & 8 ? 1 : 0),
                                   .dstXInBytes = bits & 16 ? OFFSET : 0,
                                   .dstPitch = bits & 16 ? 256 : WIDTH,
                                   .dstHeight = height + (bits & 32 ? 1 : 0)};
        printf("%u: %s\n", bits, is_right(box, to_device, from_device, stream) ? "right" : "WRONG");
    }
}

int main(void)
{
    CUdevice d;
    CUcontext c;
    CUstream stream;
    TRY(cuInit(0));
    TRY(cuDeviceGet(&d, 0));
    TRY(cuDevicePrimaryCtxRetain(&c, d));
    TRY(cuCtxSetCurrent(c));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        TRY(cuMemAlloc_v2(&device[i], SIZE));
    for (int to = 0; to < 2; to++)
        for (int from = 0; from < 2; from++) {
            shapes(to, from, NULL);
            shapes(to, from, stream);
        }
    TRY(cuDevicePrimaryCtxRelease_v2(d));
    return 0;
}
