/*
 * floods.c - calls in long rows without one that waits: what the worker has to say about them must not fill the connection
 * while the program does nothing but send. Threads with small stacks do the same work as others.
 *
 *   floods CALLS
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        const CUresult must_result = (call);                                                                 \
        if (must_result != CUDA_SUCCESS) {                                                                   \
            printf("%s: %d, which must not be\n", #call, (int)must_result);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry add(.param .u64 data, .param .u32 n)\n"
                          "{\n"
                          "    .reg .u32 %r<3>;\n"
                          "    .reg .u64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [data];\n"
                          "    ld.param.u32 %r1, [n];\n"
                          "    cvta.to.global.u64 %rd2, %rd1;\n"
                          "    atom.global.add.u32 %r2, [%rd2], %r1;\n"
                          "    ret;\n"
                          "}\n";

enum { ROW_MAX = 100000, SIZES = 1000, SMALL_STACK = 64 << 10 };

static CUcontext context;
static CUfunction function;
static int row; /* so many calls */

static CUresult add(CUdeviceptr where, unsigned value, CUstream in)
{
    void *parameters[] = {&where, &value};
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

/* More sizes than are made ready at a time, each of them again and again. */
static void allocate(void)
{
    static CUdeviceptr blocks[ROW_MAX];
    for (int i = 0; i < row; i++)
        MUST(cuMemAlloc_v2(&blocks[i], 1 + (size_t)(i % SIZES)));
    for (int i = 0; i < row; i++)
        MUST(cuMemFree_v2(blocks[i]));
    printf("allocated, freed\n");
}

static void copy(CUstream stream, CUdeviceptr memory)
{
    unsigned back = 0;
    for (unsigned i = 0; i < (unsigned)row; i++) {
        const unsigned value = i;
        MUST(cuMemcpyHtoDAsync_v2(memory, &value, sizeof value, stream));
        MUST(add(memory, 1, stream));
    }
    MUST(cuMemcpyDtoHAsync_v2(&back, memory, sizeof back, stream));
    MUST(cuStreamSynchronize(stream));
    printf("copied: %u\n", back);
}

static void ask(CUstream stream, CUdeviceptr memory)
{
    static CUevent events[ROW_MAX / 10];
    for (int i = 0; i < row / 10; i++) {
        MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
        MUST(add(memory, 1, stream));
        MUST(cuEventRecord(events[i], stream));
        const CUresult done = cuEventQuery(events[i]);
        if (done != CUDA_SUCCESS && done != CUDA_ERROR_NOT_READY)
            printf("a query: %d\n", (int)done);
    }
    MUST(cuCtxSynchronize());
    for (int i = 0; i < row / 10; i++)
        MUST(cuEventDestroy_v2(events[i]));
    printf("asked\n");
}

static void *work_in_little(void *argument)
{
    CUdeviceptr memory, managed;
    unsigned back = 0;
    (void)argument;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&memory, sizeof back));
    MUST(cuMemsetD32_v2(memory, 1, 1));
    MUST(add(memory, 2, NULL));
    MUST(cuMemcpyDtoH_v2(&back, memory, sizeof back));
    MUST(cuMemFree_v2(memory));
    MUST(cuMemAllocManaged(&managed, sizeof back, CU_MEM_ATTACH_GLOBAL));
    unsigned *shared = (unsigned *)managed;
    *shared = 4;
    MUST(add(managed, 5, NULL));
    MUST(cuCtxSynchronize());
    printf("with a small stack: %u %u\n", back, *shared);
    MUST(cuMemFree_v2(managed));
    return NULL;
}

static void start_with_little(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, SMALL_STACK) != 0 ||
        pthread_create(&thread, &attributes, work_in_little, NULL) != 0)
        exit(2);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* When the fault is told is the driver's affair; that it is told is not. */
static void fail(CUstream stream)
{
    for (int i = 0; i < row; i++)
        (void)add(0, 1, stream);
    printf("after a fault: %d\n", (int)cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    row = argc > 1 ? atoi(argv[1]) : 0;
    if (row <= 0 || row > ROW_MAX)
        return 2;
    CUdevice device;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&function, module, "add"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&memory, 4));
    start_with_little();
    allocate();
    copy(stream, memory);
    ask(stream, memory);
    fail(stream);
    return 0;
}
