/*
 * captured_use.c - graphs with NCCL's calls: in other graphs, changed, between calls without graphs, by several threads, after their
 * communicators; and what cannot be captured. Prints a transcript; ends with status 1 where a result is another one.
 */
#include "tests/fidelity/nccl/captured_parts.h"

#include "tests/node_params.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static uint32_t plain_sum(int rank, unsigned turn, unsigned i)
{
    (void)rank;
    return given(0, turn, i) + given(1, turn, i);
}

static CUgraph capture_sum(int rank, CUdeviceptr to)
{
    CUgraph graph;
    begin(rank, streams[rank]);
    NCCL(ncclAllReduce(pointer(sends[rank]), pointer(to), COUNT, ncclUint32, ncclSum, comms[rank],
                       streams[rank]));
    CHECK(cuStreamEndCapture(streams[rank], &graph));
    return graph;
}

/* A graph with a sum for each rank. */
static void make_sums(CUgraphExec execs[2])
{
    for (int rank = 0; rank < 2; rank++) {
        CUgraph graph = capture_sum(rank, receives[rank]);
        CHECK(cuGraphInstantiateWithFlags(&execs[rank], graph, 0));
        CHECK(cuGraphDestroy(graph));
    }
}

/* A graph with calls as a part of another one, a copy, and the same executable graph with other buffers. */
static void copies(void)
{
    CUgraphExec execs[2], changed[2];
    for (int rank = 0; rank < 2; rank++) {
        CUgraph inner = capture_sum(rank, receives[rank]), outer, copy,
                other = capture_sum(rank, receives[rank] + 4 * COUNT);
        CUgraphNode node;
        CUgraphExecUpdateResultInfo info;
        CHECK(cuGraphCreate(&outer, 0));
        CHECK(cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
        CHECK(cuGraphClone(&copy, outer));
        CHECK(cuGraphInstantiateWithFlags(&execs[rank], copy, 0));
        CHECK(cuGraphInstantiateWithFlags(&changed[rank], other, 0));
        EXPECT(CUDA_SUCCESS, cuGraphExecUpdate_v2(changed[rank], inner, &info));
        CHECK(cuGraphDestroy(inner));
        CHECK(cuGraphDestroy(outer));
        CHECK(cuGraphDestroy(copy));
        CHECK(cuGraphDestroy(other));
    }
    run("a part of a copy", TURNS, execs, 2, COUNT, plain_sum);
    run("changed", TURNS, changed, 2, COUNT, plain_sum);
    end_all(execs, 2);
    end_all(changed, 2);
}

/* Calls without graphs between launches, also while something else is being captured. */
static void between(void)
{
    CUgraphExec execs[2];
    int differ = 0;
    make_sums(execs);
    for (unsigned turn = 0; turn < 10; turn++) {
        for (int rank = 0; rank < 2; rank++) {
            upload(rank, turn, COUNT);
            if (turn % 2) {
                begin(rank, others[rank]);
                NCCL(ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), LARGE, ncclUint32, ncclSum,
                                   comms[rank], streams[rank])); /* which takes new page-locked memory */
                CHECK(cuGraphExecDestroy(end(rank, others[rank])));
            } else {
                CHECK(cuGraphLaunch(execs[rank], streams[rank]));
            }
        }
        for (int rank = 0; rank < 2; rank++)
            differ += differing(rank, turn, COUNT, plain_sum);
    }
    printf("with graphs and without: %d elements differ\n", differ);
    wrong += differ;
    end_all(execs, 2);
}

/* Launches in other streams than the captured ones: the default streams, and one that was created. */
static void elsewhere(void)
{
    CUgraphExec execs[2];
    int differ = 0;
    make_sums(execs);
    for (unsigned turn = 0; turn < 9; turn++) {
        for (int rank = 0; rank < 2; rank++) {
            const CUstream into[] = {NULL, CU_STREAM_PER_THREAD, others[rank]};
            upload(rank, turn, COUNT);
            CHECK(cuStreamSynchronize(streams[rank]));
            CHECK(cuGraphLaunch(execs[rank], into[turn % 3]));
        }
        for (int rank = 0; rank < 2; rank++) {
            enter(rank);
            CHECK(cuCtxSynchronize());
            differ += differing(rank, turn, COUNT, plain_sum);
        }
    }
    printf("in other streams: %d elements differ\n", differ);
    wrong += differ;
    end_all(execs, 2);
}

static uint32_t sum_of_sums(int rank, unsigned turn, unsigned i)
{
    return i < COUNT / 2 ? 2 * plain_sum(rank, turn, i) : plain_sum(rank, turn, i);
}

/* A node whose body is done, and doubles the first half of what the rank gives. */
static CUgraphNode add_condition(int rank, CUgraph graph, CUgraph *body)
{
    CUgraphNode node, inner;
    CUgraphConditionalHandle handle;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    unsigned n = COUNT / 2, factor = 2, more = 0;
    void *parameters[] = {&sends[rank], &n, &factor, &more};
    CHECK(cuGraphConditionalHandleCreate(&handle, graph, contexts[rank], 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = contexts[rank];
    CHECK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    CUDA_KERNEL_NODE_PARAMS kernel = one_block(change[rank], COUNT / 2, parameters);
    *body = params.conditional.phGraph_out[0];
    CHECK(cuGraphAddKernelNode_v2(&inner, *body, NULL, 0, &kernel));
    return node;
}

/* Behind a conditional node, which the server runs as a part of a graph of its own. */
static void behind_a_condition(void)
{
    CUgraphExec execs[2];
    for (int rank = 0; rank < 2; rank++) {
        CUgraph graph, body;
        CUgraphNode before;
        enter(rank);
        CHECK(cuGraphCreate(&graph, 0));
        before = add_condition(rank, graph, &body);
        CHECK(cuStreamBeginCaptureToGraph(streams[rank], graph, &before, NULL, 1,
                                          CU_STREAM_CAPTURE_MODE_GLOBAL));
        NCCL(ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), COUNT, ncclUint32, ncclSum,
                           comms[rank], streams[rank]));
        CHECK(cuStreamEndCapture(streams[rank], &graph));
        CHECK(cuGraphInstantiateWithFlags(&execs[rank], graph, 0));
        CHECK(cuGraphDestroy(graph));
    }
    run("behind a condition", TURNS, execs, 2, COUNT, sum_of_sums);
    end_all(execs, 2);
}

/* Communicators that are destroyed before the graphs that have their calls, and ones that are aborted. */
static void ends(void)
{
    CUgraphExec execs[2];
    for (int abort = 0; abort < 2; abort++) {
        ncclComm_t kept[2];
        memcpy(kept, comms, sizeof kept);
        NCCL(ncclCommInitAll(comms, 2, NULL));
        make_sums(execs);
        for (int rank = 0; rank < 2; rank++)
            EXPECT(ncclSuccess, abort ? nccl.ncclCommAbort(comms[rank]) : nccl.ncclCommDestroy(comms[rank]));
        memcpy(comms, kept, sizeof kept);
        if (abort)
            for (int rank = 0; rank < 2; rank++) {
                enter(rank);
                EXPECT(CUDA_ERROR_UNKNOWN, cuGraphLaunch(execs[rank], streams[rank]));
                EXPECT(CUDA_SUCCESS, cuStreamSynchronize(streams[rank]));
            }
        else
            run("after the communicator", TURNS, execs, 2, COUNT, plain_sum);
        end_all(execs, 2);
    }
}

/* --- threads -------------------------------------------------------------------------------------------------- */

static CUgraphExec busy[2];

static void *launch_many(void *rank_of)
{
    const int rank = (int)(intptr_t)rank_of;
    enter(rank);
    if (rank) /* the other thread is far ahead by then, and waits for its device, which waits for this one */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    for (int i = 0; i < 40; i++)
        CHECK(cuGraphLaunch(busy[rank], streams[rank]));
    CHECK(cuStreamSynchronize(streams[rank]));
    return NULL;
}

/* A thread for each rank: the launches of the one do not keep the other from launching. */
static void threads(void)
{
    pthread_t thread[2];
    for (int rank = 0; rank < 2; rank++) {
        begin(rank, streams[rank]);
        NCCL(ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), COUNT, ncclUint32, ncclSum,
                           comms[rank], streams[rank]));
        for (int i = 0; i < 60; i++)
            launch_change(rank, sends[rank], 1, 1, 1, streams[rank]);
        busy[rank] = end(rank, streams[rank]);
    }
    for (intptr_t rank = 0; rank < 2; rank++)
        if (pthread_create(&thread[rank], NULL, launch_many, (void *)rank) != 0)
            _exit(1);
    for (int rank = 0; rank < 2; rank++)
        pthread_join(thread[rank], NULL);
    printf("two threads have launched\n");
    end_all(busy, 2);
}

/* --- what cannot be --------------------------------------------------------------------------------------------- */

static ncclResult_t call(int rank, CUstream stream)
{
    return nccl.ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), COUNT, ncclUint32, ncclSum,
                              comms[rank], stream);
}

/* Bodies of conditional nodes have what the device does alone. */
static void in_a_body(void)
{
    CUgraph graph, body, none;
    enter(0);
    CHECK(cuGraphCreate(&graph, 0));
    (void)add_condition(0, graph, &body);
    CHECK(cuStreamBeginCaptureToGraph(streams[0], body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(ncclInvalidUsage, call(0, streams[0]));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(streams[0], &none));
    CHECK(cuGraphDestroy(graph));
}

static void misuse(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeType type;
    CUDA_HOST_NODE_PARAMS parameters;
    CUstream blocking;
    size_t n = 1;
    begin(0, streams[0]);
    NCCL(ncclGroupStart());
    EXPECT(ncclSuccess, call(0, streams[0]));
    EXPECT(ncclInvalidUsage, call(0, others[0])); /* which is not captured */
    EXPECT(ncclInvalidUsage, nccl.ncclGroupEnd());
    NCCL(ncclGroupStart());
    EXPECT(ncclSuccess, call(0, streams[0]));
    EXPECT(ncclInvalidUsage, call(1, streams[1])); /* nor is that of the other rank */
    EXPECT(ncclInvalidUsage, nccl.ncclGroupEnd());
    EXPECT(ncclSuccess, call(0, streams[0]));
    CHECK(cuStreamEndCapture(streams[0], &graph));
    EXPECT(CUDA_SUCCESS, cuGraphGetNodes(graph, &node, &n));
    EXPECT(CUDA_SUCCESS, cuGraphNodeGetType(node, &type));
    printf("%zu node, of type %d\n", n, (int)type);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphHostNodeGetParams(node, &parameters));
    CHECK(cuGraphDestroy(graph));

    begin(0, streams[0]);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(streams[0]));
    EXPECT(ncclUnhandledCudaError, call(0, streams[0]));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(streams[0], &graph));

    CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CHECK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(ncclUnhandledCudaError, call(0, NULL));
    EXPECT(CUDA_SUCCESS, cuStreamEndCapture(blocking, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy_v2(blocking));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_nccl();
    prepare();
    copies();
    between();
    elsewhere();
    behind_a_condition();
    ends();
    threads();
    misuse();
    in_a_body();
    for (int rank = 0; rank < 2; rank++)
        EXPECT(ncclSuccess, nccl.ncclCommDestroy(comms[rank]));
    printf("%d wrong\n", wrong);
    return wrong ? 1 : 0;
}
