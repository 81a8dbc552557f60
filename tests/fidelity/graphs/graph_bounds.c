/*
 * graph_bounds.c - a transcript of what NVIDIA's driver refuses in graphs, and with which error: copies and fills that reach beyond their
 * memory, when the node gets them and not when the graph runs, and changes to graphs that allocate.
 */
#include "graph_parts.h"

#include <stdlib.h>

/* Ends the program where a call is not refused as NVIDIA's driver refuses it. */
#define REFUSED(call, expected)                                                                              \
    do {                                                                                                     \
        const CUresult result = (call);                                                                      \
        printf("%s: %d\n", #call, (int)result);                                                              \
        if (result != (expected))                                                                            \
            exit(1);                                                                                         \
    } while (0)

/* Two mappings side by side, which one fill may reach over. */
static void over_mappings(void)
{
    const size_t part = 2 << 20;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle halves[2];
    CUdeviceptr both;
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 4, .value = 7, .height = 1};
    TRY(cuMemAddressReserve(&both, 2 * part, 0, 0, 0));
    for (unsigned i = 0; i < 2; i++) {
        TRY(cuMemCreate(&halves[i], part, &prop, 0));
        TRY(cuMemMap(both + i * part, part, 0, halves[i], 0));
    }
    TRY(cuMemSetAccess(both, 2 * part, &access, 1));
    fill.dst = both + part - 8;
    fill.width = 4;
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c));
    fill.width = part / 4 + 3;
    REFUSED(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c), CUDA_ERROR_INVALID_VALUE);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(fill.dst, 4);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
    TRY(cuMemUnmap(both, 2 * part));
    TRY(cuMemAddressFree(both, 2 * part));
    for (unsigned i = 0; i < 2; i++)
        TRY(cuMemRelease(halves[i]));
}

static void beyond_the_memory(void)
{
    static char host[8192];
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = p, .elementSize = 4, .width = 1024, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .WidthInBytes = 4096,
                          .Height = 1,
                          .Depth = 1};
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphAddMemsetNode(&nodes[0], g, NULL, 0, &fill, c));
    TRY(cuGraphAddMemcpyNode(&nodes[1], g, NULL, 0, &copy, c));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    fill.width = 1025;
    REFUSED(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuGraphMemsetNodeSetParams(nodes[0], &fill), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuGraphExecMemsetNodeSetParams(x, nodes[0], &fill, c), CUDA_ERROR_INVALID_VALUE);
    fill.width = 4, fill.height = 9, fill.pitch = 512; /* eight rows fit, the ninth begins at the end */
    REFUSED(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c), CUDA_ERROR_INVALID_VALUE);
    fill.height = 8;
    TRY(cuGraphAddMemsetNode(&node, g, NULL, 0, &fill, c));
    copy.WidthInBytes = 4097;
    REFUSED(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c), CUDA_ERROR_INVALID_VALUE);
    REFUSED(cuGraphMemcpyNodeSetParams(nodes[1], &copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    REFUSED(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c), CUDA_ERROR_INVALID_VALUE);
    copy.WidthInBytes = 4, copy.Height = 2,
    copy.Depth = 3; /* slices of three rows of 512: the last byte that is read is at 3588 */
    copy.srcPitch = 512, copy.srcHeight = 3, copy.dstPitch = 4;
    TRY(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c));
    copy.srcY = 1;
    REFUSED(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c), CUDA_ERROR_INVALID_VALUE);
    copy.srcY = 0, copy.srcXInBytes = 508;
    TRY(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c));
    copy.srcXInBytes = 0, copy.srcZ = 1;
    REFUSED(cuGraphAddMemcpyNode(&node, g, NULL, 0, &copy, c), CUDA_ERROR_INVALID_VALUE);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

/* Memory of a graph is that of one executable graph, and its place in the graph is fixed. */
static void memory_nodes(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                                        .bytesize = 4096};
    CUgraphExec second;
    const CUmemAccessDesc access[2] = {{alloc.poolProps.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                       {alloc.poolProps.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    TRY(cuGraphCreate(&g, 0));
    alloc.accessDescs = access;
    alloc.accessDescCount = 2; /* there is one device */
    REFUSED(cuGraphAddMemAllocNode(&node, g, NULL, 0, &alloc), CUDA_ERROR_INVALID_VALUE);
    alloc.accessDescCount = 1;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    REFUSED(cuGraphAddMemAllocNode(&node, g, NULL, 0, &alloc), CUDA_ERROR_INVALID_VALUE);
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    TRY(cuGraphAddMemAllocNode(&nodes[0], g, NULL, 0, &alloc));
    TRY(cuGraphAddEmptyNode(&nodes[1], g, nodes, 1));
    TRY(cuGraphAddMemFreeNode(&nodes[2], g, &nodes[1], 1, alloc.dptr));
    REFUSED(cuGraphRemoveDependencies_v2(g, &nodes[0], &nodes[1], NULL, 1), CUDA_ERROR_NOT_SUPPORTED);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    REFUSED(cuGraphInstantiateWithFlags(&second, g, 0), CUDA_ERROR_NOT_SUPPORTED);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

int main(void)
{
    return transcript((void (*const[])(void)){beyond_the_memory, over_mappings, memory_nodes, NULL});
}
