/*
 * peer_order.c - synchronous copies between the contexts of two devices come behind all that is pending on either, and before what
 * comes later there: no call of the program's says so. (The API reference of cudaMemcpyPeer and cudaMemcpy3DPeer.)
 */
#include "must.h"

#include <stdbool.h>

enum { SIZE = 4096 };

static CUcontext contexts[2];
static CUdeviceptr memory[2];

static void CUDA_CB nap(void *unused)
{
    (void)unused;
    usleep(30000);
}

/* The default stream of `device` is busy for a while, and then sets its memory. */
static void set_late(int device, unsigned char value)
{
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuLaunchHostFunc(NULL, nap, NULL));
    CHECK(cuMemsetD8Async(memory[device], value, SIZE, NULL));
    printf("device %d sets %02x\n", device, value);
}

static void copy(int from, int to, bool box)
{
    if (!box) {
        CHECK(cuMemcpyPeer(memory[to], contexts[to], memory[from], contexts[from], SIZE));
        return;
    }
    const CUDA_MEMCPY3D_PEER all = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = memory[from],
                                    .srcContext = contexts[from],
                                    .srcPitch = SIZE / 8,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = memory[to],
                                    .dstContext = contexts[to],
                                    .dstPitch = SIZE / 8,
                                    .WidthInBytes = SIZE / 8,
                                    .Height = 8,
                                    .Depth = 1};
    CHECK(cuMemcpy3DPeer(&all));
}

static void expect(const char *what, int device, unsigned char value)
{
    unsigned char host[SIZE];
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuMemcpyDtoH_v2(host, memory[device], SIZE));
    printf("%s: %02x %02x\n", what, host[0], host[SIZE - 1]);
    if (host[0] != value || host[SIZE - 1] != value)
        must(CUDA_ERROR_ASSERT, what);
}

int main(void)
{
    CHECK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuMemAlloc_v2(&memory[i], SIZE));
    }
    for (int round = 0; round < 8; round++) {
        const int from = round & 1, to = 1 - from, current = round >> 1 & 1;
        const bool box = round >> 2;
        const unsigned char value = (unsigned char)(0x10 * (round + 1));
        printf("from %d to %d, %d is current, %s\n", from, to, current, box ? "a box" : "a line");
        set_late(from, value);
        CHECK(cuCtxSetCurrent(contexts[current]));
        copy(from, to, box);
        expect("behind the source's work", to, value);
        set_late(to, 0xee);
        CHECK(cuCtxSetCurrent(contexts[current]));
        copy(from, to, box);
        expect("behind the target's work", to, value);
        set_late(from, (unsigned char)(value + 1));
        CHECK(cuCtxSetCurrent(contexts[current]));
        copy(from, to, box);
        CHECK(cuCtxSetCurrent(contexts[from]));
        CHECK(cuMemsetD8Async(memory[from], 0xdd, SIZE, NULL));
        expect("before what comes later at the source", to, (unsigned char)(value + 1));
    }
    return 0;
}
