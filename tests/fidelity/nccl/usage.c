/*
 * usage.c - what NCCL's functions answer where something is missing, wrong or too early: the codes of NCCL 2.27 itself. It needs two
 * devices. Prints a transcript; ends with status 1 where an answer is another one.
 */
#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"

#include <stdbool.h>

static int wrong;
static CUcontext contexts[2];
static CUstream streams[2];
static CUdeviceptr memory[2];

static void expect(ncclResult_t wanted, const char *call, ncclResult_t result)
{
    printf("%s: %d\n", call, (int)result);
    if (result == wanted)
        return;
    printf("    is wrong: NCCL says %d\n", (int)wanted);
    wrong++;
}
#define EXPECT(wanted, call) expect(wanted, #call, nccl.call)

static ncclResult_t begin_by(ncclConfig_t *config)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    CHECK(cuCtxSetCurrent(contexts[0]));
    NCCL(ncclGetUniqueId(&id));
    const ncclResult_t result = nccl.ncclCommInitRankConfig(&comm, 1, id, 0, config);
    if (result == ncclSuccess)
        NCCL(ncclCommDestroy(comm));
    return result;
}

static void say(ncclResult_t wanted, const char *what, ncclConfig_t config)
{
    expect(wanted, what, begin_by(&config));
}

/* Of each member something that NCCL refuses, or takes. */
static void configurations(void)
{
#define SAY(wanted, member, value)                                                                           \
    do {                                                                                                     \
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;                                                       \
        config.member = (value);                                                                             \
        say(wanted, "a communicator with " #member " = " #value, config);                                    \
    } while (0)
    SAY(ncclInvalidArgument, magic, 1);
    SAY(ncclInvalidArgument, blocking, 2);
    SAY(ncclSuccess, blocking, 1);
    SAY(ncclInvalidArgument, cgaClusterSize, -1);
    SAY(ncclSuccess, cgaClusterSize, 0);
    SAY(ncclInvalidArgument, minCTAs, 0);
    SAY(ncclInvalidArgument, maxCTAs, -3);
    SAY(ncclSuccess, maxCTAs, 8);
    SAY(ncclInvalidArgument, splitShare, 2);
    SAY(ncclInvalidArgument, collnetEnable, 2);
    SAY(ncclInvalidArgument, CTAPolicy, -1);
    SAY(ncclInvalidArgument, shrinkShare, -1);
    SAY(ncclInvalidArgument, nvlsCTAs, 0);
#undef SAY
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 9;
    config.maxCTAs = 8;
    say(ncclInvalidArgument, "more at least than at most", config);
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.version = 22600;
    config.size = offsetof(ncclConfig_t, collnetEnable);
    config.nvlsCTAs = config.shrinkShare = -7;
    say(ncclSuccess, "what a program's older structure does not have", config);
}

/* Nothing at all, where something is needed or not. */
static void nothing(void)
{
    ncclResult_t state;
    ncclComm_t comm = NULL;
    void *place = &place;
    int number;
    EXPECT(ncclSuccess, ncclCommDestroy(NULL));
    EXPECT(ncclSuccess, ncclCommAbort(NULL));
    EXPECT(ncclSuccess, ncclCommFinalize(NULL));
    EXPECT(ncclInvalidArgument, ncclCommGetAsyncError(NULL, &state));
    EXPECT(ncclInvalidArgument, ncclCommCount(NULL, &number));
    EXPECT(ncclInvalidArgument, ncclCommSplit(NULL, 0, 0, &comm, NULL));
    EXPECT(ncclInvalidUsage, ncclGroupEnd());
    CHECK(cuCtxSetCurrent(contexts[0]));
    EXPECT(ncclUnhandledCudaError, ncclMemAlloc(NULL, 16));
    EXPECT(ncclSuccess, ncclMemAlloc(&place, 0));
    if (place)
        wrong++;
    EXPECT(ncclSuccess, ncclMemFree(place));
}

static ncclResult_t sum(ncclComm_t comm, int rank)
{
    return nccl.ncclAllReduce((void *)memory[rank], (void *)memory[rank], 4, ncclInt32, ncclSum, comm,
                              streams[rank]);
}

/* What is asked of the communicator gets this answer. */
static void ask(ncclComm_t comm, ncclResult_t wanted)
{
    int number = -1;
    ncclRedOp_t op;
    ncclWindow_t window;
    float scalar = 2;
    EXPECT(wanted, ncclCommCount(comm, &number));
    printf("%d\n", number);
    EXPECT(wanted, ncclCommUserRank(comm, &number));
    printf("%d\n", number);
    EXPECT(wanted, ncclCommCuDevice(comm, &number));
    printf("%d\n", number);
    EXPECT(wanted, ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    EXPECT(wanted, ncclCommWindowRegister(comm, (void *)memory[0], 4096, &window, 0));
    EXPECT(ncclInvalidArgument, ncclCommCount(comm, NULL));
}

/* A communicator that does not block, before the other rank has come, and after. */
static void too_early(void)
{
    ncclUniqueId id;
    ncclComm_t comms[2] = {NULL, NULL}, part = NULL;
    ncclResult_t state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    CUgraph graph;
    config.blocking = 0;
    NCCL(ncclGetUniqueId(&id));
    CHECK(cuCtxSetCurrent(contexts[0]));
    EXPECT(ncclInProgress, ncclCommInitRankConfig(&comms[0], 2, id, 0, &config));
    expect(ncclInvalidArgument, "a sum before all have come", sum(comms[0], 0));
    CHECK(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect(ncclInvalidArgument, "a captured sum before all have come", sum(comms[0], 0));
    CHECK(cuStreamEndCapture(streams[0], &graph));
    CHECK(cuGraphDestroy(graph));
    EXPECT(ncclInvalidArgument, ncclCommSplit(comms[0], 0, 0, &part, NULL));
    EXPECT(ncclInvalidArgument, ncclCommFinalize(comms[0]));
    ask(comms[0], ncclInvalidArgument);
    CHECK(cuCtxSetCurrent(contexts[1]));
    (void)nccl.ncclCommInitRankConfig(&comms[1], 2, id, 1, &config);
    for (int rank = 0; rank < 2; rank++)
        do
            NCCL(ncclCommGetAsyncError(comms[rank], &state));
        while (state == ncclInProgress);
    ask(comms[0], ncclSuccess);
    ask(comms[1], ncclSuccess);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; rank++)
        expect(ncclSuccess, "a sum when they have", sum(comms[rank], rank));
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < 2; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamSynchronize(streams[rank]));
        EXPECT(ncclSuccess, ncclCommFinalize(comms[rank]));
        EXPECT(ncclInvalidArgument, ncclCommFinalize(comms[rank]));
    }
    for (int rank = 0; rank < 2; rank++)
        EXPECT(ncclSuccess, ncclCommDestroy(comms[rank]));
}

/* A group in which a call is wrong does nothing; and groups in groups end with the outermost. */
static void groups(void)
{
    ncclComm_t comms[2];
    int values[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    NCCL(ncclCommInitAll(comms, 2, NULL));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemcpyHtoD_v2(memory[rank], values[rank], sizeof values[rank]));
    }
    for (int good = 0; good < 2; good++) {
        NCCL(ncclGroupStart());
        for (int rank = 0; rank < 2; rank++) {
            NCCL(ncclGroupStart());
            expect(ncclSuccess, "a sum in an inner group", sum(comms[rank], rank));
            if (!good && rank == 0)
                EXPECT(ncclInvalidArgument, ncclBroadcast((void *)memory[0], (void *)memory[0], 4, ncclInt32,
                                                          2, comms[0], streams[0]));
            EXPECT(ncclSuccess, ncclGroupEnd());
        }
        expect(good ? ncclSuccess : ncclInvalidArgument, "the end of the outer group", nccl.ncclGroupEnd());
        for (int rank = 0; rank < 2; rank++) {
            int found[4];
            CHECK(cuCtxSetCurrent(contexts[rank]));
            CHECK(cuMemcpyDtoHAsync_v2(found, memory[rank], sizeof found, streams[rank]));
            CHECK(cuStreamSynchronize(streams[rank]));
            printf("rank %d has %d %d %d %d\n", rank, found[0], found[1], found[2], found[3]);
            for (int i = 0; i < 4; i++)
                wrong += found[i] != (good ? values[0][i] + values[1][i] : values[rank][i]);
        }
    }
    for (int rank = 0; rank < 2; rank++)
        NCCL(ncclCommDestroy(comms[rank]));
}

/* Sums of memory of the host: page-locked, registered and managed, which the program reads and writes itself. */
static void host_memory(void)
{
    enum { COUNT = 3000, BYTES = COUNT * sizeof(int), TURNS = 3 };
    static int registered[1 << 14] __attribute__((aligned(4096)));
    ncclComm_t comms[2];
    CUdeviceptr managed;
    int *locked;
    NCCL(ncclCommInitAll(comms, 2, NULL));
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuMemHostAlloc((void **)&locked, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemHostRegister_v2(registered, sizeof registered, CU_MEMHOSTREGISTER_PORTABLE));
    CHECK(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    int *const from[] = {locked, registered}, *const to[] = {registered + (1 << 13), (int *)managed};
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < COUNT; i++) {
            locked[i] = i * (turn + 1);
            registered[i] = 7 - i;
            to[0][i] = to[1][i] = -1;
        }
        NCCL(ncclGroupStart());
        for (int rank = 0; rank < 2; rank++)
            EXPECT(ncclSuccess, ncclAllReduce(from[rank], to[rank], COUNT - 1, ncclInt32, ncclSum,
                                              comms[rank], streams[rank]));
        EXPECT(ncclSuccess, ncclGroupEnd());
        for (int rank = 0; rank < 2; rank++)
            CHECK(cuStreamSynchronize(streams[rank]));
        for (int rank = 0; rank < 2; rank++) {
            int bad = 0;
            for (int i = 0; i < COUNT; i++)
                bad += to[rank][i] != (i < COUNT - 1 ? i * turn + 7 : -1);
            printf("memory of the host, rank %d: %d wrong\n", rank, bad);
            wrong += bad;
        }
    }
    for (int rank = 0; rank < 2; rank++)
        NCCL(ncclCommDestroy(comms[rank]));
    CHECK(cuMemFree_v2(managed));
    CHECK(cuMemHostUnregister(registered));
    CHECK(cuMemFreeHost(locked));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_nccl();
    CHECK(cuInit(0));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[rank], rank));
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc_v2(&memory[rank], 4096));
    }
    configurations();
    nothing();
    too_early();
    groups();
    host_memory();
    printf("%d wrong\n", wrong);
    return wrong ? 1 : 0;
}
