// What the runtime asks of a driver beyond launches and copies: symbols, attributes, limits, errors and recovery.
#include "check.h"

#include <cassert>
#include <cstring>
#include <thread>
#include <vector>

__device__ int counter;
__constant__ float factors[4];
static __device__ int hidden[3] = {1, 2, 3};

__global__ void nothing(int *)
{
}
__global__ void count()
{
    atomicAdd(&counter, 1);
}
__global__ void weigh(float *out)
{
    out[threadIdx.x] = factors[threadIdx.x] * hidden[threadIdx.x % 3];
}
__global__ void reverse(int *out)
{
    extern __shared__ int room[];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(64) bounded(int *out)
{
    out[threadIdx.x] = 1;
}
__global__ void wild(int *p)
{
    p[threadIdx.x * 1000000000ll] = 1;
}
__global__ void asserts(int x)
{
    assert(x == 0);
}

/* Nodes name their kernels as the program does; whoever asks gets what belongs to the node. */
static void nodes_of_graphs(int *out)
{
    cudaGraph_t graph;
    cudaGraphNode_t made, captured;
    cudaStream_t stream;
    size_t n = 1;
    void *arguments[] = {&out};
    cudaKernelNodeParams given = {(void *)reverse, dim3(1), dim3(64), 256, arguments, nullptr}, asked = {};
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddKernelNode(&made, graph, nullptr, 0, &given));
    OK(cudaGraphKernelNodeGetParams(made, &asked));
    REQUIRE(asked.func == (void *)reverse && asked.blockDim.x == 64 && asked.sharedMemBytes == 256);
    REQUIRE(asked.kernelParams != arguments && *(int **)asked.kernelParams[0] == out);
    OK(cudaGraphKernelNodeSetParams(made, &asked));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    weigh<<<1, 4, 0, stream>>>((float *)out);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, &captured, &n));
    OK(cudaGraphKernelNodeGetParams(captured, &asked));
    REQUIRE(asked.func == (void *)weigh && *(int **)asked.kernelParams[0] == out);
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
}

/* Memory of cudaMalloc may be freed in a stream's order. */
static void frees_in_order()
{
    int *memory, value = 0;
    OK(cudaMalloc(&memory, 1 << 20));
    OK(cudaMemsetAsync(memory, 1, 1 << 20, cudaStreamPerThread));
    OK(cudaMemcpyAsync(&value, memory + 77, sizeof value, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    OK(cudaFreeAsync(memory, cudaStreamPerThread));
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    REQUIRE(value == 0x01010101);
    GIVES(cudaErrorInvalidValue, cudaFree(memory));
    (void)cudaGetLastError();
}

static int counted()
{
    int value;
    OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    return value;
}

int main()
{
    int *out, host[256], value;
    void *pointer;
    OK(cudaMalloc(&out, sizeof host));

    for (int i = 0; i < 100; i++)
        count<<<2, 50>>>();
    REQUIRE(counted() == 10000);
    float given[4] = {0.5f, 1.5f, 2.5f, 3.5f}, weighed[4];
    int changed[3] = {4, 5, 6};
    OK(cudaMemcpyToSymbol(factors, given, sizeof given));
    OK(cudaMemcpyToSymbol(hidden, changed, sizeof changed));
    weigh<<<1, 4>>>((float *)out);
    OK(cudaMemcpy(weighed, out, sizeof weighed, cudaMemcpyDeviceToHost));
    REQUIRE(weighed[0] == 2 && weighed[1] == 7.5f && weighed[2] == 15 && weighed[3] == 14);
    size_t size;
    OK(cudaGetSymbolSize(&size, hidden));
    REQUIRE(size == sizeof changed);

    GIVES(cudaErrorInvalidValue, cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
    (void)cudaGetLastError();
    reverse<<<1, 256, 90000>>>(out);
    GIVES(cudaErrorInvalidValue, cudaGetLastError());
    OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 90000));
    reverse<<<1, 256, 90000>>>(out);
    OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    REQUIRE(host[0] == 255 && host[255] == 0);
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, bounded));
    REQUIRE(attributes.maxThreadsPerBlock == 64);
    bounded<<<1, 65>>>(out);
    REQUIRE(cudaGetLastError() != cudaSuccess);

    cudaPointerAttributes of;
    OK(cudaPointerGetAttributes(&of, out));
    REQUIRE(of.type == cudaMemoryTypeDevice && of.device == 0);
    OK(cudaPointerGetAttributes(&of, host));
    REQUIRE(of.type == cudaMemoryTypeUnregistered);
    OK(cudaMallocHost(&pointer, 100));
    OK(cudaPointerGetAttributes(&of, pointer));
    REQUIRE(of.type == cudaMemoryTypeHost && of.devicePointer == pointer);

    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int k = 0; k < 200; k++)
                count<<<1, 10, 0, cudaStreamPerThread>>>();
            OK(cudaStreamSynchronize(cudaStreamPerThread));
        });
    for (auto &thread : threads)
        thread.join();
    REQUIRE(counted() == 18000);

    nothing<<<dim3(2147483647, 65535, 65535), 1024>>>(out); /* the largest grid that there may be */
    OK(cudaDeviceSynchronize());

    nodes_of_graphs(out);
    frees_in_order();

    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&pointer, 1ull << 50));
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(3));
    GIVES(cudaErrorInvalidValue, cudaFree((void *)0x1234));
    (void)cudaGetLastError();
    int *managed;
    OK(cudaMallocManaged(&managed, 64 * sizeof *managed));
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrManagedMemory, 0));
    REQUIRE(value == 1);
    bounded<<<1, 64>>>(managed);
    OK(cudaDeviceSynchronize());
    REQUIRE(managed[0] == 1 && managed[63] == 1);

    wild<<<1, 32>>>(out);
    GIVES(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    GIVES(cudaErrorIllegalAddress, cudaMalloc(&pointer, 10));
    OK(cudaDeviceReset());
    OK(cudaMalloc(&out, sizeof host));
    count<<<1, 7>>>();
    REQUIRE(counted() == 7); /* variables begin anew */
    asserts<<<1, 1>>>(1);
    GIVES(cudaErrorAssert, cudaDeviceSynchronize());
    return 0;
}
