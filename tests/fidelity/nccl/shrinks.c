/*
 * shrinks.c - NCCL's communicators go on without some of their ranks: while all are well, and after a rank has stopped to take part.
 * A rank on each device of the process, and a thread each.
 */
#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"

#include <pthread.h>
#include <stdint.h>

enum { RANKS_MAX = 8, COUNT = 1000 };

static int n, excluded[] = {0};
static CUcontext contexts[RANKS_MAX];
static CUstream streams[RANKS_MAX];
static CUdeviceptr memory[RANKS_MAX];
static ncclComm_t comms[RANKS_MAX], parts[RANKS_MAX];
static int flags;

static void start(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&n));
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[rank], rank));
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc_v2(&memory[rank], COUNT * 4));
    }
}

static void fill(void)
{
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemsetD32Async(memory[rank], 1u << rank, COUNT, streams[rank]));
    }
}

/* What each of the ranks has, if all of its values are the same. */
static void print_values(const char *what, int first)
{
    static uint32_t values[COUNT];
    for (int rank = first; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemcpyDtoHAsync_v2(values, memory[rank], sizeof values, streams[rank]));
        CHECK(cuStreamSynchronize(streams[rank]));
        int same = 1;
        while (same < COUNT && values[same] == values[0])
            same++;
        printf("%s, rank %d: %#x, %d times\n", what, rank, values[0], same);
    }
}

static ncclResult_t sum(ncclComm_t comm, int rank)
{
    return nccl.ncclAllReduce((void *)memory[rank], (void *)memory[rank], COUNT, ncclUint32, ncclSum, comm,
                              streams[rank]);
}

/* All ranks but the first go on, each in a thread of its own. */
static void *shrink(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    CHECK(cuCtxSetCurrent(contexts[rank]));
    must_nccl(nccl.ncclCommShrink(comms[rank], excluded, 1, &parts[rank], NULL, flags), "ncclCommShrink");
    must_nccl(sum(parts[rank], rank), "the sum of the others");
    CHECK(cuStreamSynchronize(streams[rank]));
    return NULL;
}

static void shrink_all(void)
{
    pthread_t threads[RANKS_MAX];
    for (int rank = 1; rank < n; rank++)
        pthread_create(&threads[rank], NULL, shrink, (void *)(intptr_t)rank);
    for (int rank = 1; rank < n; rank++)
        pthread_join(threads[rank], NULL);
    for (int rank = 1; rank < n; rank++) {
        int ranks = 0, own = -1, device = -1;
        NCCL(ncclCommCount(parts[rank], &ranks));
        NCCL(ncclCommUserRank(parts[rank], &own));
        NCCL(ncclCommCuDevice(parts[rank], &device));
        printf("rank %d is %d of %d, on device %d\n", rank, own, ranks, device);
    }
}

static void destroy(ncclComm_t *of, int first)
{
    for (int rank = first; rank < n; rank++)
        printf("destroy: %d\n", (int)nccl.ncclCommDestroy(of[rank]));
}

/* The communicator goes on as well, and is split and shrunk again. */
static void while_all_are_well(void)
{
    flags = NCCL_SHRINK_DEFAULT;
    for (int time = 0; time < 2; time++) {
        fill();
        shrink_all();
        print_values("of the others", 0);
        destroy(parts, 1);
    }
    fill();
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        must_nccl(sum(comms[rank], rank), "the sum of all");
    NCCL(ncclGroupEnd());
    print_values("of all", 0);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclCommSplit(comms[rank], 0, -rank, &parts[rank], NULL));
    NCCL(ncclGroupEnd());
    destroy(parts, 0);
    NCCL(ncclGroupStart());
    for (int rank = 1; rank < n; rank++)
        NCCL(ncclCommShrink(comms[rank], excluded, 1, &parts[rank], NULL, flags));
    NCCL(ncclGroupEnd());
    destroy(parts, 1);
}

/* The first rank does not come to a sum, in which the others wait. */
static void without_one_that_is_stuck(void)
{
    flags = NCCL_SHRINK_ABORT;
    fill();
    for (int rank = 1; rank < n; rank++)
        must_nccl(sum(comms[rank], rank), "a sum that one does not come to");
    for (int rank = 1; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        printf("rank %d waits: %d\n", rank, (int)cuStreamQuery(streams[rank]));
    }
    shrink_all();
    for (int rank = 1; rank < n; rank++) {
        ncclResult_t state = ncclSuccess;
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemsetD32Async(memory[rank], 1u << rank, COUNT, streams[rank]));
        NCCL(ncclCommGetAsyncError(comms[rank], &state));
        printf("the first communicator: %d\n", (int)state);
    }
    NCCL(ncclGroupStart());
    for (int rank = 1; rank < n; rank++)
        must_nccl(sum(parts[rank], rank), "the sum of the others");
    NCCL(ncclGroupEnd());
    print_values("of the others", 1);
    destroy(parts, 1);
    for (int rank = 0; rank < n; rank++)
        printf("abort: %d\n", (int)nccl.ncclCommAbort(comms[rank]));
}

static void wrong_use(void)
{
    int none[] = {-1}, own[] = {1}, beyond[] = {n};
    printf("no communicator: %d\n", (int)nccl.ncclCommShrink(NULL, excluded, 1, &parts[1], NULL, 0));
    printf("no place: %d\n", (int)nccl.ncclCommShrink(comms[1], excluded, 1, NULL, NULL, 0));
    printf("no list: %d\n", (int)nccl.ncclCommShrink(comms[1], NULL, 1, &parts[1], NULL, 0));
    printf("nobody: %d\n", (int)nccl.ncclCommShrink(comms[1], excluded, 0, &parts[1], NULL, 0));
    printf("no rank: %d\n", (int)nccl.ncclCommShrink(comms[1], none, 1, &parts[1], NULL, 0));
    printf("one beyond: %d\n", (int)nccl.ncclCommShrink(comms[1], beyond, 1, &parts[1], NULL, 0));
    printf("itself: %d\n", (int)nccl.ncclCommShrink(comms[1], own, 1, &parts[1], NULL, 0));
    printf("%s\n", nccl.ncclGetLastError(NULL));
    printf("flags: %d\n", (int)nccl.ncclCommShrink(comms[1], excluded, 1, &parts[1], NULL, 6));
}

int main(void)
{
    load_nccl();
    start();
    NCCL(ncclCommInitAll(comms, n, NULL));
    wrong_use();
    while_all_are_well();
    without_one_that_is_stuck();
    return 0;
}
