/*
 * Kernels that launch kernels. A recursive sum splits its range until it is small; the launches of one block follow each
 * other in the block's own stream; streams and events of the device order what runs in two of them; a tail launch sees
 * all that its parent's children did. Memory is cleared and copied from kernels, and a launch that is not possible is an
 * error that the thread gets.
 */
#include "example.h"
#include <vector>

/* --- a tree of grids --- */

__global__ void sum_range(const int *values, int first, int end, unsigned long long *sum, int *grids)
{
    int n = end - first;

    if (threadIdx.x == 0) {
        atomicAdd(grids, 1);
    }
    if (n <= 1000) {
        for (int i = first + threadIdx.x; i < end; i += blockDim.x) {
            atomicAdd(sum, (unsigned long long)values[i]);
        }
    } else if (threadIdx.x < 2) { /* each of two threads has a half */
        int middle = first + n / 2;

        sum_range<<<1, 32>>>(values, threadIdx.x == 0 ? first : middle, threadIdx.x == 0 ? middle : end, sum, grids);
    }
}

static bool tree(int n)
{
    std::vector<int> values(n);
    unsigned long long expected = 0, sum;
    int *device, *grids, n_grids;
    unsigned long long *device_sum;

    for (int i = 0; i < n; i++) {
        values[i] = (int)(example_mix(i) % 1000);
        expected += values[i];
    }
    CHECK(cudaMalloc(&device, n * sizeof *device));
    CHECK(cudaMalloc(&grids, sizeof *grids));
    CHECK(cudaMalloc(&device_sum, sizeof *device_sum));
    CHECK(cudaMemset(grids, 0, sizeof *grids));
    CHECK(cudaMemset(device_sum, 0, sizeof *device_sum));
    CHECK(cudaMemcpy(device, values.data(), n * sizeof *device, cudaMemcpyHostToDevice));
    sum_range<<<1, 32>>>(device, 0, n, device_sum, grids);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&sum, device_sum, sizeof sum, cudaMemcpyDeviceToHost)); /* when the whole tree is done */
    CHECK(cudaMemcpy(&n_grids, grids, sizeof n_grids, cudaMemcpyDeviceToHost));
    printf("tree: sum %llu of %llu, %d grids\n", sum, expected, n_grids);
    CHECK(cudaFree(device));
    CHECK(cudaFree(grids));
    CHECK(cudaFree(device_sum));
    return sum == expected;
}

/* --- order --- */

__global__ void append(unsigned long long *digits, int digit)
{
    *digits = *digits * 10 + digit; /* wrong if two of these run at a time */
}

__global__ void add(unsigned long long *to, const unsigned long long *from)
{
    *to += *from;
}

__global__ void finish(unsigned long long *results, int n)
{
    unsigned long long sum = 0;

    for (int i = 0; i < n; i++) {
        sum += results[i];
    }
    results[n] = sum;
}

/** Block b makes results[b]; what is behind them comes last. */
__global__ void in_order(unsigned long long *results, unsigned long long *scratch, int n)
{
    unsigned long long *mine = &results[blockIdx.x];
    cudaStream_t other;
    cudaEvent_t ready;

    for (int digit = 1; digit <= 6; digit++) {
        append<<<1, 1>>>(mine, digit);
    }
    cudaMemcpyAsync(&scratch[blockIdx.x], mine, sizeof *mine, cudaMemcpyDeviceToDevice, 0);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    cudaEventRecord(ready, 0);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaStreamWaitEvent(other, ready, 0);
    add<<<1, 1, 0, other>>>(mine, &scratch[blockIdx.x]);
    append<<<1, 1, 0, other>>>(mine, 7);
    cudaStreamDestroy(other);
    cudaEventDestroy(ready);
    if (blockIdx.x == 0) {
        finish<<<1, 1, 0, cudaStreamTailLaunch>>>(results, n);
    }
}

static bool order(int n)
{
    unsigned long long *results, *scratch, sum;

    CHECK(cudaMalloc(&results, (n + 1) * sizeof *results));
    CHECK(cudaMalloc(&scratch, n * sizeof *scratch));
    CHECK(cudaMemset(results, 0, (n + 1) * sizeof *results));
    in_order<<<n, 1>>>(results, scratch, n);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&sum, results + n, sizeof sum, cudaMemcpyDeviceToHost));
    printf("order: %llu\n", sum);
    CHECK(cudaFree(results));
    CHECK(cudaFree(scratch));
    return sum == (123456ull * 2 * 10 + 7) * n;
}

/* --- what a kernel may ask, and errors --- */

__global__ void count(int *counter)
{
    atomicAdd(counter, 1);
}

__global__ void ask(int *results, int *memory)
{
    int threads = 0, device = -1;
    cudaFuncAttributes attributes;
    void *heap = NULL;

    cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, 0);
    cudaGetDevice(&device);
    results[0] = threads;
    results[1] = device;
    results[2] = cudaFuncGetAttributes(&attributes, count) == cudaSuccess ? attributes.maxThreadsPerBlock : -1;
    results[3] = cudaMalloc(&heap, 100) == cudaSuccess && heap != NULL;
    cudaFree(heap);
    count<<<1, 4096>>>(memory); /* too many threads */
    results[4] = cudaPeekAtLastError();
    results[5] = cudaGetLastError() == results[4];
    results[6] = cudaGetLastError();
    for (int i = 0; i < 8; i++) {
        count<<<2, 32, 0, cudaStreamFireAndForget>>>(memory);
    }
    cudaMemsetAsync(memory + 1, 1, sizeof *memory, 0);
    results[7] = cudaGetLastError();
}

static bool questions()
{
    int *device, results[8], counted[2], expected = cudaErrorInvalidConfiguration;

    CHECK(cudaMalloc(&device, sizeof results + sizeof counted));
    CHECK(cudaMemset(device, 0, sizeof results + sizeof counted));
    ask<<<1, 1>>>(device, device + 8);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(results, device, sizeof results, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(counted, device + 8, sizeof counted, cudaMemcpyDeviceToHost));
    printf("questions: %d threads, device %d, %d threads, %d; errors %d %d %d %d; counted %d, set %#x\n", results[0],
           results[1], results[2], results[3], results[4], results[5], results[6], results[7], counted[0], counted[1]);
    CHECK(cudaFree(device));
    return results[0] == 1024 && results[1] == 0 && results[2] == 1024 && results[3] == 1 && results[4] == expected &&
           results[5] == 1 && results[6] == 0 && results[7] == 0 && counted[0] == 8 * 64 && counted[1] == 0x01010101;
}

/* --- a child that fails --- */

__global__ void fail()
{
    __trap();
}

__global__ void launch_failing()
{
    fail<<<1, 1>>>();
}

static bool faults()
{
    launch_failing<<<1, 1>>>();
    CHECK_LAUNCH();
    cudaError_t error = cudaDeviceSynchronize();
    printf("a child that traps: %s\n", cudaGetErrorName(error));
    return error == cudaErrorLaunchFailure;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("dynamic_parallelism", "[VALUES [BLOCKS]]", argc, argv);
    int n = example_number(&example, 0, 1, 10000000, 100000);
    int blocks = example_number(&example, 1, 1, 200, 40);
    bool good = tree(n);

    good = order(blocks) && good;
    good = questions() && good;
    good = faults() && good;
    return example_end(&example, good);
}
