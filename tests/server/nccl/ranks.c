/*
 * ranks.c - one process of a communicator whose ranks are in several processes: runs every kind of operation, and prints what its ranks
 * got, as digests that do not depend on where the ranks are.
 *
 * usage: ranks ID_FILE RANKS FIRST COUNT [CASE [DEVICE]]
 *
 * The process has ranks FIRST … FIRST + COUNT - 1, of devices DEVICE (0) … DEVICE + COUNT - 1. Rank 0 makes the id and writes it into ID_FILE, where the
 * others wait for it.
 */
#include "tests/server/nccl/process.h"

#include <stdint.h>
#include <string.h>

#define HERE_MAX 8
#define LARGE    (1 << 20)
#define COUNT    3001 /* elements: not divisible by the ranks */

static int here, first_device;
static CUcontext contexts[HERE_MAX];
static CUstream streams[HERE_MAX];
static CUdeviceptr sends[HERE_MAX], receives[HERE_MAX];
static ncclComm_t comms[HERE_MAX];
static size_t room;

/* --- beginning ------------------------------------------------------------------------------------------ */

static void share_id(ncclUniqueId *id, const char *name)
{
    CHECK(cuCtxSetCurrent(contexts[0]));
    if (!share_id_in_time(id, name, -1))
        must_nccl(ncclSystemError, "ncclGetUniqueId");
}

static void open_devices(void)
{
    CHECK(cuInit(0));
    for (int i = 0; i < here; i++) {
        CUdevice device;
        CHECK(cuDeviceGet(&device, first_device + i));
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], device));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc_v2(&sends[i], room));
        CHECK(cuMemAlloc_v2(&receives[i], room));
    }
}

static void begin(void)
{
    ncclUniqueId id;
    share_id(&id, "");
    NCCL(ncclGroupStart());
    for (int i = 0; i < here; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        NCCL(ncclCommInitRank(&comms[i], ranks, id, first + i));
    }
    NCCL(ncclGroupEnd());
}

static void end(void)
{
    for (int i = 0; i < here; i++)
        NCCL(ncclCommDestroy(comms[i]));
}

/* --- operations ----------------------------------------------------------------------------------------- */

static void fill(int i, size_t count)
{
    float *values = malloc(count * sizeof *values);
    uint64_t seed = (uint64_t)(first + i) * 77 + 1;
    for (size_t k = 0; k < count; k++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        values[k] = (float)(seed >> 40) / 1000.0f;
    }
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuMemcpyHtoD_v2(sends[i], values, count * sizeof *values));
    CHECK(cuMemsetD8_v2(receives[i], 0, room));
    free(values);
}

static void show(const char *what, size_t bytes)
{
    unsigned char *data = malloc(bytes);
    for (int i = 0; i < here; i++) {
        uint64_t digest = 0xcbf29ce484222325ull;
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamSynchronize(streams[i]));
        CHECK(cuMemcpyDtoH_v2(data, receives[i], bytes));
        for (size_t k = 0; k < bytes; k++)
            digest = (digest ^ data[k]) * 0x100000001b3ull;
        printf("rank %d, %s: %016llx\n", first + i, what, (unsigned long long)digest);
    }
    free(data);
}

#define EACH(what, bytes, call)                                                                              \
    do {                                                                                                     \
        NCCL(ncclGroupStart());                                                                              \
        for (int i = 0; i < here; i++)                                                                       \
            must_nccl(call, #call);                                                                          \
        NCCL(ncclGroupEnd());                                                                                \
        show(what, bytes);                                                                                   \
    } while (0)

static void every_operation(void)
{
    const size_t n = (size_t)ranks;
    for (int i = 0; i < here; i++)
        fill(i, COUNT * n);
    void *s[HERE_MAX], *r[HERE_MAX];
    for (int i = 0; i < here; i++) {
        s[i] = (void *)(uintptr_t)sends[i];
        r[i] = (void *)(uintptr_t)receives[i];
    }
    EACH("sum of floats", COUNT * 4,
         nccl.ncclAllReduce(s[i], r[i], COUNT, ncclFloat32, ncclSum, comms[i], streams[i]));
    EACH("sum of integers", COUNT * 4,
         nccl.ncclAllReduce(s[i], r[i], COUNT, ncclInt32, ncclSum, comms[i], streams[i]));
    EACH("sum of two", 8, nccl.ncclAllReduce(s[i], r[i], 2, ncclFloat32, ncclSum, comms[i], streams[i]));
    EACH("sum at the last", COUNT * 4,
         nccl.ncclReduce(s[i], r[i], COUNT, ncclFloat32, ncclSum, ranks - 1, comms[i], streams[i]));
    EACH("from rank 1", COUNT * 4,
         nccl.ncclBroadcast(s[i], r[i], COUNT, ncclFloat32, 1 % ranks, comms[i], streams[i]));
    EACH("all of all", COUNT * n * 4,
         nccl.ncclAllGather(s[i], r[i], COUNT, ncclFloat32, comms[i], streams[i]));
    EACH("scattered", COUNT * 4,
         nccl.ncclReduceScatter(s[i], r[i], COUNT, ncclFloat32, ncclSum, comms[i], streams[i]));
    ncclRedOp_t operators[HERE_MAX];
    for (int i = 0; i < here; i++) {
        float scalar = (float)(first + i) + 0.5f;
        NCCL(
            ncclRedOpCreatePreMulSum(&operators[i], &scalar, ncclFloat32, ncclScalarHostImmediate, comms[i]));
    }
    EACH("multiplied", COUNT * 4,
         nccl.ncclAllReduce(s[i], r[i], COUNT, ncclFloat32, operators[i], comms[i], streams[i]));
    /* to the next, from the one before */
    NCCL(ncclGroupStart());
    for (int i = 0; i < here; i++) {
        const int rank = first + i;
        NCCL(ncclSend(s[i], COUNT, ncclFloat32, (rank + 1) % ranks, comms[i], streams[i]));
        NCCL(ncclRecv(r[i], COUNT, ncclFloat32, (rank + ranks - 1) % ranks, comms[i], streams[i]));
    }
    NCCL(ncclGroupEnd());
    show("around", COUNT * 4);
}

/* What ranks have goes around, and a sum of it: in a graph that is launched again and again, and beside it. */
static void captured(void)
{
    CUgraphExec execs[HERE_MAX];
    for (int i = 0; i < here; i++) {
        void *buffers[] = {(void *)(uintptr_t)sends[i], (void *)(uintptr_t)receives[i]};
        const int next = (first + i + 1) % ranks, before = (first + i + ranks - 1) % ranks;
        CUgraph graph;
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamBeginCapture_v2(streams[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int way = 0; way < 2; way++) {
            NCCL(ncclGroupStart());
            NCCL(ncclSend(buffers[way], COUNT, ncclFloat32, next, comms[i], streams[i]));
            NCCL(ncclRecv(buffers[!way], COUNT, ncclFloat32, before, comms[i], streams[i]));
            NCCL(ncclGroupEnd());
            if (way == 0)
                NCCL(
                    ncclReduce(buffers[0], buffers[1], COUNT, ncclFloat32, ncclSum, 0, comms[i], streams[i]));
        }
        CHECK(cuStreamEndCapture(streams[i], &graph));
        CHECK(cuGraphInstantiateWithFlags(&execs[i], graph, 0));
        CHECK(cuGraphDestroy(graph));
    }
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < here; i++) {
            CHECK(cuCtxSetCurrent(contexts[i]));
            CHECK(cuGraphLaunch(execs[i], streams[i]));
        }
        if (turn % 5 == 4)
            EACH("sum beside graphs", COUNT * 4,
                 nccl.ncclAllReduce((void *)(uintptr_t)sends[i], (void *)(uintptr_t)receives[i], COUNT,
                                    ncclFloat32, ncclSum, comms[i], streams[i]));
    }
    for (int i = 0; i < here; i++)
        CHECK(cuGraphExecDestroy(execs[i]));
}

static void split(void)
{
    ncclComm_t parts[HERE_MAX];
    NCCL(ncclGroupStart());
    for (int i = 0; i < here; i++)
        NCCL(ncclCommSplit(comms[i], (first + i) % 2, -(first + i), &parts[i], NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < here; i++) {
        int count, rank;
        NCCL(ncclCommCount(parts[i], &count));
        NCCL(ncclCommUserRank(parts[i], &rank));
        printf("rank %d is %d of %d in its part\n", first + i, rank, count);
    }
    EACH("sum of a part", COUNT * 4,
         nccl.ncclAllReduce((void *)(uintptr_t)sends[i], (void *)(uintptr_t)receives[i], COUNT, ncclFloat32,
                            ncclSum, parts[i], streams[i]));
    for (int i = 0; i < here; i++)
        NCCL(ncclCommDestroy(parts[i]));
}

/* --- cases ---------------------------------------------------------------------------------------------- */

/* Until that process has been told. */
static void wait_for(int rank)
{
    char path[600];
    snprintf(path, sizeof path, "%s.told%d", id_file, rank);
    while (access(path, F_OK) != 0)
        nap();
}

/* Until each process has come here. */
static void wait_for_others(void)
{
    char name[32];
    snprintf(name, sizeof name, ".told%d", first);
    touch(name);
    for (int rank = 0; rank < ranks; rank++)
        wait_for(rank);
}

/* 20 sums of `count` elements, which nobody looks at. */
static void sums(size_t count)
{
    for (int turn = 0; turn < 20; turn++)
        for (int i = 0; i < here; i++)
            must_nccl(nccl.ncclAllReduce((void *)(uintptr_t)sends[i], (void *)(uintptr_t)receives[i], count,
                                         ncclFloat32, ncclSum, comms[i], streams[i]),
                      "ncclAllReduce");
    for (int i = 0; i < here; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamSynchronize(streams[i]));
    }
}

/* Sums without end, until one fails: prints the error that its rank is told, and how that is explained. */
static void until_it_fails(void)
{
    ncclResult_t state = ncclSuccess;
    for (int turn = 0; state == ncclSuccess; turn++) {
        ncclResult_t result = ncclSuccess;
        for (int i = 0; i < here && result == ncclSuccess; i++)
            result = nccl.ncclAllReduce((void *)(uintptr_t)sends[i], (void *)(uintptr_t)receives[i], COUNT,
                                        ncclFloat32, ncclSum, comms[i], streams[i]);
        for (int i = 0; i < here; i++)
            if (result == ncclSuccess && (cuCtxSetCurrent(contexts[i]) != CUDA_SUCCESS ||
                                          cuStreamSynchronize(streams[i]) != CUDA_SUCCESS))
                result = ncclUnhandledCudaError;
        if (nccl.ncclCommGetAsyncError(comms[0], &state) != ncclSuccess)
            state = ncclInternalError;
        if (state == ncclSuccess)
            state = result;
        if (turn == 3 && first == 0)
            touch(".working");
    }
    printf("rank %d is told %d: %s\n", first, (int)state, nccl.ncclGetLastError(NULL));
}

/* When a sum has failed, all but the last rank go on: prints what the sum of their numbers, each one more, is. */
static void go_on_without_the_last(void)
{
    int last[] = {ranks - 1}, count = 0, place = 0;
    uint32_t sum = 0;
    ncclComm_t others = NULL;
    until_it_fails();
    if (first == ranks - 1)
        return;
    NCCL(ncclCommShrink(comms[0], last, 1, &others, NULL, NCCL_SHRINK_ABORT));
    NCCL(ncclCommCount(others, &count));
    NCCL(ncclCommUserRank(others, &place));
    CHECK(cuMemsetD32Async(sends[0], (unsigned)first + 1, 1, streams[0]));
    NCCL(ncclAllReduce((void *)(uintptr_t)sends[0], (void *)(uintptr_t)receives[0], 1, ncclUint32, ncclSum,
                       others, streams[0]));
    CHECK(cuMemcpyDtoHAsync_v2(&sum, receives[0], sizeof sum, streams[0]));
    CHECK(cuStreamSynchronize(streams[0]));
    printf("rank %d goes on as %d of %d: %u\n", first, place, count, sum);
    NCCL(ncclCommDestroy(others));
    NCCL(ncclCommAbort(comms[0]));
}

/* Rank 1 calls for fewer elements than the others. */
static void mismatch(void)
{
    const size_t count = first == 1 ? COUNT - 1 : COUNT;
    ncclResult_t state = ncclSuccess;
    (void)nccl.ncclAllReduce((void *)(uintptr_t)sends[0], (void *)(uintptr_t)receives[0], count, ncclFloat32,
                             ncclSum, comms[0], streams[0]);
    (void)cuStreamSynchronize(streams[0]);
    for (int turn = 0; turn < 2000 && state == ncclSuccess; turn++, nap())
        (void)nccl.ncclCommGetAsyncError(comms[0], &state);
    printf("rank %d is told %d: %s\n", first, (int)state, nccl.ncclGetLastError(NULL));
    (void)nccl.ncclCommAbort(comms[0]);
}

/* Only rank 0 calls. */
static void missing(void)
{
    ncclResult_t state = ncclSuccess;
    if (first == 0)
        (void)nccl.ncclAllReduce((void *)(uintptr_t)sends[0], (void *)(uintptr_t)receives[0], COUNT,
                                 ncclFloat32, ncclSum, comms[0], streams[0]);
    for (int turn = 0; turn < 10000 && state == ncclSuccess; turn++, nap())
        (void)nccl.ncclCommGetAsyncError(comms[0], &state);
    printf("rank %d is told %d: %s\n", first, (int)state, nccl.ncclGetLastError(NULL));
    (void)nccl.ncclCommAbort(comms[0]);
}

/* An id is used again, by the others while the first communicator is still there, which must not take harm. */
static void twice(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclResult_t state = ncclSuccess;
    share_id(&id, ".again");
    NCCL(ncclCommInitRank(&comm, ranks, id, first));
    if (first == 0)
        wait_for(ranks - 1);
    for (int i = 0; first == 0 && i < 50 && state == ncclSuccess; i++, nap())
        NCCL(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess)
        printf("the communicator has failed: %s\n", nccl.ncclGetLastError(NULL));
    NCCL(ncclCommDestroy(comm));
    const ncclResult_t result = nccl.ncclCommInitRank(&comm, ranks, id, first);
    printf("rank %d is told %d: %s\n", first, (int)result, nccl.ncclGetLastError(NULL));
    wait_for_others(); /* who made the id has to be there to say that it was used */
}

/* By a communicator that does not block. */
static void non_blocking(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclResult_t state = ncclInProgress;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    share_id(&id, ".later");
    const ncclResult_t result = nccl.ncclCommInitRankConfig(&comm, ranks, id, first, &config);
    if (result != ncclInProgress && result != ncclSuccess)
        must_nccl(result, "ncclCommInitRankConfig");
    for (; state == ncclInProgress; nap())
        NCCL(ncclCommGetAsyncError(comm, &state));
    must_nccl(state, "ncclCommGetAsyncError");
    must_nccl(nccl.ncclAllReduce((void *)(uintptr_t)sends[0], (void *)(uintptr_t)receives[0], COUNT,
                                 ncclFloat32, ncclSum, comm, streams[0]),
              "ncclAllReduce");
    show("sum that nobody waited for", COUNT * 4);
    NCCL(ncclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    const char *what = argc > 5 ? argv[5] : "all";
    if (argc < 5)
        return 2;
    id_file = argv[1];
    ranks = atoi(argv[2]);
    first = atoi(argv[3]);
    here = atoi(argv[4]);
    first_device = argc > 6 ? atoi(argv[6]) : 0;
    if (here < 1 || here > HERE_MAX || first < 0 || first + here > ranks)
        return 2;
    room = strcmp(what, "large") == 0 ? (size_t)LARGE * 4 : (size_t)COUNT * (size_t)ranks * 4;
    load_nccl();
    open_devices();
    begin();
    for (int i = 0; i < here; i++)
        fill(i, COUNT);
    if (strcmp(what, "all") == 0) {
        every_operation();
        split();
    } else if (strcmp(what, "small") == 0) {
        sums(1);
    } else if (strcmp(what, "captured") == 0) {
        captured();
    } else if (strcmp(what, "large") == 0) {
        sums(LARGE);
    } else if (strcmp(what, "fails") == 0) {
        until_it_fails();
        return 0;
    } else if (strcmp(what, "shrinks") == 0) {
        go_on_without_the_last();
        return 0;
    } else if (strcmp(what, "mismatch") == 0) {
        mismatch();
        return 0;
    } else if (strcmp(what, "missing") == 0) {
        missing();
        return 0;
    } else if (strcmp(what, "twice") == 0) {
        twice();
    } else if (strcmp(what, "later") == 0) {
        non_blocking();
    }
    end();
    return 0;
}
