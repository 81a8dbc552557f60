/* Graphs: structure, launches, changes of executable graphs; stream capture and what invalidates it. */
#include "tests/node_params.h"
#include "tests/softgpu/driver/support.h"

#include <pthread.h>
#include <time.h>

static int order[64];
static _Atomic int n_order;

static void CUDA_CB note(void *user)
{
    order[n_order++] = (int)(intptr_t)user;
}

static CUgraphNode host_node(CUgraph graph, const CUgraphNode *dependencies, size_t n, int what)
{
    CUDA_HOST_NODE_PARAMS params = {note, (void *)(intptr_t)what};
    CUgraphNode node;
    OK(cuGraphAddHostNode(&node, graph, dependencies, n, &params));
    return node;
}

static void launch_and_wait(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

Test(graph, edges_order_the_nodes_and_can_be_asked_for)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[8], to[8];
    size_t n = 8;
    start_device();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode last = host_node(graph, NULL, 0, 4); /* made first, runs last */
    CUgraphNode first = host_node(graph, NULL, 0, 1);
    CUgraphNode left = host_node(graph, &first, 1, 2);
    CUgraphNode right = host_node(graph, &first, 1, 2);
    CUgraphNode from[] = {left, right}, both[] = {last, last};
    OK(cuGraphAddDependencies(graph, from, both, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, from, both, 1)); /* is there already */
    OK(cuGraphGetEdges(graph, nodes, to, &n));
    cr_assert_eq(n, 4);
    cr_assert(nodes[0] == left && to[0] == last && nodes[2] == first && to[2] == left && nodes[4] == NULL);
    OK(cuGraphGetRootNodes(graph, NULL, &n));
    cr_assert_eq(n, 1);
    n = 1;
    OK(cuGraphNodeGetDependentNodes(first, nodes, &n));
    cr_assert(n == 1 && nodes[0] == left);
    OK(cuGraphNodeGetDependencies(last, NULL, &n));
    cr_assert_eq(n, 2);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroyNode(right)); /* the executable graph is a copy */
    launch_and_wait(exec);
    cr_assert_eq(n_order, 4);
    cr_assert(order[0] == 1 && order[1] == 2 && order[2] == 2 && order[3] == 4);
    OK(cuGraphGetEdges(graph, NULL, NULL, &n));
    cr_assert_eq(n, 2);
    OK(cuGraphExecDestroy(exec));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, CU_STREAM_PER_THREAD));

    OK(cuGraphAddDependencies(graph, &last, &first, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0)); /* a cycle */
    OK(cuGraphDestroy(graph));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(first));
}

static uint32_t source[4];
static void CUDA_CB write_source(void *user)
{
    for (int i = 0; i < 4; i++)
        source[i] = (uint32_t)(uintptr_t)user + (uint32_t)i;
}

Test(graph, copies_read_and_write_host_memory_when_they_run)
{
    CUgraph graph, clone;
    CUgraphExec exec;
    CUgraphNode host, in, kernel, out, found;
    CUdeviceptr d;
    uint32_t result[4] = {0}, n = 4, x = 100;
    start_device();
    OK(cuMemAlloc_v2(&d, 16));
    OK(cuGraphCreate(&graph, 0));
    CUDA_HOST_NODE_PARAMS writes = {write_source, (void *)7};
    OK(cuGraphAddHostNode(&host, graph, NULL, 0, &writes));
    CUDA_MEMCPY3D copy = copy_to_device(d, source, 16);
    OK(cuGraphAddMemcpyNode(&in, graph, &host, 1, &copy, NULL));
    void *params[] = {&d, &n, &x};
    CUDA_KERNEL_NODE_PARAMS k = one_block(get_function("add"), 4, params);
    OK(cuGraphAddKernelNode_v2(&kernel, graph, &in, 1, &k));
    CUDA_MEMCPY3D back = copy_to_host(result, d, 16);
    OK(cuGraphAddMemcpyNode(&out, graph, &kernel, 1, &back, NULL));
    x = 0; /* parameters were taken along */
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    volatile uint32_t *held = hold_stream(CU_STREAM_PER_THREAD);
    OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    cr_assert_eq(source[0], 0); /* the graph waits its turn, its launch did not */
    release_stream(held);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    cr_assert_eq(result[3], 7 + 3 + 100);

    x = 1000;
    OK(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &k));
    launch_and_wait(exec);
    cr_assert_eq(result[0], 1007);
    OK(cuGraphNodeSetEnabled(exec, kernel, 0));
    launch_and_wait(exec);
    cr_assert_eq(result[0], 7);
    OK(cuGraphNodeSetEnabled(exec, kernel, 1));

    CUDA_KERNEL_NODE_PARAMS asked;
    OK(cuGraphKernelNodeGetParams_v2(kernel, &asked));
    cr_assert(asked.func == k.func && asked.blockDimX == 4 && *(uint32_t *)asked.kernelParams[2] == 100);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, kernel, clone));
    cr_assert_neq(found, kernel);
    x = 3;
    OK(cuGraphKernelNodeSetParams_v2(found, &k));
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate_v2(exec, clone, &info));
    launch_and_wait(exec);
    cr_assert_eq(result[0], 10);
    OK(cuGraphDestroyNode(found));
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, clone, &info));
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

Test(graph, launches_of_one_graph_follow_each_other_in_any_streams)
{
    CUgraph graph;
    CUgraphExec exec;
    CUstream a, b;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    host_node(graph, NULL, 0, 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    volatile uint32_t *held = hold_stream(a);
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphLaunch(exec, b));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    cr_assert_eq(n_order, 0);
    release_stream(held);
    OK(cuStreamSynchronize(b));
    cr_assert_eq(n_order, 2);
}

Test(graph, what_is_not_there_says_so)
{
    CUgraph graph;
    CUgraphNode node;
    start_device();
    OK(cuGraphCreate(&graph, 0));
    CUgraphExec exec;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED,
           cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
}

static CUgraphNode kernel_node(CUgraph graph, const CUgraphNode *dependencies, size_t n, const char *name,
                               void **params)
{
    CUDA_KERNEL_NODE_PARAMS k = one_block(get_function(name), 1, params);
    CUgraphNode node;
    OK(cuGraphAddKernelNode_v2(&node, graph, dependencies, n, &k));
    return node;
}

/* A ladder of branches: each waits for what the next one sets, and the last is set by one more. */
Test(graph, attributes_of_kernels_are_checked)
{
    CUgraph graph;
    CUdeviceptr d;
    uint32_t n = 1, x = 1;
    CUkernelNodeAttrValue value = {.cooperative = 2}, found;
    int most;
    start_device();
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuGraphCreate(&graph, 0));
    const CUgraphNode node = kernel_node(graph, NULL, 0, "add", (void *[]){&d, &n, &x});
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &found));
    cr_assert_eq(found.cooperative, 2);
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0));
    const CUaccessPolicyWindow good = {.base_ptr = (void *)(uintptr_t)d,
                                       .num_bytes = most < 4 ? (size_t)most : 4,
                                       .hitRatio = 0.5f,
                                       .hitProp = CU_ACCESS_PROPERTY_PERSISTING,
                                       .missProp = CU_ACCESS_PROPERTY_STREAMING};
    const CUlaunchAttributeID window = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    value = (CUkernelNodeAttrValue){.accessPolicyWindow = good};
    OK(cuGraphKernelNodeSetAttribute(node, window, &value));
    value.accessPolicyWindow.num_bytes = (size_t)most + 1;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(node, window, &value));
    value.accessPolicyWindow = good;
    value.accessPolicyWindow.hitRatio = -0.5f;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(node, window, &value));
    value.accessPolicyWindow.hitRatio = 1.5f;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(node, window, &value));
    value.accessPolicyWindow = good;
    value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeSetAttribute(node, window, &value));
    OK(cuGraphKernelNodeGetAttribute(node, window, &found));
    cr_assert_float_eq(found.accessPolicyWindow.hitRatio, 0.5f, 1e-6);
    OK(cuGraphDestroy(graph));
}

Test(graph, branches_run_at_the_same_time, .timeout = 60)
{
    enum { BRANCHES = 6 };
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode root, ends[BRANCHES];
    CUdeviceptr flags;
    uint32_t one = 1;
    start_device();
    OK(cuMemAlloc_v2(&flags, 4 * (BRANCHES + 1)));
    OK(cuGraphCreate(&graph, 0));
    root = host_node(graph, NULL, 0, 1);
    for (size_t i = 0; i < BRANCHES; i++) {
        CUdeviceptr mine = flags + 4 * i, next = flags + 4 * (i + 1);
        void *waits[] = {&next}, *sets[] = {&mine, &one};
        CUgraphNode first = root;
        if (i + 1 < BRANCHES)
            first = kernel_node(graph, &root, 1, "wait_flag", waits);
        ends[i] = kernel_node(graph, &first, 1, "set_flag", sets);
    }
    host_node(graph, ends, BRANCHES, 2);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        OK(cuMemsetD8_v2(flags, 0, 4 * (BRANCHES + 1)));
        launch_and_wait(exec);
    }
    cr_assert(n_order == 6 && order[4] == 1 && order[5] == 2);
}

Test(graph, what_runs_is_not_changed_by_what_comes_after, .timeout = 60)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr d;
    uint32_t n = 1, x = 5, result = 0;
    start_device();
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuMemsetD8_v2(d, 0, 4));
    OK(cuGraphCreate(&graph, 0));
    void *params[] = {&d, &n, &x};
    CUgraphNode node = kernel_node(graph, NULL, 0, "add", params);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroyNode(node));
    OK(cuGraphDestroy(graph));
    volatile uint32_t *held = hold_stream(CU_STREAM_PER_THREAD);
    OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    OK(cuGraphExecDestroy(exec));
    release_stream(held);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(&result, d, 4));
    cr_assert_eq(result, 5);
}

static CUgraph *conditional(CUgraph graph, CUgraphConditionalNodeType type, unsigned size, unsigned initial)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode node;
    OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, NULL, initial,
                                      CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.type = type;
    params.conditional.size = size;
    OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    return params.conditional.phGraph_out;
}

Test(graph, a_loop_ends_when_the_context_fails, .timeout = 60)
{
    CUgraph graph;
    CUgraphExec exec;
    start_device();
    OK(cuGraphCreate(&graph, 0));
    CUgraph *body = conditional(graph, CU_GRAPH_COND_TYPE_WHILE, 1, 1); /* for ever */
    kernel_node(body[0], NULL, 0, "fault", NULL);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    const CUresult launched = cuGraphLaunch(exec, CU_STREAM_PER_THREAD);
    cr_assert(launched == CUDA_SUCCESS ||
              launched == CUDA_ERROR_ILLEGAL_ADDRESS); /* it may have failed by then */
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

Test(graph, a_body_belongs_to_its_node_and_waits_its_turn, .timeout = 60)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr d;
    uint32_t result[2];
    start_device();
    OK(cuMemAlloc_v2(&d, 8));
    OK(cuMemsetD8_v2(d, 0, 8));
    OK(cuGraphCreate(&graph, 0));
    CUgraph *bodies = conditional(graph, CU_GRAPH_COND_TYPE_IF, 2, 0);
    for (unsigned i = 0; i < 2; i++) {
        CUgraphNode node;
        CUDA_MEMSET_NODE_PARAMS fill = {
            .dst = d + 4 * i, .value = i + 1, .elementSize = 4, .width = 1, .height = 1};
        OK(cuGraphAddMemsetNode(&node, bodies[i], NULL, 0, &fill, NULL));
    }
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(bodies[0]));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); /* the executable graph has bodies of its own */
    volatile uint32_t *held = hold_stream(CU_STREAM_PER_THREAD);
    OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    OK(cuGraphExecDestroy(exec));
    release_stream(held);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(result, d, 8));
    cr_assert(result[0] == 0 && result[1] == 2); /* the condition is 0 */
}

Test(graph, memory_of_graphs_goes_with_the_last_that_needs_it)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    size_t before, now, total;
    cuuint64_t reserved;
    start_device();
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = 1 << 20};
    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    launch_and_wait(exec);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemsetD8_v2(alloc.dptr, 1, 1 << 20)); /* allocated until it is freed */
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert_eq(reserved, 1 << 20);
    OK(cuMemFree_v2(alloc.dptr));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert_eq(reserved, 0);
    OK(cuMemGetInfo_v2(&now, &total));
    cr_assert_eq(now, before);
}

static _Atomic int destroyed;
static void CUDA_CB destroy_object(void *user)
{
    destroyed += (int)(intptr_t)user;
}

Test(graph, user_objects_live_until_the_last_launch_has_ended, .timeout = 60)
{
    CUgraph graph;
    CUgraphExec exec;
    CUuserObject object;
    start_device();
    OK(cuGraphCreate(&graph, 0));
    OK(cuUserObjectCreate(&object, (void *)1, destroy_object, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    host_node(graph, NULL, 0, 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    volatile uint32_t *held = hold_stream(CU_STREAM_PER_THREAD);
    OK(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    OK(cuGraphExecDestroy(exec));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    cr_assert_eq(destroyed, 0);
    release_stream(held);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 5000 && !destroyed; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert_eq(destroyed, 1);
}

/* --- capture --- */

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

Test(capture, forks_and_joins_become_edges)
{
    CUstream a, b;
    CUevent fork, join;
    CUgraph graph, known;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    const CUgraphNode *last;
    size_t n = 0;
    start_device();
    OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, 0));
    OK(cuEventCreate(&join, 0));
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchHostFunc(a, note, (void *)1));
    OK(cuEventRecord(fork, a));
    cr_assert_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamWaitEvent(b, fork, 0));
    cr_assert_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuLaunchHostFunc(a, note, (void *)2));
    OK(cuLaunchHostFunc(b, note, (void *)2));
    OK(cuEventRecord(join, b));
    OK(cuStreamWaitEvent(a, join, 0));
    OK(cuStreamGetCaptureInfo_v2(a, &status, &id, &known, &last, &n));
    cr_assert(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && n == 2);
    OK(cuLaunchHostFunc(a, note, (void *)3));
    cr_assert_eq(n_order, 0); /* nothing ran */
    OK(cuStreamEndCapture(a, &graph));
    cr_assert_eq(graph, known);
    cr_assert_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphGetEdges(graph, NULL, NULL, &n));
    cr_assert_eq(n, 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, b));
    OK(cuStreamSynchronize(b));
    cr_assert(n_order == 4 && order[0] == 1 && order[3] == 3);
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(fork));
    OK(cuEventRecord(fork, a));
    OK(cuEventSynchronize(fork));

    /* A launch into a capture is a child graph; a capture can go on in a graph. */
    OK(cuStreamBeginCaptureToGraph(a, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamEndCapture(a, &known));
    cr_assert_eq(known, graph);
    OK(cuGraphGetNodes(graph, NULL, &n));
    cr_assert_eq(n, 5);
    OK(cuGraphDestroy(graph));
}

static CUresult ended_elsewhere;
static void *end_elsewhere(void *stream)
{
    CUgraph graph;
    start_device();
    ended_elsewhere = cuStreamEndCapture(stream, &graph);
    return NULL;
}

static void end_invalid(CUstream stream)
{
    CUgraph graph = (CUgraph)1;
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    cr_assert_null(graph);
    cr_assert_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

Test(capture, what_cannot_be_captured_invalidates)
{
    CUstream a, b;
    CUevent event, other;
    CUgraph graph;
    CUdeviceptr d;
    pthread_t thread;
    start_device();
    OK(cuMemAlloc_v2(&d, 16));
    OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventCreate(&other, 0));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, NULL));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));

    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
    cr_assert_eq(status_of(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(d, 0, 16, a));
    end_invalid(a);

    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
           cuMemsetD8_v2(d, 0, 16)); /* the legacy stream would wait for it */
    end_invalid(a);

    OK(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8_v2(d, 0, 16)); /* not for this one */
    CUdeviceptr more;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(d, b)); /* no allocation of a graph */
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(b));
    end_invalid(b);

    OK(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuMemAlloc_v2(&more, 16)); /* this thread says that it knows */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree_v2(more));
    end_invalid(b);
    OK(cuMemFree_v2(more));

    uint8_t bytes[16];
    OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyDtoH_v2_ptds(bytes, d, 16));
    end_invalid(CU_STREAM_PER_THREAD);

    OK(cuEventRecord(other, b));
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, other, 0));
    end_invalid(a);

    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, a));
    OK(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(b, event, 0));
    end_invalid(a);
    end_invalid(b);

    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuMemsetD8Async(d, 0, 16, b));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
    cr_assert_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);

    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    cr_assert_eq(pthread_create(&thread, NULL, end_elsewhere, a), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(ended_elsewhere, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(b, &graph));
    end_invalid(a);
    OK(cuCtxSynchronize());
}
