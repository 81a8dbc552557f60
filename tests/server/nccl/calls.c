/*
 * calls.c - what a client says of NCCL's calls, in the place of a library that counts them: nothing reaches it whose buffers are not the
 * session's, whatever the numbers of a record say of who gives and who gets.
 */
#include "proto/nccl/call.h"
#include "server/nccl/library.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <stdatomic.h>
#include <string.h>

#define DEVICE 0x700000000000ull /* where the only device memory is */
#define SIZE   4096u
#define COUNT  8u
#define RANKS  4u

static char own[64]; /* memory of this process */

/* --- the library ---------------------------------------------------------------------------------------------------- */

static unsigned called;
static bool waits;                /* a reduction lasts until its communicator is given up */
static atomic_bool inside, given; /* it does; it was */
static bool extended;             /* the library is the software device's */
static int counted = RANKS;       /* what it says of a split's ranks; 0: nothing */

static ncclResult_t begin_group(void)
{
    return ncclSuccess;
}

static ncclResult_t begin_rank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)ranks, (void)id, (void)rank, (void)config;
    *comm = (ncclComm_t)(uintptr_t)1;
    return ncclSuccess;
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    (void)comm, (void)color, (void)key, (void)config;
    *out = (ncclComm_t)(uintptr_t)2;
    return ncclSuccess;
}

static ncclResult_t count_ranks(const ncclComm_t comm, int *ranks)
{
    (void)comm;
    if (!counted)
        return ncclInvalidArgument;
    *ranks = counted;
    return ncclSuccess;
}

static ncclResult_t say_rank(const ncclComm_t comm, int *rank)
{
    (void)comm;
    *rank = 0;
    return ncclSuccess;
}

static ncclResult_t say_state(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    *state = ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

static ncclResult_t reduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t comm, CUstream stream)
{
    (void)send, (void)receive, (void)count, (void)type, (void)op, (void)root, (void)comm, (void)stream;
    called++;
    atomic_store(&inside, waits);
    while (waits && !atomic_load(&given))
        usleep(1000);
    return ncclSuccess;
}

static ncclResult_t broadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream)
{
    (void)send, (void)receive, (void)count, (void)type, (void)root, (void)comm, (void)stream;
    called++;
    return ncclSuccess;
}

static ncclResult_t gather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream)
{
    (void)send, (void)receive, (void)count, (void)type, (void)comm, (void)stream;
    called++;
    return ncclSuccess;
}

/* In the place of library.c. */
const struct rg_nccl_library *rg_nccl_library(const char **why)
{
    static const struct rg_nccl_library library = {.ncclGroupStart = begin_group,
                                                   .ncclGroupEnd = begin_group,
                                                   .ncclCommInitRankConfig = begin_rank,
                                                   .ncclCommSplit = split,
                                                   .ncclCommGetAsyncError = say_state,
                                                   .ncclCommCount = count_ranks,
                                                   .ncclCommUserRank = say_rank,
                                                   .ncclCommAbort = end,
                                                   .ncclReduce = reduce,
                                                   .ncclBroadcast = broadcast,
                                                   .ncclAllGather = gather};
    if (why)
        *why = "";
    return &library;
}

static void give_up(ncclComm_t comm)
{
    CHECK(comm);
    atomic_store(&given, true);
}

const struct rg_nccl_extension *rg_nccl_library_extension(void)
{
    static const struct rg_nccl_extension extension = {.give_up = give_up};
    return extended ? &extension : NULL;
}

void rg_nccl_set_driver(const char *driver)
{
    (void)driver;
}

/* --- the driver ------------------------------------------------------------------------------------------------------ */

static CUresult attributes(unsigned n, CUpointer_attribute *wanted, void **values, CUdeviceptr address)
{
    const bool device = address >= DEVICE && address - DEVICE < SIZE;
    (void)n, (void)wanted;
    *(unsigned *)values[0] = device ? CU_MEMORYTYPE_DEVICE : 0;
    *(CUdeviceptr *)values[1] = device ? DEVICE : 0;
    *(size_t *)values[2] = device ? SIZE : 0;
    return CUDA_SUCCESS;
}

static CUresult no_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    (void)base, (void)size, (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- the client ------------------------------------------------------------------------------------------------------ */

static void make(struct client *c, struct rg_nccl_beginning beginning, unsigned ranks)
{
    CALL(c, RG_OP_rgNcclBegin, 0, CUDA_SUCCESS, "448r", RG_NCCL_BEGINNING_WORDS, 2,
         (uint64_t)RG_NCCL_BEGINNING_WORDS, &beginning, sizeof beginning);
    CHECK((int)output_u64(c) == ncclSuccess && c->got.output_size >= 8);
    CHECK((output_u64(c) >> 32) == ranks); /* the result, then how many ranks, and which */
}

/* A session whose communicator 0 has RANKS ranks, of which the first is its. */
static struct client *begin(void)
{
    struct client *c = client_create();
    enter_context(c);
    make(c, (struct rg_nccl_beginning){.parent = RG_NCCL_COMMS_MAX, .ranks = RANKS}, RANKS);
    return c;
}

static void put_call(struct client *c, const struct rg_nccl_call *call)
{
    put(c, RG_OP_rgNcclGroup, 0, 77, "48r", RG_NCCL_CALL_WORDS, (uint64_t)RG_NCCL_CALL_WORDS, call,
        sizeof *call);
    send_batch(c);
}

static struct rg_nccl_call call_of(enum rg_nccl_kind kind, uint64_t peer)
{
    return (struct rg_nccl_call){.kind = kind,
                                 .send = DEVICE,
                                 .receive = DEVICE,
                                 .count = COUNT,
                                 .type = ncclFloat32,
                                 .op = ncclSum,
                                 .peer = peer};
}

static void expect_call(struct client *c, const struct rg_nccl_call *call, int result, bool gets_there)
{
    const unsigned before = called;
    put_call(c, call);
    expect_reply(c, 77, result);
    CHECK(called == before + gets_there);
}

/* Who gives and who gets is who the library takes for it. */
static void test_whose_buffers(void)
{
    struct client *c = begin();
    struct rg_nccl_call call = call_of(RG_NCCL_REDUCE, 0);
    expect_call(c, &call, CUDA_SUCCESS, true);
    call.receive = (uintptr_t)own;
    expect_call(c, &call, CUDA_ERROR_INVALID_VALUE, false);
    call.peer = 1; /* another one gets it */
    expect_call(c, &call, CUDA_SUCCESS, true);
    call = call_of(RG_NCCL_BROADCAST, 1);
    call.send = (uintptr_t)own; /* another one gives */
    expect_call(c, &call, CUDA_SUCCESS, true);
    call.peer = 0;
    expect_call(c, &call, CUDA_ERROR_INVALID_VALUE, false);
    call = call_of(RG_NCCL_ALL_GATHER, 0);
    expect_call(c, &call, CUDA_SUCCESS, true);
    call.receive = DEVICE + SIZE - COUNT * sizeof(float) * (RANKS - 1); /* room for one rank less */
    expect_call(c, &call, CUDA_ERROR_INVALID_VALUE, false);
    CHECK(client_destroy(c) == 0);
}

/* The library takes numbers of 32 bits: 2^32 is rank 0 to it, and type 0. */
static void test_wide_numbers(void)
{
    const uint64_t wide = 1ull << 32;
    struct rg_nccl_call calls[5];
    const unsigned before = called;
    calls[0] = call_of(RG_NCCL_REDUCE, wide);
    calls[0].receive = (uintptr_t)own;
    calls[1] = call_of(RG_NCCL_BROADCAST, wide);
    calls[1].send = (uintptr_t)own;
    calls[2] = call_of(RG_NCCL_REDUCE, 0);
    calls[2].type = wide + ncclFloat64;
    calls[3] = calls[2];
    calls[3].type = ncclNumTypes; /* of which it is not known how much memory it takes */
    calls[4] = call_of(RG_NCCL_REDUCE, 0);
    calls[4].op = wide;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct client *c = begin();
        put_call(c, &calls[i]);
        expect_violation(c, "root or peer");
    }
    CHECK(called == before);
}

/* Of a split the library says how many ranks there are. Where it does not, there is no communicator. */
static void test_uncounted_split(void)
{
    const struct rg_nccl_beginning beginning = {.comm = 1, .parent = 0};
    struct rg_nccl_call call = call_of(RG_NCCL_ALL_GATHER, 0);
    struct client *c = begin();
    call.comm = 1;
    call.receive = (uintptr_t)own;
    counted = 0;
    make(c, beginning, 0);
    expect_call(c, &call, CUDA_ERROR_INVALID_HANDLE, false);
    counted = RANKS;
    make(c, beginning, RANKS);
    expect_call(c, &call, CUDA_ERROR_INVALID_VALUE, false);
    CHECK(client_destroy(c) == 0);
}

/* Returns how many there were. */
static unsigned set_executors(struct client *c, unsigned n)
{
    pthread_mutex_lock(&c->worker->roles);
    const unsigned before = c->worker->n_executors;
    c->worker->n_executors = n;
    pthread_mutex_unlock(&c->worker->roles);
    return before;
}

/* An abort while another thread is inside of a call, and there is no thread for it: that call ends, and then the number is free. */
static void test_abort_without_a_thread(void)
{
    const struct rg_nccl_call call = call_of(RG_NCCL_REDUCE, 0);
    struct client *c = begin();
    extended = waits = true;
    put(c, RG_OP_rgNcclGroup, 0, 78, "48r", RG_NCCL_CALL_WORDS, (uint64_t)RG_NCCL_CALL_WORDS, &call,
        sizeof call);
    send_batch(c);
    while (!atomic_load(&inside))
        usleep(1000);
    const unsigned before = set_executors(c, RG_EXECUTORS_MAX);
    put(c, RG_OP_rgNcclEnd, 1, 77, "84", (uint64_t)0, RG_NCCL_ABORT);
    send_batch(c);
    CHECK(receive(c, 5000)); /* the two come in any order */
    CHECK(receive(c, 5000));
    (void)set_executors(c, before);
    waits = false;
    extended = false;
    make(c, (struct rg_nccl_beginning){.parent = RG_NCCL_COMMS_MAX, .ranks = RANKS}, RANKS);
    CALL(c, RG_OP_rgNcclEnd, 0, CUDA_SUCCESS, "84", (uint64_t)0, RG_NCCL_ABORT);
    CHECK((int)*(unsigned *)(void *)c->got.output == ncclSuccess); /* nobody else is taken to be in it */
    CHECK(client_destroy(c) == 0);
}

int main(void)
{
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    stub_driver_use(stub_succeed);
    rg_driver.cuPointerGetAttributes = attributes;
    rg_driver.cuMemGetAddressRange_v2 = no_range;
    test_whose_buffers();
    test_wide_numbers();
    test_uncounted_split();
    test_abort_without_a_thread();
    return 0;
}
