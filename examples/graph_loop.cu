/*
 * A graph that decides on the device: square roots by Newton's method, in a loop that ends when the values are near
 * enough. The graph allocates the memory for the values itself; what the loop does is captured from a stream into the
 * loop's body. A kernel of the graph is then asked for and changed, and the graph launched again.
 */
#include "example.h"
#include <cmath>
#include <vector>

__global__ void begin(float *roots, const float *values, int n, int *rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        roots[i] = values[i];
    }
    if (i == 0) {
        *rounds = 0;
    }
}

__global__ void step(float *roots, const float *values, int n, int *worse)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float better = (roots[i] + values[i] / roots[i]) / 2;

        if (fabsf(better - roots[i]) > 1e-4f * better) {
            atomicAdd(worse, 1);
        }
        roots[i] = better;
    }
}

__global__ void decide(cudaGraphConditionalHandle more, int *worse, int *rounds, int most)
{
    *rounds += 1;
    cudaGraphSetConditional(more, *worse > 0 && *rounds < most);
    *worse = 0;
}

#if CUDART_VERSION >= 13000
static cudaGraphNode_t add_node(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphNodeParams *params)
{
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, &after, NULL, after ? 1 : 0, params));
    return node;
}

static bool check(const std::vector<float> &roots, const std::vector<float> &values, double limit)
{
    double worst = 0;

    for (size_t i = 0; i < roots.size(); i++) {
        worst = fmax(worst, fabs(roots[i] / sqrt(values[i]) - 1));
    }
    printf("the roots are %s\n", worst < limit ? "near" : "far off");
    return worst < limit;
}

static bool loop(int n, int launches)
{
    int blocks = (n + 127) / 128, most = 100;
    float *values, *roots;
    int *counts;
    cudaStream_t stream;
    std::vector<float> start(n), result(n);

    for (int i = 0; i < n; i++) {
        start[i] = 1 + i % 1000;
    }
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&values, n * sizeof *values));
    CHECK(cudaMalloc(&counts, 2 * sizeof *counts));
    CHECK(cudaMemset(counts, 0, 2 * sizeof *counts));
    CHECK(cudaMemcpy(values, start.data(), n * sizeof *values, cudaMemcpyHostToDevice));

    cudaGraph_t graph, body;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams memory = {};
    cudaGraphNode_t allocation, first, copy, last;
    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.bytesize = n * sizeof *roots;
    CHECK(cudaGraphAddMemAllocNode(&allocation, graph, NULL, 0, &memory));
    roots = (float *)memory.dptr;

    int *worse = counts, *rounds = counts + 1;
    void *arguments[] = {&roots, &values, &n, &rounds};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)begin;
    kernel.gridDim = dim3(blocks);
    kernel.blockDim = dim3(128);
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&first, graph, &allocation, 1, &kernel));

    cudaGraphConditionalHandle more;
    CHECK(cudaGraphConditionalHandleCreate(&more, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams condition = {};
    condition.type = cudaGraphNodeTypeConditional;
    condition.conditional.handle = more;
    condition.conditional.type = cudaGraphCondTypeWhile;
    condition.conditional.size = 1;
    cudaGraphNode_t around = add_node(graph, first, &condition);
    body = condition.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(stream, body, NULL, NULL, 0, cudaStreamCaptureModeGlobal));
    step<<<blocks, 128, 0, stream>>>(roots, values, n, worse);
    CHECK_LAUNCH();
    decide<<<1, 1, 0, stream>>>(more, worse, rounds, most);
    CHECK_LAUNCH();
    CHECK(cudaStreamEndCapture(stream, NULL));

    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &around, 1, result.data(), roots, n * sizeof *roots,
                                   cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&last, graph, &copy, 1, roots));

    cudaGraphExec_t exec;
    int counted[2];
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(counted, counts, sizeof counted, cudaMemcpyDeviceToHost));
    bool good = check(result, start, 1e-3) && counted[1] > 3 && counted[1] < 30;

    /* With fewer values the others stay as they are; with two rounds the roots are far off. */
    cudaKernelNodeParams asked;
    cudaGraphNode_t inside[4];
    size_t n_inside = 4;
    CHECK(cudaGraphGetNodes(body, inside, &n_inside));
    CHECK(cudaGraphKernelNodeGetParams(inside[1], &asked));
    good = good && n_inside == 2 && asked.func == (void *)decide;
    most = 2;
    void *changed[] = {&more, &worse, &rounds, &most};
    asked.kernelParams = changed;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, inside[1], &asked));
    for (int i = 0; i < launches; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(counted, counts, sizeof counted, cudaMemcpyDeviceToHost));
    printf("%d rounds\n", counted[1]);
    good = good && counted[1] == 2 && !check(result, start, 1e-3);

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(values));
    CHECK(cudaFree(counts));
    CHECK(cudaStreamDestroy(stream));
    return good;
}
#endif

int main(int argc, char **argv)
{
    struct example example = example_begin("graph_loop", "[N [LAUNCHES]]", argc, argv);
    int n = example_number(&example, 0, 1, 1 << 24, 5000);
    int launches = example_number(&example, 1, 1, 100000, 3);
    bool good = true;

#if CUDART_VERSION >= 13000
    good = loop(n, launches);
#else
    printf("%d roots and %d launches would need CUDA 13\n", n, launches);
#endif
    return example_end(&example, good);
}
