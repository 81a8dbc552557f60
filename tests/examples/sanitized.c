/*
 * sanitized.c - a program that is built with a sanitizer: device, page-locked and managed memory that two threads use, each
 * with a stream of its own. Prints "ok", or where it went wrong.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE  4096 /* numbers in each memory */
#define STEPS 20

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            ".visible .entry increment(.param .u64 at)\n"
                            "{\n"
                            "    .reg .u64 %a, %o;\n"
                            "    .reg .u32 %t, %b, %n, %v;\n"
                            "    ld.param.u64 %a, [at];\n"
                            "    mov.u32 %t, %tid.x;\n"
                            "    mov.u32 %b, %ctaid.x;\n"
                            "    mov.u32 %n, %ntid.x;\n"
                            "    mad.lo.u32 %t, %b, %n, %t;\n"
                            "    mul.wide.u32 %o, %t, 4;\n"
                            "    add.u64 %a, %a, %o;\n"
                            "    ld.global.u32 %v, [%a];\n"
                            "    add.u32 %v, %v, 1;\n"
                            "    st.global.u32 [%a], %v;\n"
                            "    ret;\n"
                            "}\n";

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        const CUresult result_ = (call);                                                                     \
        if (result_ != CUDA_SUCCESS) {                                                                       \
            printf("%s: %d\n", #call, result_);                                                              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static CUcontext context;
static CUfunction kernel;

static void launch(CUdeviceptr at, CUstream stream)
{
    void *parameters[] = {&at};
    MUST(cuLaunchKernel(kernel, SIZE / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

static void *work(void *unused)
{
    CUstream stream;
    CUdeviceptr device, managed;
    unsigned *locked, *copy = malloc(SIZE * sizeof *copy), *seen;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&device, SIZE * sizeof *copy));
    MUST(cuMemAllocManaged(&managed, SIZE * sizeof *copy, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemAllocHost_v2((void **)&locked, SIZE * sizeof *copy));
    MUST(cuMemsetD32Async(device, 0, SIZE, stream));
    seen = (unsigned *)managed;
    for (unsigned i = 0; i < SIZE; i++)
        locked[i] = seen[i] = i;
    for (unsigned step = 0; step < STEPS; step++) {
        launch(device, stream);
        launch(managed, stream);
        launch((CUdeviceptr)locked, stream);
        MUST(cuMemcpyDtoHAsync_v2(copy, device, SIZE * sizeof *copy, stream));
        MUST(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < SIZE; i++)
            if (copy[i] != step + 1 || seen[i] != i + step + 1 || locked[i] != i + step + 1) {
                printf("step %u, number %u: %u %u %u\n", step, i, copy[i], seen[i], locked[i]);
                exit(1);
            }
    }
    MUST(cuMemFree_v2(device));
    MUST(cuMemFree_v2(managed));
    MUST(cuMemFreeHost(locked));
    MUST(cuStreamDestroy_v2(stream));
    free(copy);
    return unused;
}

int main(void)
{
    CUmodule module;
    CUdevice device;
    pthread_t threads[2];
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&kernel, module, "increment"));
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("ok\n");
    return 0;
}
