/*
 * device_output.cu - what kernels print: formats of all kinds, more than the FIFO holds, several threads and streams, the
 * place of the output among the program's own, and failed assertions last.
 *
 *   device_output [closed]    closed: standard output is closed first, and what is left to see is the exit status
 */
#include <cassert>
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>

#define OK(call)                                                                                                \
    do {                                                                                                        \
        cudaError_t result_ = (call);                                                                           \
        if (result_ != cudaSuccess) {                                                                           \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(result_));                                      \
            return 1;                                                                                           \
        }                                                                                                       \
    } while (0)

__global__ void formats(const char *unused)
{
    printf("plain\n");
    printf("%d %i %u %x %X %o %c %%\n", -5, 7, 4000000000u, 0xbeef, 0xBEEF, 8, 'z');
    printf("%5d|%-5d|%05d|%+d|% d|%#x|%#o|%.3d|%*d\n", 42, 42, 42, 42, 42, 42, 42, 7, 6, 42);
    printf("%ld %lld %lu %llu %lx %zu %hd %hhd\n", -5L, -6LL, 7UL, 18446744073709551615ULL, 0x123456789abcL, (size_t)9, 3, 4);
    printf("%f %e %g %.2f %10.3f|%-10.1f| %E %G %a %F\n", 1.5, 12345.678, 0.0001, 3.14159, 2.71828, 9.99, 1e-10, 1e20, 1.0, 2.5);
    printf("%s|%10s|%-10s|%.2s\n", "text", "right", "left", "cut");
    printf("%f %f %f\n", 1.0 / 0.0, -1.0 / 0.0, 0.0f);
    printf("%p %d\n", (void *)0, unused == nullptr);
    printf("");
    printf("no newline ");
    printf("then one\n");
    printf("%d\n", printf("returns the number of arguments? %d\n", 1));
    printf("thirty-two: %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4,
           5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32);
}

__global__ void many(int first, int n)
{
    for (int i = 0; i < n; i++)
        printf("line %06d of a long output that no buffer of a usual size holds\n", first + i);
}

__global__ void lines(int tag)
{
    printf("block %d of %d with tag %d\n", (int)blockIdx.x, (int)gridDim.x, tag);
}

__global__ void fails(int n)
{
    assert(n < 3);
}

static void *other_thread(void *)
{
    many<<<1, 1>>>(0, 500);
    cudaDeviceSynchronize();
    return nullptr;
}

static int end_own_context()
{
    void *create, *destroy;
    cudaDriverEntryPointQueryResult found;
    OK(cudaGetDriverEntryPointByVersion("cuCtxCreate", &create, 3020, cudaEnableDefault, &found));
    OK(cudaGetDriverEntryPointByVersion("cuCtxDestroy", &destroy, 4000, cudaEnableDefault, &found));
    CUcontext context = nullptr;
    int result = ((CUresult(*)(CUcontext *, unsigned, CUdevice))create)(&context, 0, 0);
    many<<<1, 1>>>(20000, 3000);
    result += ((CUresult(*)(CUcontext))destroy)(context);
    printf("- context %d\n", result);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "closed")) {
        fclose(stdout);
        close(1);
        many<<<1, 1>>>(0, 1000);
        OK(cudaDeviceSynchronize());
        lines<<<1, 1>>>(1);
        OK(cudaDeviceSynchronize());
        return 0;
    }
    size_t limit = 0;
    OK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    printf("the FIFO has %zu bytes\n", limit);
    formats<<<1, 1>>>(nullptr);
    printf("before the output\n");
    OK(cudaDeviceSynchronize());
    printf("after the output\n");
    /* one after another: the output of each is there when the call returns */
    cudaStream_t s;
    cudaEvent_t e;
    int *p, h;
    OK(cudaStreamCreate(&s));
    OK(cudaEventCreate(&e));
    OK(cudaMalloc(&p, 4));
    lines<<<1, 1, 0, s>>>(1);
    OK(cudaStreamSynchronize(s));
    printf("- stream\n");
    lines<<<1, 1, 0, s>>>(2);
    OK(cudaEventRecord(e, s));
    OK(cudaEventSynchronize(e));
    printf("- event\n");
    lines<<<1, 1>>>(3);
    OK(cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost));
    printf("- copy\n");
    /* a long one, in pieces that fit */
    for (int i = 0; i < 20; i++) {
        many<<<1, 1>>>(i * 1000, 1000);
        OK(cudaDeviceSynchronize());
    }
    pthread_t threads[4];
    for (auto &thread : threads)
        pthread_create(&thread, nullptr, other_thread, nullptr);
    for (auto &thread : threads)
        pthread_join(thread, nullptr);
    /* what ends a context waits for its kernels and for what they print */
    if (end_own_context() != 0)
        return 1;
    many<<<1, 1, 0, s>>>(30000, 3000);
    OK(cudaDeviceReset());
    printf("- reset\n");
    /* more than fits: the newest stay */
    OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 8192));
    OK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    printf("%d\n", limit >= 8192);
    many<<<1, 1>>>(0, 5000);
    OK(cudaDeviceSynchronize());
    printf("overflow is over\n");
    fflush(stdout);
    fails<<<1, 1>>>(1);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    fails<<<1, 4>>>(3); /* one block: of several, any may be the first */
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("%s\n", cudaGetErrorName(cudaMalloc(&p, 4)));
    return 0;
}
