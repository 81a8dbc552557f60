/*
 * captured.c - NCCL's calls in streams that are being captured: graphs that do them again and again, with what is before and behind them.
 * Prints a transcript; ends with status 1 where a result is another one.
 */
#include "tests/fidelity/nccl/captured_parts.h"

static uint32_t changed_sum(int rank, unsigned turn, unsigned i)
{
    (void)rank;
    return ((given(0, turn, i) * 3 + 1) + (given(1, turn, i) * 3 + 1)) * 5 + 2;
}

/* A sum between two kernels, in a graph of each rank. */
static void sum(const char *what, unsigned turns, unsigned count)
{
    CUgraphExec execs[2];
    for (int rank = 0; rank < 2; rank++) {
        begin(rank, streams[rank]);
        launch_change(rank, sends[rank], count, 3, 1, streams[rank]);
        EXPECT(ncclSuccess, nccl.ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), count,
                                               ncclUint32, ncclSum, comms[rank], streams[rank]));
        launch_change(rank, receives[rank], count, 5, 2, streams[rank]);
        execs[rank] = end(rank, streams[rank]);
    }
    run(what, turns, execs, 2, count, changed_sum);
    end_all(execs, 2);
}

/* The same in one graph of both devices: the second stream joins the capture, and is joined at the end. */
static void one_graph(void)
{
    CUgraphExec exec;
    begin(0, streams[0]);
    CHECK(cuEventRecord(events[0][0], streams[0]));
    enter(1);
    CHECK(cuStreamWaitEvent(streams[1], events[0][0], 0));
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; rank++) {
        enter(rank);
        launch_change(rank, sends[rank], COUNT, 3, 1, streams[rank]);
        EXPECT(ncclSuccess, nccl.ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), COUNT,
                                               ncclUint32, ncclSum, comms[rank], streams[rank]));
    }
    EXPECT(ncclSuccess, nccl.ncclGroupEnd());
    for (int rank = 0; rank < 2; rank++) {
        enter(rank);
        launch_change(rank, receives[rank], COUNT, 5, 2, streams[rank]);
    }
    CHECK(cuEventRecord(events[1][0], streams[1]));
    enter(0);
    CHECK(cuStreamWaitEvent(streams[0], events[1][0], 0));
    exec = end(0, streams[0]);
    run("one graph of two devices", TURNS, &exec, 1, COUNT, changed_sum);
    end_all(&exec, 1);
}

static uint32_t exchanged(int rank, unsigned turn, unsigned i)
{
    return i < COUNT / 2 ? given(!rank, turn, i) : given(!rank, turn, i - COUNT / 2) + 1;
}

/* Messages to each other, as a group, and again what has been changed meanwhile. */
static void messages(void)
{
    CUgraphExec execs[2];
    for (int rank = 0; rank < 2; rank++) {
        begin(rank, streams[rank]);
        for (unsigned half = 0; half < 2; half++) {
            NCCL(ncclGroupStart());
            NCCL(ncclSend(pointer(sends[rank]), COUNT / 2, ncclUint32, !rank, comms[rank], streams[rank]));
            NCCL(ncclRecv(pointer(receives[rank] + half * COUNT * 2), COUNT / 2, ncclUint32, !rank,
                          comms[rank], streams[rank]));
            EXPECT(ncclSuccess, nccl.ncclGroupEnd());
            launch_change(rank, sends[rank], COUNT, 1, 1, streams[rank]);
        }
        execs[rank] = end(rank, streams[rank]);
    }
    run("messages", MANY, execs, 2, COUNT, exchanged);
    end_all(execs, 2);
}

/* What all kinds of operations leave, one behind the other, in the buffer that each takes from the one before. */
static uint32_t all_kinds(int rank, unsigned turn, unsigned i)
{
    const uint32_t sum = given(0, turn, i) * 2 + given(1, turn, i) * 3; /* by operators */
    (void)rank;
    return (sum + sum) * 2; /* reduced at rank 1, broadcast, scattered and gathered */
}

static void kinds(void)
{
    CUgraphExec execs[2];
    const size_t half = COUNT / 2;
    for (int rank = 0; rank < 2; rank++) {
        uint32_t factor = rank ? 3 : 2;
        ncclRedOp_t times;
        void *r = pointer(receives[rank]), *s = pointer(sends[rank]),
             *own = pointer(receives[rank] + (size_t)rank * half * sizeof(uint32_t));
        begin(rank, streams[rank]);
        EXPECT(ncclSuccess, nccl.ncclRedOpCreatePreMulSum(&times, &factor, ncclUint32,
                                                          ncclScalarHostImmediate, comms[rank]));
        EXPECT(ncclSuccess, nccl.ncclAllReduce(s, r, COUNT, ncclUint32, times, comms[rank], streams[rank]));
        EXPECT(ncclSuccess, nccl.ncclRedOpDestroy(times, comms[rank]));
        EXPECT(ncclSuccess, nccl.ncclReduce(r, r, COUNT, ncclUint32, ncclSum, 1, comms[rank], streams[rank]));
        EXPECT(ncclSuccess, nccl.ncclBroadcast(r, r, COUNT, ncclUint32, 1, comms[rank], streams[rank]));
        EXPECT(ncclSuccess,
               nccl.ncclReduceScatter(r, own, half, ncclUint32, ncclSum, comms[rank], streams[rank]));
        EXPECT(ncclSuccess, nccl.ncclAllGather(own, r, half, ncclUint32, comms[rank], streams[rank]));
        execs[rank] = end(rank, streams[rank]);
    }
    run("all kinds", TURNS, execs, 2, COUNT, all_kinds);
    end_all(execs, 2);
}

static uint32_t forked_sums(int rank, unsigned turn, unsigned i)
{
    (void)rank;
    return i < COUNT / 2 ? given(0, turn, i) + given(1, turn, i) : given(0, turn, i) * given(1, turn, i);
}

/* Two calls of one communicator in two streams: they keep their order, which is not that of what is around them. */
static void forks(void)
{
    CUgraphExec execs[2];
    const size_t half = COUNT / 2 * sizeof(uint32_t);
    for (int rank = 0; rank < 2; rank++) {
        begin(rank, streams[rank]);
        CHECK(cuEventRecord(events[rank][0], streams[rank]));
        CHECK(cuStreamWaitEvent(others[rank], events[rank][0], 0));
        for (int i = 0; i < 4; i++) /* on rank 0 the first call is far behind, on rank 1 the second */
            launch_change(rank, sends[rank] + (rank ? half : 0), COUNT / 2, 1, 0,
                          rank ? others[rank] : streams[rank]);
        NCCL(ncclAllReduce(pointer(sends[rank]), pointer(receives[rank]), COUNT / 2, ncclUint32, ncclSum,
                           comms[rank], streams[rank]));
        NCCL(ncclAllReduce(pointer(sends[rank] + half), pointer(receives[rank] + half), COUNT / 2, ncclUint32,
                           ncclProd, comms[rank], others[rank]));
        CHECK(cuEventRecord(events[rank][1], others[rank]));
        CHECK(cuStreamWaitEvent(streams[rank], events[rank][1], 0));
        execs[rank] = end(rank, streams[rank]);
    }
    run("two streams", TURNS, execs, 2, COUNT, forked_sums);
    end_all(execs, 2);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_nccl();
    prepare();
    sum("a sum between kernels", MANY, COUNT);
    sum("a large sum", TURNS, LARGE);
    one_graph();
    messages();
    kinds();
    forks();
    for (int rank = 0; rank < 2; rank++)
        EXPECT(ncclSuccess, nccl.ncclCommDestroy(comms[rank]));
    printf("%d wrong\n", wrong);
    return wrong ? 1 : 0;
}
