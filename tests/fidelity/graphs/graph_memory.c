/*
 * graph_memory.c - a transcript of memory and graphs: allocations of graphs, operations on memory that wait for each other,
 * and objects of the user that live as long as a graph does.
 */
#include "graph_parts.h"

#include <stdint.h>
#include <unistd.h>

static int destroyed;
static CUresult in_destructor;

static void memory_nodes(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 4096}, asked = {.bytesize = 0};
    CUdeviceptr inner = 0, outer, freed = 0;
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
    CUDA_MEMCPY3D copy = copy_on_device(outer, inner, 16);
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
    run_captured(4);
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
    run_captured(1);
    TRY(cuGraphDestroy(g));
}

/* Branches of a graph run at the same time: the first waits for what the second writes. */
static void overlap(void)
{
    CUstreamBatchMemOpParams op = {0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {.ctx = c, .count = 1, .paramArray = &op};
    TRY(cuMemsetD8Async(p, 0, 16, s));
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

int main(void)
{
    return transcript((void (*const[])(void)){memory_nodes, memory_operations, overlap, user_objects, NULL});
}
