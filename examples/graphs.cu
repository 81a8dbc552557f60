/*
 * Graphs: work that is described once and launched many times. One is captured from streams that fork and join; one is
 * put together node by node, with copies from and to pageable memory, a fill, kernels, a host function and a graph
 * inside, launched, changed and launched again. What cannot be captured is refused.
 */
#include "example.h"
#include <vector>

__global__ void add(int *value, int summand, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        value[i] += summand;
    }
}

__global__ void combine(int *out, const int *a, const int *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = a[i] * 3 + b[i];
    }
}

struct sum {
    const int *from;
    int n;
    long long total;
    int calls;
};

static void CUDART_CB add_up(void *argument)
{
    struct sum *sum = (struct sum *)argument;

    sum->calls++;
    for (int i = 0; i < sum->n; i++) {
        sum->total += sum->from[i];
    }
}

/* a is copied in, forks into two streams, is joined, summed up by a host function. */
static bool captured(int n, int launches)
{
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *a, *b, *out;
    std::vector<int> in(n), result(n);
    struct sum sum = {result.data(), n, 0, 0};
    long long expected = 0;
    size_t nodes = 0, roots = 0, edges = 0;

    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaMalloc(&a, n * sizeof(int)));
    CHECK(cudaMalloc(&b, n * sizeof(int)));
    CHECK(cudaMalloc(&out, n * sizeof(int)));

    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(a, in.data(), n * sizeof(int), cudaMemcpyHostToDevice, first));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    add<<<(n + 127) / 128, 128, 0, first>>>(a, 5, n);
    CHECK(cudaMemsetAsync(b, 0, n * sizeof(int), second));
    add<<<(n + 127) / 128, 128, 0, second>>>(b, 7, n);
    CHECK(cudaEventRecord(join, second));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(second, &status));
    bool good = status == cudaStreamCaptureStatusActive;
    CHECK(cudaStreamWaitEvent(first, join, 0));
    combine<<<(n + 127) / 128, 128, 0, first>>>(out, a, b, n);
    CHECK(cudaMemcpyAsync(result.data(), out, n * sizeof(int), cudaMemcpyDeviceToHost, first));
    CHECK(cudaLaunchHostFunc(first, add_up, &sum));
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaStreamIsCapturing(second, &status));
    good = good && status == cudaStreamCaptureStatusNone;

    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(cudaGraphGetRootNodes(graph, NULL, &roots));
#if CUDART_VERSION >= 13000
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
#else
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, &edges));
#endif
    printf("captured: %zu nodes, %zu edges, %zu root\n", nodes, edges, roots);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int launch = 0; launch < launches; launch++) {
        for (int i = 0; i < n; i++) {
            in[i] = i + launch;
            expected += (i + launch + 5) * 3 + 7;
        }
        CHECK(cudaGraphLaunch(exec, first));
        CHECK(cudaStreamSynchronize(first));
    }
    printf("captured: %d launches, sum %lld\n", sum.calls, sum.total);
    good = good && sum.calls == launches && sum.total == expected;

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(out));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    return good;
}

static cudaKernelNodeParams kernel_params(const void *function, int n, void **arguments)
{
    cudaKernelNodeParams params = {};

    params.func = (void *)function;
    params.gridDim = dim3((n + 63) / 64);
    params.blockDim = dim3(64);
    params.kernelParams = arguments;
    return params;
}

static bool explicit_graph(int n, int launches)
{
    cudaStream_t stream;
    cudaGraph_t graph, inner;
    cudaGraphExec_t exec;
    cudaGraphNode_t fill, kernel, copy, host, child, in_child;
    int *value, *other, summand = 2, inner_summand = 1000;
    std::vector<int> result(n);
    struct sum sum = {result.data(), n, 0, 0};
    void *arguments[] = {&value, &summand, &n}, *inner_arguments[] = {&value, &inner_summand, &n};

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&value, n * sizeof(int)));
    CHECK(cudaMalloc(&other, n * sizeof(int)));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&inner, 0));

    cudaMemsetParams zero = {};
    zero.dst = value;
    zero.elementSize = 4;
    zero.width = n;
    zero.height = 1;
    zero.value = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &zero));
    cudaKernelNodeParams params = kernel_params((const void *)add, n, arguments);
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &fill, 1, &params));
    cudaKernelNodeParams inner_params = kernel_params((const void *)add, n, inner_arguments);
    CHECK(cudaGraphAddKernelNode(&in_child, inner, NULL, 0, &inner_params));
    CHECK(cudaGraphAddChildGraphNode(&child, graph, &kernel, 1, inner));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &child, 1, result.data(), value, n * sizeof(int),
                                   cudaMemcpyDeviceToHost));
    cudaHostNodeParams call = {add_up, &sum};
    CHECK(cudaGraphAddHostNode(&host, graph, &copy, 1, &call));
    summand = -1; /* was taken along when the node was made */

    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < launches; launch++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    printf("explicit: %d launches, sum %lld\n", sum.calls, sum.total);
    bool good = sum.calls == launches && sum.total == 1003ll * n * launches;

    summand = 20;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    sum.total = 0;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("explicit: with another parameter %lld\n", sum.total);
    good = good && sum.total == 1021ll * n;

    zero.value = 100;
    CHECK(cudaGraphMemsetNodeSetParams(fill, &zero));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    sum.total = 0;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("explicit: updated from the graph %lld\n", sum.total);
    good = good && info.result == cudaGraphExecUpdateSuccess && sum.total == 1102ll * n;

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(inner));
    CHECK(cudaFree(value));
    CHECK(cudaFree(other));
    CHECK(cudaStreamDestroy(stream));
    return good;
}

/* A capture that was told to wait, one whose fork was not joined, one that meets the legacy stream. */
static bool refused()
{
    cudaStream_t stream, second;
    cudaEvent_t event;
    cudaGraph_t graph;
    int *value;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    cudaError_t wait = cudaStreamSynchronize(stream);
    cudaError_t after = cudaMemsetAsync(value, 0, sizeof(int), stream);
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    printf("refused: %s, %s, %s\n", cudaGetErrorName(wait), cudaGetErrorName(after), cudaGetErrorName(end));
    bool good = wait == cudaErrorStreamCaptureUnsupported && after == cudaErrorStreamCaptureInvalidated &&
                end == cudaErrorStreamCaptureInvalidated;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    CHECK(cudaMemsetAsync(value, 0, sizeof(int), second));
    end = cudaStreamEndCapture(stream, &graph);
    printf("refused: %s\n", cudaGetErrorName(end));
    good = good && end == cudaErrorStreamCaptureUnjoined;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    wait = cudaMemset(value, 0, sizeof(int));
    end = cudaStreamEndCapture(stream, &graph);
    printf("refused: %s, %s\n", cudaGetErrorName(wait), cudaGetErrorName(end));
    good = good && wait == cudaErrorStreamCaptureImplicit && end == cudaErrorStreamCaptureInvalidated;

    (void)cudaGetLastError();
    CHECK(cudaMemset(value, 0, sizeof(int)));
    CHECK(cudaFree(value));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(second));
    return good;
}

int main(int argc, char **argv)
{
    struct example example = example_begin("graphs", "[N [LAUNCHES]]", argc, argv);
    int n = example_number(&example, 0, 1, 1 << 24, 5000);
    int launches = example_number(&example, 1, 1, 10000, 10);
    bool good = captured(n, launches);

    good = explicit_graph(n, launches) && good;
    good = refused() && good;
    return example_end(&example, good);
}
