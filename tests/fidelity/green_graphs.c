/*
 * green_graphs.c - a transcript of where kernels of graphs run that are green contexts': by themselves, and in bodies of conditional
 * nodes. The graphs are launched in a stream of the primary context.
 */
#include "must.h"
#include "where_kernel.h"

#include <stdint.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

enum { BLOCKS = 400, PLACES = 64 };

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n" WHERE_KERNEL;

static CUcontext primary, context; /* the second is the green context's */
static CUstream inside, outside;   /* of these */
static CUfunction where;
static CUdeviceptr counters;

/* The second of two groups of 16 multiprocessors. */
static CUgreenCtx start(void)
{
    CUdevResource whole, groups[2];
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUmodule module;
    unsigned n = 2;
    primary = use_first_device();
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&where, module, "where"));
    CHECK(cuMemAlloc_v2(&counters, PLACES * sizeof(unsigned)));
    CHECK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(groups, &n, &whole, NULL, 0, 16));
    CHECK(cuDevResourceGenerateDesc(&description, &groups[1], 1));
    CHECK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuCtxFromGreenCtx(&context, green));
    CHECK(cuGreenCtxStreamCreate(&inside, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
    return green;
}

static void launch(const char *name, CUgraph graph)
{
    unsigned counts[PLACES], all = 0, there = 0;
    CUgraphExec exec;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuMemsetD8_v2(counters, 0, sizeof counts));
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphLaunch(exec, outside));
    CHECK(cuStreamSynchronize(outside));
    CHECK(cuMemcpyDtoH_v2(counts, counters, sizeof counts));
    for (int i = 0; i < PLACES; i++) {
        all += counts[i];
        there += i >= 16 && i < 32 ? counts[i] : 0;
    }
    printf("%s: %u blocks, %u in the green context's multiprocessors\n", name, all, there);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void captured(void)
{
    CUgraph graph;
    CHECK(cuStreamBeginCapture_v2(inside, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuLaunchKernel(where, BLOCKS, 1, 1, 1, 1, 1, 0, inside, (void *[]){&counters}, NULL));
    CHECK(cuStreamEndCapture(inside, &graph));
    launch("captured", graph);
}

/* The node is of one context, the kernel in its body of another, or of the same. */
static void in_a_body(CUcontext of)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeParams condition = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL},
                      kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphConditionalHandleCreate(&condition.conditional.handle, graph, of, 1,
                                         CU_GRAPH_COND_ASSIGN_DEFAULT));
    condition.conditional.type = CU_GRAPH_COND_TYPE_IF;
    condition.conditional.size = 1;
    condition.conditional.ctx = of;
    CHECK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &condition));
    kernel.kernel.func = where;
    kernel.kernel.gridDimX = BLOCKS;
    kernel.kernel.gridDimY = kernel.kernel.gridDimZ = 1;
    kernel.kernel.blockDimX = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1;
    kernel.kernel.kernelParams = (void *[]){&counters};
    kernel.kernel.ctx = context;
    CHECK(cuGraphAddNode_v2(&node, condition.conditional.phGraph_out[0], NULL, NULL, 0, &kernel));
    launch("in a body", graph);
}

int main(void)
{
    CUgreenCtx green = start();
    captured();
    in_a_body(context);
    in_a_body(primary);
    TRY(cuGreenCtxDestroy(green));
    return 0;
}
