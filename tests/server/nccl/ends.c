/*
 * ends.c - one rank of a communicator that is made, used and ended while something goes wrong: prints how its rank is told. A call
 * that never returns hangs the program, which its test sees.
 *
 * usage: ends ID_FILE RANKS RANK 1 CASE
 */
#include "tests/server/nccl/process.h"

#include <pthread.h>
#include <string.h>

#define COUNT 3001

static CUcontext context;
static CUstream stream;
static CUdeviceptr buffer;
static ncclComm_t comm;

static void open_device(void)
{
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&buffer, COUNT * sizeof(float)));
}

static ncclResult_t sum(ncclComm_t of)
{
    void *data = (void *)(uintptr_t)buffer;
    return nccl.ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, of, stream);
}

static void await_file(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", id_file, name);
    for (int turn = 0; turn < 30000 && access(path, F_OK) != 0; turn++)
        nap();
}

/* Until all ranks are there: on a busy machine a program takes seconds to begin. */
static void await_all(void)
{
    char name[32];
    snprintf(name, sizeof name, ".here%d", first);
    touch(name);
    for (int rank = 0; rank < ranks; rank++) {
        snprintf(name, sizeof name, ".here%d", rank);
        await_file(name);
    }
}

static void begin(void)
{
    ncclUniqueId id;
    await_all();
    if (!share_id_in_time(&id, "", -1))
        must_nccl(ncclSystemError, "ncclGetUniqueId");
    NCCL(ncclCommInitRank(&comm, ranks, id, first));
    must_nccl(sum(comm), "ncclAllReduce"); /* whoever has it knows that the others have begun */
    CHECK(cuStreamSynchronize(stream));
}

static void tell(ncclResult_t state)
{
    printf("rank %d is told %d: %s\n", first, (int)state, nccl.ncclGetLastError(NULL));
}

/* Until the communicator fails. */
static ncclResult_t await_failure(void)
{
    ncclResult_t state = ncclSuccess;
    for (int turn = 0; turn < 30000 && state == ncclSuccess; turn++, nap())
        (void)nccl.ncclCommGetAsyncError(comm, &state);
    return state;
}

/* Rank 1 does not come to where another communicator is made of the ranks; of one that is shrunk, the last rank is not to. */
static void made_without_one(bool shrinks)
{
    int last[] = {ranks - 1};
    ncclComm_t made = NULL;
    if (first == 1 || (shrinks && first == ranks - 1))
        tell(await_failure());
    else if (shrinks)
        tell(nccl.ncclCommShrink(comm, last, 1, &made, NULL, NCCL_SHRINK_ABORT));
    else
        tell(nccl.ncclCommSplit(comm, 0, first, &made, NULL));
    if (first == 0)
        touch(".told");
    await_file(".told"); /* who leaves before is named for that */
    (void)nccl.ncclCommAbort(comm);
}

static void *abort_soon(void *aborted)
{
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    *(ncclResult_t *)aborted = nccl.ncclCommAbort(comm);
    return NULL;
}

/* Rank 0 waits for what the others never do, until another thread of its process aborts the communicator. */
static void aborted(const char *what)
{
    pthread_t thread;
    ncclResult_t result = ncclSuccess, end = ncclInProgress;
    ncclComm_t made = NULL;
    if (first != 0) {
        tell(await_failure());
        (void)nccl.ncclCommAbort(comm);
        return;
    }
    if (strcmp(what, "split") != 0)
        must_nccl(sum(comm), "ncclAllReduce");
    if (pthread_create(&thread, NULL, abort_soon, &end) != 0)
        exit(1);
    if (strcmp(what, "split") == 0)
        result = nccl.ncclCommSplit(comm, 0, 0, &made, NULL);
    else if (strcmp(what, "finalize") == 0)
        result = nccl.ncclCommFinalize(comm);
    else
        CHECK(cuStreamSynchronize(stream));
    pthread_join(thread, NULL);
    printf("rank 0 goes on: %d, %d\n", (int)result, (int)end);
}

/* --- a life of communicators ------------------------------------------------------------------------------ */

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const ncclResult_t tried = (call);                                                                   \
        if (tried != ncclSuccess)                                                                            \
            return tried;                                                                                    \
    } while (0)

/* A sum, until it is there, or has failed. */
static ncclResult_t whole_sum(ncclComm_t of)
{
    ncclResult_t state = ncclSuccess;
    TRY(sum(of));
    if (cuStreamSynchronize(stream) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    TRY(nccl.ncclCommGetAsyncError(of, &state));
    return state;
}

static ncclResult_t use_and_end(ncclComm_t of)
{
    ncclResult_t result = whole_sum(of);
    if (result == ncclSuccess && first % 2)
        result = nccl.ncclCommFinalize(of);
    if (result == ncclSuccess)
        return nccl.ncclCommDestroy(of);
    (void)nccl.ncclCommAbort(of);
    return result;
}

static ncclResult_t live_once(ncclComm_t of)
{
    int last[] = {ranks - 1};
    ncclComm_t made = NULL;
    TRY(whole_sum(of));
    TRY(nccl.ncclCommSplit(of, first % 2, first, &made, NULL));
    TRY(use_and_end(made));
    if (first == ranks - 1)
        return ncclSuccess;
    TRY(nccl.ncclCommShrink(of, last, 1, &made, NULL, NCCL_SHRINK_DEFAULT));
    return use_and_end(made);
}

/* Communicators without end, until something fails. */
static void live(void)
{
    ncclResult_t result = ncclSuccess;
    await_all();
    for (int turn = 0; result == ncclSuccess; turn++) {
        char name[32];
        ncclUniqueId id;
        snprintf(name, sizeof name, ".%d", turn);
        if (!share_id_in_time(&id, name, turn ? 2000 : -1)) { /* the first one comes */
            printf("rank %d is told nothing more\n", first);
            return;
        }
        result = nccl.ncclCommInitRank(&comm, ranks, id, first);
        if (result != ncclSuccess)
            break;
        result = live_once(comm);
        if (result == ncclSuccess)
            result = use_and_end(comm);
        else
            (void)nccl.ncclCommAbort(comm);
        if (turn == 0)
            touch(".working");
    }
    tell(result);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    id_file = argv[1];
    ranks = atoi(argv[2]);
    first = atoi(argv[3]);
    load_nccl();
    open_device();
    const char *what = argv[5];
    if (strcmp(what, "lives") == 0) {
        live();
        return 0;
    }
    begin();
    if (strcmp(what, "split without one") == 0 || strcmp(what, "shrunk without one") == 0)
        made_without_one(*what == 's' && what[1] == 'h');
    else if (strncmp(what, "aborted ", 8) == 0)
        aborted(what + 8);
    return 0;
}
