/*
 * graphs.c - a transcript of right and wrong use of graphs: each call with the result it gave, what graphs computed, and how
 * they look. Memory, conditions and captures have transcripts of their own (graph_parts.h).
 */
#include "graph_parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char where[] = "/tmp/graph-XXXXXX";

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
    CUgraphNode from[4], to[4];
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
    CUDA_MEMCPY3D back = copy_to_host(result, p, sizeof result);
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
    CUDA_MEMCPY3D copy = copy_on_device(q, p, 16);
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult why;
    CUgraphNode clone[3];
    unsigned number = 10;
    CUdeviceptr address = p + 4;
    void *args[] = {&address, &number};
    CUDA_KERNEL_NODE_PARAMS k = one_block(scale, 1, args);
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
    CUkernelNodeAttrValue value = {.cooperative = 2}, window = {.accessPolicyWindow.hitRatio = 1.5f};
    TRY(cuGraphKernelNodeSetAttribute(clone[1], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    TRY(cuGraphKernelNodeGetAttribute(clone[1], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    printf("%d\n", value.cooperative);
    TRY(cuGraphKernelNodeSetAttribute(clone[1], CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &window));
    value.cooperative = 1;
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
    return transcript((void (*const[])(void)){graphs_and_wrong_nodes, edges, branches, updates, arrays,
                                              pictures, versions, NULL});
}
