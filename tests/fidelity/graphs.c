/*
 * graphs.c - a transcript of right and wrong use of graphs and stream capture: each call with the result it gave, what
 * graphs computed, and how they look. See wrong_use.c.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

static const char ptx[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    ".visible .entry add(.param .u64 p, .param .u32 n)\n" /* *p += n */
    "{\n"
    "    .reg .u32 %r<4>;\n"
    "    .reg .u64 %rd<3>;\n"
    "    ld.param.u64 %rd1, [p];\n"
    "    ld.param.u32 %r1, [n];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n"
    "    ld.global.u32 %r2, [%rd2];\n"
    "    add.u32 %r3, %r1, %r2;\n"
    "    st.global.u32 [%rd2], %r3;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry scale(.param .u64 p, .param .u32 n)\n" /* *p *= n */
    "{\n"
    "    .reg .u32 %r<4>;\n"
    "    .reg .u64 %rd<3>;\n"
    "    ld.param.u64 %rd1, [p];\n"
    "    ld.param.u32 %r1, [n];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n"
    "    ld.global.u32 %r2, [%rd2];\n"
    "    mul.lo.u32 %r3, %r1, %r2;\n"
    "    st.global.u32 [%rd2], %r3;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry decide(.param .u64 handle, .param .u64 p)\n" /* the condition is *p */
    "{\n"
    "    .reg .u32 %r<2>;\n"
    "    .reg .u64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [handle];\n"
    "    ld.param.u64 %rd2, [p];\n"
    "    cvta.to.global.u64 %rd3, %rd2;\n"
    "    ld.global.u32 %r1, [%rd3];\n"
    "    {\n"
    "    .param .b64 param0;\n"
    "    st.param.b64 [param0+0], %rd1;\n"
    "    .param .b32 param1;\n"
    "    st.param.b32 [param1+0], %r1;\n"
    "    call.uni cudaGraphSetConditional, (param0, param1);\n"
    "    }\n"
    "    ret;\n"
    "}\n"
    ".visible .entry nothing()\n"
    "{\n"
    "    ret;\n"
    "}\n";

static CUcontext c;
static CUmodule m;
static CUfunction add, scale, decide, nothing;
static CUdeviceptr p, q;
static CUstream s, t, u;
static CUevent e, e2;
static CUgraph g, g2;
static CUgraphExec x;
static CUgraphNode nodes[16], node;
static size_t n;
static char where[] = "/tmp/graph-XXXXXX";
static int calls;
static CUresult in_host_function;

static void CUDA_CB called(void *user)
{
    CUdeviceptr none;
    calls += (int)(intptr_t)user;
    in_host_function = cuMemAlloc_v2(&none, 4);
}

/* A kernel's node, with one address and one number. */
static CUgraphNode kernel(CUgraph graph, const CUgraphNode *after, size_t count, CUfunction f,
                          CUdeviceptr address, unsigned number)
{
    void *args[] = {&address, &number};
    CUDA_KERNEL_NODE_PARAMS k = {.func = f,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    CUgraphNode made = NULL;
    TRY(cuGraphAddKernelNode_v2(&made, graph, after, count, &k));
    return made;
}

static CUgraphNode decision(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphConditionalHandle h,
                            CUdeviceptr address)
{
    void *args[] = {&h, &address};
    CUDA_KERNEL_NODE_PARAMS k = {.func = decide,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    CUgraphNode made = NULL;
    TRY(cuGraphAddKernelNode_v2(&made, graph, after, count, &k));
    return made;
}

static void show(CUdeviceptr address, int count)
{
    unsigned values[16] = {0};
    TRY(cuMemcpyDtoH_v2(values, address, (size_t)count * 4));
    for (int i = 0; i < count; i++)
        printf(" %u", values[i]);
    printf("\n");
}

static void shape(CUgraph graph)
{
    CUgraphNode from[64], to[64];
    CUgraphEdgeData data[64];
    size_t edges = 64, count = 64, roots = 0;
    CUgraphNode all[64];
    printf("shape:");
    if (cuGraphGetNodes(graph, all, &count) != CUDA_SUCCESS ||
        cuGraphGetEdges_v2(graph, from, to, data, &edges) != CUDA_SUCCESS ||
        cuGraphGetRootNodes(graph, NULL, &roots) != CUDA_SUCCESS) {
        printf(" none\n");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type = (CUgraphNodeType)-1;
        (void)cuGraphNodeGetType(all[i], &type);
        printf(" %d", (int)type);
    }
    printf(" roots %zu;", roots);
    for (size_t i = 0; i < edges; i++) {
        size_t a = 0, b = 0;
        while (a < count && all[a] != from[i])
            a++;
        while (b < count && all[b] != to[i])
            b++;
        printf(" %zu-%zu", a, b);
        if (data[i].from_port || data[i].type)
            printf("(%d,%d)", data[i].from_port, data[i].type);
    }
    printf("\n");
}

static void run(CUgraphExec exec)
{
    TRY(cuGraphLaunch(exec, s));
    TRY(cuStreamSynchronize(s));
}

static void begin(void)
{
    TRY(cuInit(0));
    TRY(cuGraphCreate(&g, 0));
    TRY(cuDevicePrimaryCtxRetain(&c, 0));
    TRY(cuCtxSetCurrent(c));
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&add, m, "add"));
    TRY(cuModuleGetFunction(&scale, m, "scale"));
    TRY(cuModuleGetFunction(&decide, m, "decide"));
    TRY(cuModuleGetFunction(&nothing, m, "nothing"));
    TRY(cuMemAlloc_v2(&p, 4096));
    TRY(cuMemAlloc_v2(&q, 4096));
    TRY(cuMemsetD8_v2(p, 0, 4096));
    TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&u, CU_STREAM_DEFAULT));
    TRY(cuEventCreate(&e, 0));
    TRY(cuEventCreate(&e2, 0));
}

static void graphs_and_wrong_nodes(void)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUDA_KERNEL_NODE_PARAMS k = {0};
    CUDA_MEMCPY3D copy = {0};
    CUDA_MEMSET_NODE_PARAMS fill = {0};
    CUDA_HOST_NODE_PARAMS host = {0};
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphCreate(NULL, 0));
    TRY(cuGraphCreate(&g, 1));
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddEmptyNode(NULL, g, NULL, 0));
    TRY(cuGraphAddEmptyNode(&node, NULL, NULL, 0));
    TRY(cuGraphAddEmptyNode(&node, g, NULL, 1));
    TRY(cuGraphAddEmptyNode(&nodes[0], g, NULL, 0));
    nodes[1] = nodes[0];
    TRY(cuGraphAddEmptyNode(&node, g, nodes, 2)); /* twice the same */
    TRY(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &k));
    TRY(cuGraphAddKernelNode_v2(&node, g, NULL, 0, NULL));
    k.func = nothing;
    TRY(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &k)); /* no grid */
    TRY(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c));
    TRY(cuGraphAddMemcpyNode(&node, g, NULL, 0, NULL, c));
    fill.dst = p + 1;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    TRY(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c)); /* not aligned */
    fill.dst = p;
    fill.elementSize = 3;
    TRY(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c));
    TRY(cuGraphAddHostNode(&node, g, NULL, 0, &host));
    TRY(cuGraphAddEventRecordNode(&node, g, NULL, 0, NULL));
    TRY(cuGraphAddEventWaitNode(&node, g, NULL, 0, (CUevent)0x1230));
    TRY(cuGraphAddChildGraphNode(&node, g, NULL, 0, g));
    TRY(cuGraphAddChildGraphNode(&node, g, NULL, 0, NULL));
    TRY(cuGraphAddMemFreeNode(&node, g, NULL, 0, p));
    TRY(cuGraphAddMemFreeNode(&node, g, NULL, 0, 0));
    TRY(cuGraphAddNode_v2(&node, g, NULL, NULL, 0, NULL));
    TRY(cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params));
    params.reserved2 = 1;
    TRY(cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params));
    params = (CUgraphNodeParams){.type = (CUgraphNodeType)99};
    TRY(cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params));
    params = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};
    TRY(cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params));
    TRY(cuGraphDestroyNode(NULL));
    TRY(cuGraphDestroyNode(nodes[0]));
    TRY(cuGraphDestroyNode(nodes[0]));
    shape(g);
    TRY(cuGraphDestroy(g));
}

static void edges(void)
{
    CUgraphEdgeData data[2] = {{0}, {0}};
    CUgraphNode from[2], to[2];
    TRY(cuGraphCreate(&g, 0));
    nodes[0] = kernel(g, NULL, 0, add, p, 1);
    TRY(cuGraphAddEmptyNode(&nodes[1], g, NULL, 0));
    TRY(cuGraphAddEmptyNode(&nodes[2], g, &nodes[1], 1));
    from[0] = nodes[0];
    to[0] = nodes[2];
    data[0].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    data[0].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    TRY(cuGraphAddDependencies_v2(g, from, to, data, 1));
    TRY(cuGraphAddDependencies_v2(g, from, to, data, 1)); /* is there */
    TRY(cuGraphAddDependencies(g, from, from, 1));
    TRY(cuGraphAddDependencies(g, NULL, NULL, 1));
    TRY(cuGraphAddDependencies(g, NULL, NULL, 0));
    from[1] = nodes[1];
    to[1] = nodes[0];
    TRY(cuGraphAddDependencies_v2(g, from + 1, to + 1, data, 1)); /* a port of an empty node */
    data[1].to_port = 1;
    TRY(cuGraphAddDependencies_v2(g, from + 1, to + 1, data + 1, 1));
    data[1].to_port = 0;
    data[1].reserved[2] = 1;
    TRY(cuGraphAddDependencies_v2(g, from + 1, to + 1, data + 1, 1));
    shape(g);
    n = 4;
    TRY(cuGraphGetEdges(g, from, to, &n)); /* cannot tell all */
    n = 2;
    TRY(cuGraphGetEdges(g, NULL, NULL, &n));
    printf("%zu\n", n);
    TRY(cuGraphGetEdges(g, from, NULL, &n));
    TRY(cuGraphGetNodes(g, nodes + 8, NULL));
    n = 2;
    TRY(cuGraphNodeGetDependencies(nodes[2], nodes + 8, &n));
    n = 2;
    TRY(cuGraphNodeGetDependencies_v2(nodes[2], nodes + 8, data, &n));
    printf("%zu\n", n);
    n = 1;
    TRY(cuGraphNodeGetDependentNodes(nodes[1], nodes + 8, &n));
    printf("%zu %d\n", n, nodes[8] == nodes[2]);
    from[0] = nodes[0];
    to[0] = nodes[2];
    TRY(cuGraphRemoveDependencies(g, from, to, 1)); /* with other data */
    data[0] = (CUgraphEdgeData){.from_port = 1, .type = 1};
    TRY(cuGraphRemoveDependencies_v2(g, from, to, data, 1));
    TRY(cuGraphRemoveDependencies_v2(g, from, to, data, 1));
    from[0] = nodes[2];
    to[0] = nodes[1];
    TRY(cuGraphAddDependencies(g, from, to, 1));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    TRY(cuGraphInstantiateWithParams(&x, g, &how)); /* a cycle */
    printf("%d %d\n", (int)how.result_out, how.hErrNode_out == nodes[1] || how.hErrNode_out == nodes[2]);
    how.flags = 64;
    TRY(cuGraphInstantiateWithParams(&x, g, &how));
    printf("%d %d\n", (int)how.result_out, how.hErrNode_out == NULL);
    TRY(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
    TRY(cuGraphInstantiateWithFlags(&x, g, 5));
    TRY(cuGraphInstantiateWithFlags(NULL, g, 0));
    TRY(cuGraphInstantiateWithFlags(&x, NULL, 0));
    shape(g);
    TRY(cuGraphDestroy(g));
}

/* Two branches that come together, in a graph in a graph. */
static void branches(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = p, .elementSize = 4, .value = 3, .width = 8, .height = 1};
    CUgraphNode child;
    unsigned result[8] = {0};
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = result,
                          .WidthInBytes = sizeof result,
                          .Height = 1,
                          .Depth = 1};
    CUDA_HOST_NODE_PARAMS host = {called, (void *)1};
    cuuint64_t flags;
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphCreate(&g2, 0));
    for (unsigned i = 0; i < 8; i++)
        for (unsigned j = 0; j < 3; j++)
            nodes[i] = kernel(g2, &nodes[i], j > 0, j & 1 ? scale : add, p + 4 * i, i + j);
    TRY(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c));
    TRY(cuGraphAddChildGraphNode(&child, g, &node, 1, g2));
    TRY(cuGraphAddHostNode(&nodes[8], g, &node, 1, &host));
    nodes[9] = child;
    TRY(cuGraphAddMemcpyNode(&nodes[10], g, nodes + 8, 2, &back, c));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    TRY(cuGraphExecGetFlags(x, &flags));
    printf("%d\n", (int)flags);
    TRY(cuGraphExecGetFlags(x, NULL));
    TRY(cuGraphUpload(x, s));
    for (int i = 0; i < 3; i++)
        TRY(cuGraphLaunch(x, i & 1 ? u : s));
    TRY(cuStreamSynchronize(s));
    TRY(cuStreamSynchronize(u));
    for (int i = 0; i < 8; i++)
        printf(" %u", result[i]);
    printf(" %d %d\n", calls, (int)in_host_function);
    CUgraph inside;
    TRY(cuGraphChildGraphNodeGetGraph(child, &inside));
    printf("%d\n", inside != g2);
    TRY(cuGraphDestroy(inside));
    shape(inside);
    n = 16;
    TRY(cuGraphGetNodes(inside, nodes, &n));
    TRY(cuGraphNodeSetEnabled(x, nodes[2], 0));
    TRY(cuGraphNodeSetEnabled(x, child, 0));
    TRY(cuGraphNodeSetEnabled(x, node, 1));
    unsigned enabled = 5;
    TRY(cuGraphNodeGetEnabled(x, nodes[2], &enabled));
    printf("%u\n", enabled);
    run(x);
    printf("%u %u\n", result[0], result[1]);
    TRY(cuGraphLaunch(NULL, s));
    TRY(cuGraphLaunch(x, (CUstream)0x77770));
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
}

static void updates(void)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = p, .elementSize = 4, .value = 3, .width = 4, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = q,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult why;
    CUgraphNode clone[3];
    unsigned number = 10;
    CUdeviceptr address = p + 4;
    void *args[] = {&address, &number};
    CUDA_KERNEL_NODE_PARAMS k = {.func = scale,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddMemsetNode(&nodes[0], g, NULL, 0, &fill, c));
    nodes[1] = kernel(g, &nodes[0], 1, add, p, 7);
    TRY(cuGraphAddMemcpyNode(&nodes[2], g, &nodes[1], 1, &copy, c));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(q, 4);
    TRY(cuGraphExecKernelNodeSetParams_v2(x, nodes[1], &k));
    TRY(cuGraphExecKernelNodeSetParams_v2(x, nodes[0], &k));
    TRY(cuGraphExecKernelNodeSetParams_v2(x, nodes[1], NULL));
    fill.value = 5;
    TRY(cuGraphExecMemsetNodeSetParams(x, nodes[0], &fill, c));
    fill.height = 2;
    fill.pitch = 16;
    TRY(cuGraphExecMemsetNodeSetParams(x, nodes[0], &fill, c));
    copy.dstDevice = q + 16;
    TRY(cuGraphExecMemcpyNodeSetParams(x, nodes[2], &copy, c));
    copy.Height = 2;
    TRY(cuGraphExecMemcpyNodeSetParams(x, nodes[2], &copy, c));
    copy.Height = 1;
    run(x);
    show(q, 8);
    TRY(cuGraphKernelNodeGetParams_v2(nodes[1], &k));
    printf("%d %u\n", k.func == add, *(unsigned *)k.kernelParams[1]);
    CUDA_MEMCPY3D asked;
    TRY(cuGraphMemcpyNodeGetParams(nodes[2], &asked));
    printf("%d %zu\n", asked.dstDevice == q, asked.WidthInBytes);
    TRY(cuGraphMemcpyNodeGetParams(nodes[1], &asked));
    TRY(cuGraphMemsetNodeGetParams(nodes[0], &fill));
    printf("%u %zu\n", fill.value, fill.height);

    TRY(cuGraphClone(&g2, g));
    TRY(cuGraphClone(NULL, g));
    for (int i = 0; i < 3; i++)
        TRY(cuGraphNodeFindInClone(&clone[i], nodes[i], g2));
    TRY(cuGraphNodeFindInClone(&node, clone[0], g));
    fill.value = 1;
    TRY(cuGraphMemsetNodeSetParams(clone[0], &fill));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == NULL);
    run(x);
    show(q, 8);
    TRY(cuGraphExecUpdate(x, g2, &node, &why));
    printf("%d\n", (int)why);
    TRY(cuGraphExecUpdate_v2(x, g2, NULL));
    TRY(cuGraphExecUpdate_v2(x, NULL, &info));
    printf("%d\n", (int)info.result);
    fill.height = 2;
    fill.pitch = 16;
    TRY(cuGraphMemsetNodeSetParams(clone[0], &fill));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == clone[0]);
    fill.height = 1;
    TRY(cuGraphMemsetNodeSetParams(clone[0], &fill));
    CUkernelNodeAttrValue value = {.cooperative = 1};
    TRY(cuGraphKernelNodeSetAttribute(clone[1], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == clone[1]);
    TRY(cuGraphKernelNodeCopyAttributes(clone[1], nodes[1]));
    TRY(cuGraphKernelNodeGetAttribute(clone[1], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    printf("%d\n", value.cooperative);
    TRY(cuGraphKernelNodeGetAttribute(clone[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    TRY(cuGraphRemoveDependencies(g2, &clone[1], &clone[2], 1));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == clone[2]);
    TRY(cuGraphAddDependencies(g2, &clone[0], &clone[2], 1));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d %d\n", (int)info.result, info.errorNode == clone[2], info.errorFromNode == clone[0]);
    TRY(cuGraphDestroyNode(clone[2]));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == NULL);
    TRY(cuGraphAddEmptyNode(&clone[2], g2, &clone[1], 1));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == clone[2]);
    run(x);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
}

static void memory_nodes(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096}, asked;
    CUdeviceptr inner, outer, freed;
    CUgraphExec y;
    cuuint64_t used = 0, zero = 0, one = 1;
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddMemAllocNode(&node, g, NULL, 0, &alloc));
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 77};
    TRY(cuGraphAddMemAllocNode(&node, g, NULL, 0, &alloc));
    alloc.poolProps.location.id = 0;
    TRY(cuGraphAddMemAllocNode(&nodes[0], g, NULL, 0, &alloc));
    inner = alloc.dptr;
    TRY(cuGraphAddMemAllocNode(&nodes[1], g, NULL, 0, &alloc));
    outer = alloc.dptr;
    printf("%d %d\n", inner && outer, inner != outer);
    TRY(cuGraphMemAllocNodeGetParams(nodes[1], &asked));
    printf("%d %zu\n", asked.dptr == outer, asked.bytesize);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = inner, .elementSize = 4, .value = 3, .width = 4, .height = 1};
    TRY(cuGraphAddMemsetNode(&nodes[2], g, nodes, 2, &fill, c));
    nodes[3] = kernel(g, &nodes[2], 1, add, inner, 4);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = inner,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = outer,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    TRY(cuGraphAddMemcpyNode(&nodes[4], g, &nodes[3], 1, &copy, c));
    TRY(cuGraphAddMemFreeNode(&nodes[5], g, &nodes[4], 1, inner));
    TRY(cuGraphAddMemFreeNode(&node, g, &nodes[4], 1, inner));
    TRY(cuGraphMemFreeNodeGetParams(nodes[5], &freed));
    printf("%d\n", freed == inner);
    TRY(cuGraphDestroyNode(nodes[5]));
    TRY(cuGraphRemoveDependencies(g, &nodes[4], &nodes[5], 1));
    TRY(cuGraphClone(&g2, g));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    TRY(cuGraphInstantiateWithFlags(&y, g, 0));
    TRY(cuMemFree_v2(outer)); /* not allocated yet */
    run(x);
    show(outer, 4);
    TRY(cuGraphLaunch(x, s)); /* not freed yet */
    TRY(cuMemFreeAsync(inner, s));
    TRY(cuMemFreeAsync(outer, s));
    TRY(cuMemFreeAsync(outer, s));
    run(x);
    TRY(cuMemFree_v2(outer));
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    run(x);
    run(x);
    TRY(cuGraphCreate(&g2, 0));
    TRY(cuGraphAddMemFreeNode(&node, g2, NULL, 0, outer));
    TRY(cuGraphInstantiateWithFlags(&y, g2, 0));
    TRY(cuGraphLaunch(y, s));
    TRY(cuGraphLaunch(y, s));
    TRY(cuStreamSynchronize(s));
    TRY(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    printf("%d\n", used > 0);
    TRY(cuDeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)9, &used));
    TRY(cuDeviceGetGraphMemAttribute(44, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    TRY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    TRY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
    TRY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphExecDestroy(y));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
    TRY(cuDeviceGraphMemTrim(0));
    TRY(cuDeviceGraphMemTrim(9));
    TRY(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    printf("%d\n", (int)used);

    CUdeviceptr captured = 0;
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemAllocAsync(&captured, 256, s));
    TRY(cuMemsetD32Async(captured, 9, 4, s));
    TRY(cuMemcpyDtoDAsync_v2(p, captured, 16, s));
    TRY(cuMemFreeAsync(p, s));
    TRY(cuMemFreeAsync(captured, s));
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 4);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

static void memory_operations(void)
{
    CUstreamBatchMemOpParams ops[2] = {0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = c, .count = 2, .paramArray = ops}, asked;
    ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = p;
    ops[0].writeValue.value = 42;
    ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = p;
    ops[1].waitValue.value = 42;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddBatchMemOpNode(&node, g, NULL, 0, NULL));
    batch.count = 0;
    TRY(cuGraphAddBatchMemOpNode(&node, g, NULL, 0, &batch));
    batch.count = 2;
    TRY(cuGraphAddBatchMemOpNode(&node, g, NULL, 0, &batch));
    TRY(cuGraphBatchMemOpNodeGetParams(node, &asked));
    printf("%u %u\n", asked.count, asked.paramArray[0].writeValue.value);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 1);
    ops[0].writeValue.value = ops[1].waitValue.value = 43;
    TRY(cuGraphExecBatchMemOpNodeSetParams(x, node, &batch));
    batch.count = 1;
    TRY(cuGraphExecBatchMemOpNodeSetParams(x, node, &batch));
    TRY(cuGraphBatchMemOpNodeSetParams(node, &batch));
    run(x);
    show(p, 1);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamWriteValue32_v2(s, p, 77, 0));
    TRY(cuStreamWaitValue32_v2(s, p, 70, CU_STREAM_WAIT_VALUE_GEQ));
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 1);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

/* Branches of a graph run at the same time: the first waits for what the second writes. */
static void overlap(void)
{
    CUstreamBatchMemOpParams op = {0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = c, .count = 1, .paramArray = &op};
    TRY(cuMemsetD8_v2(p, 0, 16));
    TRY(cuGraphCreate(&g, 0));
    nodes[0] = kernel(g, NULL, 0, add, p + 4, 1);
    op.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = p;
    op.waitValue.value = 9;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    TRY(cuGraphAddBatchMemOpNode(&nodes[1], g, nodes, 1, &batch));
    op = (CUstreamBatchMemOpParams){.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};
    op.writeValue.address = p;
    op.writeValue.value = 9;
    TRY(cuGraphAddBatchMemOpNode(&nodes[2], g, nodes, 1, &batch));
    kernel(g, nodes + 1, 2, scale, p + 4, 5);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 2);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

static CUgraph *conditional(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphConditionalHandle h,
                            CUgraphConditionalNodeType type, unsigned size, CUgraphNode *out)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = h;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = c;
    TRY(cuGraphAddNode_v2(out, graph, after, NULL, count, &params));
    return params.conditional.phGraph_out;
}

static void conditional_nodes(void)
{
    CUgraphConditionalHandle h = 0, h2 = 0;
    CUgraphNode while_node, if_node, switch_node;
    unsigned start[4] = {5, 0, 2, 0}, result[4] = {0};
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = start,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .WidthInBytes = sizeof start,
                        .Height = 1,
                        .Depth = 1};
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = result,
                          .WidthInBytes = sizeof result,
                          .Height = 1,
                          .Depth = 1};
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphConditionalHandleCreate(NULL, g, c, 0, 0));
    TRY(cuGraphConditionalHandleCreate(&h, NULL, c, 0, 0));
    TRY(cuGraphConditionalHandleCreate(&h, g, c, 0, 8));
    TRY(cuGraphConditionalHandleCreate(&h, g, c, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    TRY(cuGraphInstantiateWithParams(&x, g, &how)); /* without its node */
    printf("%d\n", (int)how.result_out);
    /* while (p[0]) { p[1] += 10; p[0] -= 1; if (p[2] == 0) p[3] += 1 else p[3] += 100; p[2] -= 1 … } */
    TRY(cuGraphAddMemcpyNode(&nodes[0], g, NULL, 0, &in, c));
    conditional(g, nodes, 1, h + 1, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 2, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_IF, 3, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_SWITCH, 0, &node);
    conditional(g, nodes, 1, h, (CUgraphConditionalNodeType)7, 1, &node);
    CUgraph *loop = conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 1, &while_node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 1, &node); /* in use */
    CUgraph body = loop[0];
    CUDA_HOST_NODE_PARAMS host = {called, (void *)1};
    TRY(cuGraphAddHostNode(&node, body, NULL, 0, &host));
    TRY(cuGraphDestroy(body));
    TRY(cuGraphInstantiateWithFlags(&x, body, 0));
    TRY(cuGraphConditionalHandleCreate(&h2, g, c, 0, 0));
    nodes[1] = kernel(body, NULL, 0, add, p + 4, 10);
    nodes[2] = kernel(body, NULL, 0, add, p, (unsigned)-1);
    nodes[3] = decision(body, &nodes[2], 1, h, p);
    nodes[4] = decision(body, &nodes[1], 1, h2, p + 8);
    CUgraph *both = conditional(body, &nodes[4], 1, h2, CU_GRAPH_COND_TYPE_IF, 2, &if_node);
    kernel(both[0], NULL, 0, add, p + 8, (unsigned)-1);
    kernel(both[1], NULL, 0, add, p + 12, 1);
    TRY(cuGraphAddMemcpyNode(&node, g, &while_node, 1, &back, c));
    shape(g);
    shape(body);
    TRY(cuGraphClone(&g2, g));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    start[0] = 20;
    start[2] = 7;
    TRY(cuGraphLaunch(x, s));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    unsigned more = 3;
    CUdeviceptr address = p + 4;
    void *args[] = {&address, &more};
    CUDA_KERNEL_NODE_PARAMS k = {.func = add,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    TRY(cuGraphExecKernelNodeSetParams_v2(x, nodes[1], &k));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));

    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphConditionalHandleCreate(&h, g, NULL, 2, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraph *cases = conditional(g, NULL, 0, h, CU_GRAPH_COND_TYPE_SWITCH, 3, &switch_node);
    for (unsigned i = 0; i < 3; i++)
        kernel(cases[i], NULL, 0, add, p, 1u << (8 * i));
    TRY(cuStreamBeginCaptureToGraph(s, cases[1], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD32Async(p + 4, 6, 1, s));
    TRY(cuStreamEndCapture(s, NULL));
    TRY(cuMemsetD8_v2(p, 0, 16));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 2);

    /* The same with another condition, which a kernel sets as well. */
    CUgraphExecUpdateResultInfo info;
    TRY(cuGraphCreate(&g2, 0));
    TRY(cuGraphConditionalHandleCreate(&h2, g2, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    cases = conditional(g2, NULL, 0, h2, CU_GRAPH_COND_TYPE_SWITCH, 3, &switch_node);
    for (unsigned i = 0; i < 3; i++)
        kernel(cases[i], NULL, 0, add, p, 2u << (8 * i));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == NULL);
    TRY(cuStreamBeginCaptureToGraph(s, cases[1], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD32Async(p + 4, 6, 1, s));
    TRY(cuStreamEndCapture(s, NULL));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    TRY(cuGraphDestroy(g2));
    run(x);
    show(p, 2);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

static void joins(void)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphNode *last;
    const CUgraphEdgeData *data;
    TRY(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)9));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemsetD32Async(p, 1, 4, s));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 2, 1, s));
    TRY(cuMemsetD32Async(p + 4, 3, 1, t));
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamWaitEvent(s, e2, 0));
    TRY(cuLaunchHostFunc(s, called, (void *)1));
    TRY(cuStreamIsCapturing(t, &status));
    printf("%d\n", (int)status);
    TRY(cuStreamGetCaptureInfo_v3(s, &status, &id, &g2, &last, &data, &n));
    printf("%d %d %zu\n", (int)status, id != 0, n);
    TRY(cuStreamGetCaptureInfo_v3(s, &status, &id, &g2, NULL, &data, &n));
    TRY(cuStreamGetCaptureInfo_v2(s, &status, NULL, NULL, NULL, NULL));
    TRY(cuStreamGetCaptureInfo_v2(s, NULL, NULL, NULL, NULL, NULL));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamIsCapturing(t, &status));
    printf("%d\n", (int)status);
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuMemsetD32Async(p, 1, 4, s));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p + 4, 3, 1, t));
    TRY(cuMemsetD32Async(p, 2, 1, s));
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamWaitEvent(s, e2, 0));
    TRY(cuMemsetD32Async(p + 8, 4, 1, s));
    TRY(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
    TRY(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 4);
    TRY(cuGraphExecDestroy(x));

    /* The application's own dependencies. */
    n = 16;
    TRY(cuGraphGetNodes(g, nodes, &n));
    TRY(cuStreamBeginCaptureToGraph(s, g, nodes, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuGraphDestroyNode(nodes[1]));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    TRY(cuMemsetD32Async(p + 12, 5, 1, s));
    TRY(cuStreamUpdateCaptureDependencies(s, nodes, 2, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    TRY(cuStreamUpdateCaptureDependencies(s, nodes, 2, 7));
    TRY(cuStreamUpdateCaptureDependencies(t, nodes, 2, 0));
    CUgraphEdgeData odd = {.from_port = 1, .type = 1};
    TRY(cuStreamUpdateCaptureDependencies_v2(s, nodes, &odd, 1, 0));
    TRY(cuMemsetD32Async(p + 16, 6, 1, s));
    TRY(cuStreamEndCapture(s, &g2));
    printf("%d\n", g == g2);
    shape(g);
    TRY(cuGraphDestroy(g));
}

static void *end_elsewhere(void *result)
{
    CUgraph none;
    *(CUresult *)result = cuCtxSetCurrent(c);
    if (*(CUresult *)result == CUDA_SUCCESS)
        *(CUresult *)result = cuStreamEndCapture(s, &none);
    return NULL;
}

static void *allocate_elsewhere(void *result)
{
    CUdeviceptr more;
    *(CUresult *)result = cuCtxSetCurrent(c);
    if (*(CUresult *)result == CUDA_SUCCESS)
        *(CUresult *)result = cuMemAlloc_v2(&more, 16);
    return NULL;
}

static void elsewhere(void *(*what)(void *))
{
    pthread_t thread;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (pthread_create(&thread, NULL, what, &result) == 0)
        pthread_join(thread, NULL);
    printf("elsewhere: %d\n", (int)result);
}

static void invalid_captures(void)
{
    CUdeviceptr more = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, odd = (CUstreamCaptureMode)5;
    void *host;
    for (int global = 0; global < 3; global++) {
        TRY(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)global));
        elsewhere(allocate_elsewhere);
        TRY(cuMemAllocHost_v2(&host, 16));
        TRY(cuMemAlloc_v2(&more, 16));
        elsewhere(end_elsewhere);
        TRY(cuStreamEndCapture(s, &g));
    }
    TRY(cuEventRecord(e2, t));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventSynchronize(e2));
    TRY(cuEventQuery(e2));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuThreadExchangeStreamCaptureMode(NULL));
    TRY(cuThreadExchangeStreamCaptureMode(&odd));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    TRY(cuMemAlloc_v2(&more, 16));
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    printf("%d\n", (int)mode);
    TRY(cuMemFree_v2(more));
    TRY(cuMemsetD32Async(p, 1, 1, s));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuMemFree_v2(more));

    TRY(cuStreamBeginCapture_v2(u, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD8_v2(p, 0, 4)); /* the legacy stream would wait for it */
    TRY(cuStreamEndCapture(u, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamSynchronize(s));
    TRY(cuStreamQuery(s));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 1, 1, t));
    TRY(cuStreamEndCapture(t, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuMemsetD32Async(p, 1, 1, t));
    TRY(cuStreamEndCapture(s, &g)); /* not joined */
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuEventRecord(e, s));
    TRY(cuStreamWaitEvent(t, e, 0));
    TRY(cuStreamEndCapture(t, &g));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuEventRecord(e, t));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuStreamWaitEvent(s, e, 0));
    TRY(cuStreamEndCapture(s, &g));
    TRY(cuEventSynchronize(e));
}

/* Launches inside a capture, and a programmatic launch. */
static void captured_launches(void)
{
    unsigned number = 2;
    void *args[] = {&p, &number};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, s, &early, 1};
    CUdeviceptr none = 0;
    TRY(cuMemsetD8_v2(p, 0, 16));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    number = 3;
    TRY(cuLaunchKernelEx(&config, scale, args, NULL));
    TRY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, s, args, NULL));
    TRY(cuMemcpyDtoDAsync_v2(none, p, 0, s));
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 1);
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphUpload(x, s));
    TRY(cuStreamEndCapture(s, &g2));
    TRY(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphLaunch(x, s));
    TRY(cuStreamEndCapture(s, &g2));
    TRY(cuGraphExecDestroy(x));
    shape(g2);
    TRY(cuGraphInstantiateWithFlags(&x, g2, 0));
    run(x);
    show(p, 1);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
}

static void arrays(void)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 4, .Height = 4, .Depth = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    unsigned in[32], out[32] = {0};
    for (unsigned i = 0; i < 32; i++)
        in[i] = i * i;
    TRY(cuArray3DCreate_v2(&array, &d));
    CUDA_MEMCPY3D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 16,
                        .srcHeight = 4,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = 16,
                        .Height = 4,
                        .Depth = 2};
    CUDA_MEMCPY3D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 4,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 16,
                          .dstHeight = 4,
                          .WidthInBytes = 8,
                          .Height = 4,
                          .Depth = 2};
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddMemcpyNode(&nodes[0], g, NULL, 0, &to, c));
    TRY(cuGraphAddMemcpyNode(&nodes[1], g, nodes, 1, &from, c));
    to.dstArray = NULL;
    TRY(cuGraphAddMemcpyNode(&node, g, NULL, 0, &to, c));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    for (int i = 0; i < 32; i++)
        printf(" %u", out[i]);
    printf("\n");
    TRY(cuGraphExecMemcpyNodeSetParams(x, nodes[1], &from, c));
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuArrayDestroy(array));
}

static int destroyed;
static CUresult in_destructor;
static void CUDA_CB destroy(void *user)
{
    CUdeviceptr none;
    in_destructor = cuMemAlloc_v2(&none, 4);
    __atomic_add_fetch(&destroyed, (int)(intptr_t)user, __ATOMIC_RELEASE);
}

/* Destructors run on a thread of their own. */
static void wait_destroyed(int count)
{
    for (int i = 0; i < 2000 && __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) < count; i++)
        usleep(1000);
    printf("destroyed %d\n", __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE));
}

static void user_objects(void)
{
    CUuserObject object;
    TRY(cuUserObjectCreate(&object, (void *)1, destroy, 1, 0));
    TRY(cuUserObjectCreate(&object, (void *)1, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    TRY(cuUserObjectCreate(&object, (void *)1, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    TRY(cuUserObjectCreate(&object, (void *)1, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    TRY(cuUserObjectRetain(object, 0));
    TRY(cuUserObjectRetain(object, 2));
    TRY(cuUserObjectRelease(object, 2));
    wait_destroyed(0);
    TRY(cuUserObjectRelease(object, 1));
    wait_destroyed(1);
    printf("%d\n", (int)in_destructor);
    TRY(cuUserObjectCreate(&object, (void *)10, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphRetainUserObject(g, object, 0, 0));
    TRY(cuGraphRetainUserObject(NULL, object, 1, 0));
    TRY(cuGraphRetainUserObject(g, object, 1, 0));
    TRY(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    TRY(cuUserObjectRelease(object, 1));
    TRY(cuGraphReleaseUserObject(g, object, 3));
    TRY(cuGraphReleaseUserObject(g, object, 1));
    kernel(g, NULL, 0, add, p, 1);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    TRY(cuGraphClone(&g2, g));
    TRY(cuGraphDestroy(g));
    TRY(cuGraphDestroy(g2));
    wait_destroyed(1);
    TRY(cuGraphLaunch(x, s));
    TRY(cuGraphExecDestroy(x));
    wait_destroyed(11);
}

static void pictures(void)
{
    int file = mkstemp(where);
    char line[400];
    int lines = 0, clusters = 0, arrows = 0;
    close(file);
    TRY(cuGraphCreate(&g, 0));
    nodes[0] = kernel(g, NULL, 0, add, p, 1);
    nodes[1] = kernel(g, nodes, 1, scale, p, 1);
    TRY(cuGraphDebugDotPrint(g, NULL, 0));
    TRY(cuGraphDebugDotPrint(g, "/nowhere/at/all", 0));
    TRY(cuGraphDebugDotPrint(g, where, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
    FILE *dot = fopen(where, "re");
    while (dot && fgets(line, sizeof line, dot)) {
        lines++;
        clusters += strstr(line, "subgraph") != NULL;
        arrows += strstr(line, "->") != NULL;
    }
    if (dot)
        fclose(dot);
    unlink(where);
    printf("%d %d %d\n", lines, clusters, arrows);
    TRY(cuGraphDestroy(g));
}

/* The functions that a name and a version mean. */
static void versions(void)
{
    static const struct {
        const char *name;
        int version;
    } asked[] = {
        {"cuGraphInstantiate", 10000},
        {"cuGraphInstantiate", 11000},
        {"cuGraphInstantiate", 12000},
        {"cuGraphExecUpdate", 10020},
        {"cuGraphExecUpdate", 12000},
        {"cuGraphAddKernelNode", 11000},
        {"cuGraphAddKernelNode", 12000},
        {"cuStreamGetCaptureInfo", 10010},
        {"cuStreamGetCaptureInfo", 11030},
        {"cuStreamGetCaptureInfo", 12030},
        {"cuGraphKernelNodeGetParams", 11000},
        {"cuGraphAddNode", 12020},
        {"cuGraphAddNode", 12030},
        {"cuGraphConditionalHandleCreate", 12020},
        {"cuGraphConditionalHandleCreate", 12030},
    };
    void *before = NULL;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *f = NULL;
        CUdriverProcAddressQueryResult status = 0;
        CUresult result = cuGetProcAddress_v2(asked[i].name, &f, asked[i].version, 0, &status);
        printf("%s %d: %d %d %d %d\n", asked[i].name, asked[i].version, (int)result, (int)status, f != NULL,
               f != before);
        before = f;
    }
    CUresult (*instantiate)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t) = NULL;
    CUdriverProcAddressQueryResult status = 0;
    TRY(cuGetProcAddress_v2("cuGraphInstantiate", (void **)&instantiate, 11000, 0, &status));
    char log[20] = "not written";
    TRY(cuGraphCreate(&g, 0));
    kernel(g, NULL, 0, add, p, 1);
    TRY(instantiate(&x, g, &node, log, sizeof log));
    printf("%d %s\n", node == NULL, log);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    begin();
    graphs_and_wrong_nodes();
    edges();
    branches();
    updates();
    memory_nodes();
    memory_operations();
    overlap();
    conditional_nodes();
    joins();
    invalid_captures();
    captured_launches();
    arrays();
    user_objects();
    pictures();
    versions();
    TRY(cuCtxSynchronize());
    return 0;
}
