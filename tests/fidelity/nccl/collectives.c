/*
 * collectives.c - NCCL with a rank on each device of the process: every collective, type and operator against what the host computes,
 * groups, messages, splitting, operators that the program makes, and wrong use. Prints a transcript: results, digests. Ends with
 * status 1 where a result differs from the host's.
 *
 * Sums of floats are compared bit for bit with a ring's: block b is added in the order of the ranks b+1, b+2, …, b.
 */
#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"
#include "tests/fidelity/nccl/reduce.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int n;
static CUcontext contexts[DEVICES_MAX];
static CUstream streams[DEVICES_MAX];
static CUdeviceptr sends[DEVICES_MAX], receives[DEVICES_MAX];
static ncclComm_t comms[DEVICES_MAX];
static unsigned char *output;
static int wrong;

static const char *const type_names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",   "uint64",
                                         "float16", "float32", "float64", "bfloat16", "fp8e4m3", "fp8e5m2"};
static const char *const op_names[] = {"sum", "prod", "max", "min", "avg"};

static ncclResult_t told(const char *call, ncclResult_t result)
{
    printf("%s: %d\n", call, (int)result);
    return result;
}
#define TELL(call) told(#call, call)

/* --- devices -------------------------------------------------------------------------------------------- */

static void start(void)
{
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&n));
    if (n > 4)
        n = 4;
    output = malloc(SIZE);
    reduce_begin(n);
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[rank], rank));
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc_v2(&sends[rank], SIZE));
        CHECK(cuMemAlloc_v2(&receives[rank], SIZE));
    }
}

static void upload(int rank, size_t size, CUdeviceptr to)
{
    CHECK(cuCtxSetCurrent(contexts[rank]));
    CHECK(cuMemsetD8Async(receives[rank], 0xee, SIZE, streams[rank]));
    CHECK(cuMemcpyHtoDAsync_v2(to, inputs[rank], size, streams[rank]));
}

static unsigned long long digest(const unsigned char *data, size_t size)
{
    unsigned long long sum = 1469598103934665603ull;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ data[i]) * 1099511628211ull;
    return sum;
}

/* What a rank has got, against what it should have. */
static void compare(const char *what, int rank, CUdeviceptr from, size_t size)
{
    CHECK(cuCtxSetCurrent(contexts[rank]));
    CHECK(cuMemcpyDtoHAsync_v2(output, from, size, streams[rank]));
    CHECK(cuStreamSynchronize(streams[rank]));
    const bool same = memcmp(output, expected, size) == 0;
    printf("%s rank %d: %016llx%s\n", what, rank, digest(output, size), same ? "" : " is wrong");
    if (!same)
        wrong++;
}

/* --- each collective ------------------------------------------------------------------------------------ */

static ncclResult_t call(int rank, const char *name, const void *send, void *receive, size_t count,
                         ncclDataType_t type, ncclRedOp_t op, int root)
{
    CUstream stream = streams[rank];
    if (!strcmp(name, "AllReduce"))
        return nccl.ncclAllReduce(send, receive, count, type, op, comms[rank], stream);
    if (!strcmp(name, "Reduce"))
        return nccl.ncclReduce(send, rank == root ? receive : NULL, count, type, op, root, comms[rank],
                               stream);
    if (!strcmp(name, "ReduceScatter"))
        return nccl.ncclReduceScatter(send, receive, count, type, op, comms[rank], stream);
    if (!strcmp(name, "AllGather"))
        return nccl.ncclAllGather(send, receive, count, type, comms[rank], stream);
    if (!strcmp(name, "Broadcast"))
        return nccl.ncclBroadcast(rank == root ? send : NULL, receive, count, type, root, comms[rank],
                                  stream);
    return nccl.ncclBcast(receive, count, type, root, comms[rank], stream);
}

/* `place` is 1 where send and receive buffers are the same memory. */
static void collective(const char *name, ncclDataType_t type, ncclRedOp_t op, size_t count, int root,
                       bool in_place)
{
    const size_t width = rg_nccl_type_size(type), bytes = count * width;
    const bool scatters = !strcmp(name, "ReduceScatter"), gathers = !strcmp(name, "AllGather"),
               bcast = !strcmp(name, "Bcast"), broadcasts = bcast || !strcmp(name, "Broadcast");
    const size_t in = scatters ? count * (size_t)n : count;
    char what[100];
    snprintf(what, sizeof what, "%s %s %s %zu%s", name, type_names[type],
             gathers || broadcasts ? "-" : op_names[op], count, in_place ? " in place" : "");
    for (int rank = 0; rank < n; rank++)
        fill(rank, type, in);
    for (int rank = 0; rank < n; rank++)
        upload(rank, in * width,
               bcast                 ? receives[rank]
               : in_place && gathers ? receives[rank] + (size_t)rank * bytes
               : in_place            ? receives[rank]
                                     : sends[rank]);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++) {
        const CUdeviceptr receive = receives[rank] + (in_place && scatters ? (size_t)rank * bytes : 0),
                          send =
                              in_place ? receives[rank] + (gathers ? (size_t)rank * bytes : 0) : sends[rank];
        must_nccl(call(rank, name, (void *)send, (void *)receive, count, type, op, root), what);
    }
    NCCL(ncclGroupEnd());
    if (broadcasts)
        memcpy(expected, inputs[root], bytes);
    else if (gathers)
        for (int rank = 0; rank < n; rank++)
            memcpy(expected + (size_t)rank * bytes, inputs[rank], bytes);
    else if (!scatters)
        reduce_all(type, op, count, strcmp(name, "Reduce") == 0 ? root : -1, NULL);
    for (int rank = 0; rank < n; rank++) {
        if (!strcmp(name, "Reduce") && rank != root)
            continue;
        for (size_t i = 0; scatters && i < count; i++)
            reduce_element(expected + i * width, type, op, (size_t)rank * count + i, rank, NULL);
        compare(what, rank, receives[rank] + (in_place && scatters ? (size_t)rank * bytes : 0),
                gathers ? bytes * (size_t)n : bytes);
    }
}

static void every_collective(void)
{
    static const char *const reducing[] = {"AllReduce", "Reduce", "ReduceScatter"};
    for (int type = 0; type < ncclNumTypes; type++)
        for (int op = 0; op < ncclNumOps; op++)
            for (int which = 0; which < 3; which++)
                collective(reducing[which], (ncclDataType_t)type, (ncclRedOp_t)op, which == 2 ? 37 : 1001,
                           (type + op) % n, (type + op) % 2);
    static const char *const moving[] = {"Broadcast", "Bcast", "AllGather"};
    for (int type = 0; type < ncclNumTypes; type++)
        for (int which = 0; which < 3; which++)
            collective(moving[which], (ncclDataType_t)type, ncclSum, 513, type % n, type % 2);
    static const size_t counts[] = {1, 2, 3, 7, 4096};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        collective("AllReduce", ncclFloat32, ncclSum, counts[i], 0, i % 2);
    TELL(nccl.ncclAllReduce((void *)sends[0], (void *)receives[0], 0, ncclFloat32, ncclSum, comms[0],
                            streams[0]));
}

/* --- operators ------------------------------------------------------------------------------------------- */

static void made_operators(ncclDataType_t type, bool on_device)
{
    const double factors[] = {2, 3, 1, 2};
    const size_t count = 100, width = rg_nccl_type_size(type);
    ncclRedOp_t ops[DEVICES_MAX];
    CUdeviceptr scalars[DEVICES_MAX];
    int exponent, mantissa;
    char what[100];
    snprintf(what, sizeof what, "pre-multiplied sum of %s, scalar on the %s", type_names[type],
             on_device ? "device" : "host");
    for (int rank = 0; rank < n; rank++) {
        unsigned char scalar[8] = {0};
        const uint64_t integer = (uint64_t)factors[rank];
        const float single = (float)factors[rank];
        memcpy(scalar,
               type == ncclFloat32   ? (const void *)&single
               : type == ncclFloat64 ? (const void *)&factors[rank]
                                     : &integer,
               width);
        if (has_small_floats(type, &exponent, &mantissa)) {
            const unsigned bits = small_float((int)factors[rank], exponent, mantissa);
            memcpy(scalar, &bits, width);
        }
        fill(rank, type, count);
        upload(rank, count * width, sends[rank]);
        CHECK(cuMemAlloc_v2(&scalars[rank], 8));
        CHECK(cuMemcpyHtoDAsync_v2(scalars[rank], scalar, 8, streams[rank]));
        NCCL(ncclRedOpCreatePreMulSum(&ops[rank], on_device ? (void *)scalars[rank] : scalar, type,
                                      on_device ? ncclScalarDevice : ncclScalarHostImmediate, comms[rank]));
    }
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclAllReduce((void *)sends[rank], (void *)receives[rank], count, type, ops[rank], comms[rank],
                           streams[rank]));
    NCCL(ncclGroupEnd());
    reduce_all(type, ncclSum, count, -1, factors);
    for (int rank = 0; rank < n; rank++) {
        compare(what, rank, receives[rank], count * width);
        NCCL(ncclRedOpDestroy(ops[rank], comms[rank]));
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemFree_v2(scalars[rank]));
    }
    TELL(nccl.ncclAllReduce((void *)sends[0], (void *)receives[0], 1, type, ops[0], comms[0], streams[0]));
    TELL(nccl.ncclRedOpDestroy(ops[0], comms[0]));
    TELL(nccl.ncclRedOpDestroy(ncclSum, comms[0]));
}

/* Each rank's operator is made, used and destroyed within one group, so that there is never more than one of a communicator. */
static void operators_within_group(void)
{
    const double factors[] = {2, 3, 1, 2};
    const size_t count = 100, size = count * sizeof(uint32_t);
    ncclRedOp_t op = ncclSum;
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclUint32, 2 * count);
        upload(rank, 2 * size, sends[rank]);
    }
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        for (size_t part = 0; part < 2; part++) {
            uint32_t factor = (uint32_t)factors[rank] * (part ? 5 : 1);
            NCCL(ncclRedOpCreatePreMulSum(&op, &factor, ncclUint32, ncclScalarHostImmediate, comms[rank]));
            NCCL(ncclAllReduce((void *)(sends[rank] + part * size), (void *)(receives[rank] + part * size),
                               count, ncclUint32, op, comms[rank], streams[rank]));
            NCCL(ncclRedOpDestroy(op, comms[rank]));
        }
    TELL(nccl.ncclRedOpDestroy(op, comms[n - 1]));
    NCCL(ncclGroupEnd());
    reduce_all(ncclUint32, ncclSum, 2 * count, -1, factors);
    for (size_t i = count; i < 2 * count; i++)
        ((uint32_t *)(void *)expected)[i] *= 5;
    for (int rank = 0; rank < n; rank++)
        compare("operators that end within a group", rank, receives[rank], 2 * size);
}

/* --- messages -------------------------------------------------------------------------------------------- */

/* Everybody to everybody, itself included, in one group; receiving is called first. */
static void all_to_all(void)
{
    const size_t each = 777;
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclUint8, each * (size_t)n);
        upload(rank, each * (size_t)n, sends[rank]);
    }
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        for (int peer = 0; peer < n; peer++) {
            NCCL(ncclRecv((void *)(receives[rank] + each * (size_t)peer), each, ncclUint8, peer, comms[rank],
                          streams[rank]));
            NCCL(ncclSend((void *)(sends[rank] + each * (size_t)peer), each, ncclUint8, peer, comms[rank],
                          streams[rank]));
        }
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < n; rank++) {
        for (int peer = 0; peer < n; peer++)
            memcpy(expected + each * (size_t)peer, inputs[peer] + each * (size_t)rank, each);
        compare("all to all", rank, receives[rank], each * (size_t)n);
    }
}

/* The same as one call; and a gathering and a scattering, which the root does in its place where `in_place`. */
static void collective_messages(bool in_place)
{
    const size_t each = 321, bytes = each * 4, whole = bytes * (size_t)n;
    const int root = n - 1;
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclInt32, each * (size_t)n);
        upload(rank, whole, sends[rank]);
    }
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclAlltoAll((void *)sends[rank], (void *)receives[rank], each, ncclInt32, comms[rank],
                          streams[rank]));
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < n; rank++) {
        for (int peer = 0; peer < n; peer++)
            memcpy(expected + bytes * (size_t)peer, inputs[peer] + bytes * (size_t)rank, bytes);
        compare("ncclAlltoAll", rank, receives[rank], whole);
    }
    const size_t own = bytes * (size_t)root;
    if (in_place)
        upload(root, whole, receives[root]);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclGather((void *)(in_place && rank == root ? receives[rank] + own : sends[rank] + own),
                        rank == root ? (void *)receives[rank] : NULL, each, ncclInt32, root, comms[rank],
                        streams[rank]));
    NCCL(ncclGroupEnd());
    for (int peer = 0; peer < n; peer++)
        memcpy(expected + bytes * (size_t)peer, inputs[peer] + own, bytes);
    compare("ncclGather", root, receives[root], whole);
    if (in_place)
        upload(root, whole, receives[root]);
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++) {
        const CUdeviceptr from = in_place ? receives[rank] : sends[rank],
                          to = in_place && rank == root ? from + own : receives[rank];
        NCCL(ncclScatter(rank == root ? (void *)from : NULL, (void *)to, each, ncclInt32, root, comms[rank],
                         streams[rank]));
    }
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < n; rank++) {
        memcpy(expected, inputs[root] + bytes * (size_t)rank, bytes);
        compare("ncclScatter", rank, receives[rank] + (in_place && rank == root ? own : 0), bytes);
    }
}

/* Many operations in flight, each using what the one before left, without a wait in between. */
static void chain(void)
{
    enum { TIMES = 50 };
    const size_t count = 300;
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclUint32, count);
        upload(rank, count * 4, receives[rank]);
    }
    for (int time = 0; time < TIMES; time++) {
        NCCL(ncclGroupStart());
        for (int rank = 0; rank < n; rank++)
            NCCL(ncclAllReduce((void *)receives[rank], (void *)receives[rank], count, ncclUint32, ncclSum,
                               comms[rank], streams[rank]));
        NCCL(ncclGroupEnd());
    }
    reduce_all(ncclUint32, ncclSum, count, -1, NULL);
    for (size_t i = 0; i < count; i++) {
        uint32_t value;
        memcpy(&value, expected + 4 * i, 4);
        for (int time = 1; time < TIMES; time++)
            value *= (uint32_t)n;
        memcpy(expected + 4 * i, &value, 4);
    }
    for (int rank = 0; rank < n; rank++)
        compare("fifty sums", rank, receives[rank], count * 4);
}

/* --- threads: a rank each -------------------------------------------------------------------------------- */

static ncclUniqueId id;

static void *one_rank(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    const size_t count = 1000;
    ncclComm_t comm, half = NULL;
    CHECK(cuCtxSetCurrent(contexts[rank]));
    NCCL(ncclCommInitRank(&comm, n, id, rank));
    NCCL(ncclAllReduce((void *)sends[rank], (void *)receives[rank], count, ncclInt32, ncclSum, comm,
                       streams[rank]));
    NCCL(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
    NCCL(ncclAllReduce((void *)receives[rank], (void *)receives[rank], count, ncclInt32, ncclSum, half,
                       streams[rank]));
    int size = 0, place = 0;
    NCCL(ncclCommCount(half, &size));
    NCCL(ncclCommUserRank(half, &place));
    if (size != (n + 1 - rank % 2) / 2 || place != size - 1 - rank / 2)
        must_nccl(ncclInternalError, "the half of a rank");
    CHECK(cuStreamSynchronize(streams[rank]));
    NCCL(ncclCommDestroy(half));
    NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
    return NULL;
}

static void threads(void)
{
    pthread_t of[DEVICES_MAX];
    const size_t count = 1000;
    NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclInt32, count);
        upload(rank, count * 4, sends[rank]);
    }
    for (int rank = 0; rank < n; rank++)
        pthread_create(&of[rank], NULL, one_rank, (void *)(intptr_t)rank);
    for (int rank = 0; rank < n; rank++)
        pthread_join(of[rank], NULL);
    reduce_all(ncclInt32, ncclSum, count, -1, NULL);
    for (int rank = 0; rank < n; rank++) {
        unsigned char *whole = malloc(count * 4);
        memcpy(whole, expected, count * 4);
        for (size_t i = 0; i < count; i++) {
            uint32_t value;
            memcpy(&value, whole + 4 * i, 4);
            value *= (uint32_t)(n + 1 - rank % 2) / 2;
            memcpy(expected + 4 * i, &value, 4);
        }
        compare("threads", rank, receives[rank], count * 4);
        memcpy(expected, whole, count * 4);
        free(whole);
    }
}

/* --- questions and wrong use ----------------------------------------------------------------------------- */

static void questions(void)
{
    int version = 0;
    TELL(nccl.ncclGetVersion(&version));
    printf("version %d\n", version);
    TELL(nccl.ncclGetVersion(NULL));
    for (int result = 0; result <= ncclNumResults; result++)
        printf("%d: %s\n", result, nccl.ncclGetErrorString((ncclResult_t)result));
    for (int rank = 0; rank < n; rank++) {
        int count = -1, device = -1, own = -1;
        ncclResult_t error = ncclInternalError;
        TELL(nccl.ncclCommCount(comms[rank], &count));
        TELL(nccl.ncclCommCuDevice(comms[rank], &device));
        TELL(nccl.ncclCommUserRank(comms[rank], &own));
        TELL(nccl.ncclCommGetAsyncError(comms[rank], &error));
        printf("rank %d of %d on device %d: %d\n", own, count, device, (int)error);
    }
    void *memory = NULL, *handle = NULL;
    ncclWindow_t window = NULL;
    CHECK(cuCtxSetCurrent(contexts[0]));
    TELL(nccl.ncclMemAlloc(&memory, 4096));
    TELL(nccl.ncclCommRegister(comms[0], memory, 4096, &handle));
    TELL(nccl.ncclCommDeregister(comms[0], handle));
    TELL(nccl.ncclCommWindowRegister(comms[0], memory, 4096, &window, 0));
    TELL(nccl.ncclCommWindowDeregister(comms[0], window));
    TELL(nccl.ncclMemFree(memory));
}

static void wrong_use(void)
{
    void *send = (void *)sends[0], *receive = (void *)receives[0];
    ncclComm_t comm = NULL;
    ncclUniqueId other;
    int devices[] = {0, 0};
    TELL(nccl.ncclGetUniqueId(NULL));
    TELL(nccl.ncclGetUniqueId(&other));
    CHECK(cuCtxSetCurrent(contexts[0]));
    TELL(nccl.ncclCommInitRank(NULL, 2, other, 0));
    TELL(nccl.ncclCommInitRank(&comm, 0, other, 0));
    TELL(nccl.ncclCommInitRank(&comm, 2, other, 2));
    TELL(nccl.ncclCommInitRank(&comm, 2, other, -1));
    TELL(nccl.ncclCommInitAll(NULL, 1, NULL));
    TELL(nccl.ncclCommInitAll(&comm, 99, NULL));
    TELL(nccl.ncclCommInitAll(&comm, 2, devices));
    TELL(nccl.ncclAllReduce(send, receive, 1, ncclFloat32, ncclSum, NULL, streams[0]));
    TELL(nccl.ncclAllReduce(NULL, receive, 1, ncclFloat32, ncclSum, comms[0], streams[0]));
    TELL(nccl.ncclAllReduce(send, NULL, 1, ncclFloat32, ncclSum, comms[0], streams[0]));
    TELL(nccl.ncclAllReduce(send, receive, 1, (ncclDataType_t)99, ncclSum, comms[0], streams[0]));
    TELL(nccl.ncclAllReduce(send, receive, 1, ncclFloat32, (ncclRedOp_t)77, comms[0], streams[0]));
    TELL(nccl.ncclBroadcast(send, receive, 1, ncclFloat32, n, comms[0], streams[0]));
    TELL(nccl.ncclReduce(send, receive, 1, ncclFloat32, ncclSum, -1, comms[0], streams[0]));
    TELL(nccl.ncclSend(send, 1, ncclFloat32, n, comms[0], streams[0]));
    TELL(nccl.ncclRecv(receive, 1, ncclFloat32, -1, comms[0], streams[0]));
    TELL(nccl.ncclAlltoAll(send, receive, 1, ncclFloat32, NULL, streams[0]));
    TELL(nccl.ncclAlltoAll(send, NULL, 1, ncclFloat32, comms[0], streams[0]));
    TELL(nccl.ncclAlltoAll(send, receive, 0, ncclFloat32, comms[0], streams[0]));
    TELL(nccl.ncclGather(send, receive, 1, ncclFloat32, n, comms[0], streams[0]));
    TELL(nccl.ncclScatter(NULL, receive, 1, ncclFloat32, 0, comms[0], streams[0]));
    TELL(nccl.ncclAllReduce(send, receive, (size_t)1 << 62, ncclFloat64, ncclSum, comms[0], streams[0]));
    TELL(nccl.ncclGroupEnd());
    TELL(nccl.ncclGroupSimulateEnd(NULL));
    TELL(nccl.ncclGroupStart());
    TELL(nccl.ncclAllReduce(send, receive, 1, ncclFloat32, (ncclRedOp_t)77, comms[0], streams[0]));
    TELL(nccl.ncclGroupEnd());
    ncclConfig_t config = {.size = sizeof config, .magic = 1};
    TELL(nccl.ncclCommInitRankConfig(&comm, 1, other, 0, &config));
    TELL(nccl.ncclCommDestroy(NULL));
}

/* A communicator that does not block: it is in progress until the last rank has come. */
static void without_blocking(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t two[2] = {NULL, NULL}, third = NULL;
    ncclUniqueId another;
    ncclResult_t state = ncclSuccess;
    const size_t count = 1000;
    config.blocking = 0;
    NCCL(ncclGetUniqueId(&another));
    for (int rank = 0; rank < n; rank++) {
        fill(rank, ncclInt32, count);
        upload(rank, count * 4, sends[rank]);
    }
    CHECK(cuCtxSetCurrent(contexts[0]));
    NCCL(ncclGroupStart());
    TELL(nccl.ncclCommInitRankConfig(&two[0], 2, another, 0, &config));
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclAllReduce((void *)sends[rank], (void *)receives[rank], count, ncclInt32, ncclSum,
                           comms[rank], streams[rank]));
    TELL(nccl.ncclGroupEnd());
    TELL(nccl.ncclCommGetAsyncError(two[0], &state));
    printf("alone: %d\n", (int)state);
    TELL(nccl.ncclAllReduce((void *)sends[0], (void *)receives[0], 1, ncclFloat32, ncclSum, two[0],
                            streams[0]));
    CHECK(cuCtxSetCurrent(contexts[1]));
    TELL(nccl.ncclCommInitRankConfig(&two[1], 2, another, 1, &config));
    for (int rank = 0; rank < 2; rank++) {
        TELL(nccl.ncclCommGetAsyncError(two[rank], &state));
        printf("together: %d\n", (int)state);
    }
    reduce_all(ncclInt32, ncclSum, count, -1, NULL);
    for (int rank = 0; rank < n; rank++)
        compare("in a group with one that begins", rank, receives[rank], count * 4);
    TELL(nccl.ncclCommInitRankConfig(&third, 2, another, 1, &config)); /* the id has been used */
    TELL(nccl.ncclCommDestroy(two[0]));
    TELL(nccl.ncclCommDestroy(two[1]));
}

/* Ranks that do not agree: both are told when they ask, and no stream waits for ever. */
static void disagreement(void)
{
    ncclComm_t again[DEVICES_MAX];
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommInitAll(again, n, NULL));
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        NCCL(ncclAllReduce((void *)sends[rank], (void *)receives[rank], 10 + (size_t)(rank == n - 1),
                           ncclFloat32, ncclSum, again[rank], streams[rank]));
    (void)nccl.ncclGroupEnd(); /* remotely it may not know yet */
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamSynchronize(streams[rank]));
        TELL(nccl.ncclCommGetAsyncError(again[rank], &state));
        printf("rank %d: %d\n%s\n", rank, (int)state, nccl.ncclGetLastError(NULL));
        TELL(nccl.ncclAllReduce((void *)sends[rank], (void *)receives[rank], 1, ncclFloat32, ncclSum,
                                again[rank], streams[rank]));
        TELL(nccl.ncclCommAbort(again[rank]));
    }
}

/* Ranks that never come, with a short SOFTGPU_NCCL_TIMEOUT: who waits is told which. */
static int missing(void)
{
    ncclComm_t alone = NULL;
    ncclResult_t state = ncclSuccess;
    NCCL(ncclGetUniqueId(&id));
    CHECK(cuCtxSetCurrent(contexts[0]));
    TELL(nccl.ncclCommInitRank(&alone, 3, id, 1));
    printf("%s\n%p\n", nccl.ncclGetLastError(NULL), (void *)alone);
    NCCL(ncclCommInitAll(comms, n, NULL));
    NCCL(ncclAllReduce((void *)sends[0], (void *)receives[0], 5, ncclFloat32, ncclSum, comms[0], streams[0]));
    CHECK(cuStreamSynchronize(streams[0]));
    for (int rank = 0; rank < n; rank++) {
        TELL(nccl.ncclCommGetAsyncError(comms[rank], &state));
        printf("rank %d: %d\n", rank, (int)state);
    }
    printf("%s\n", nccl.ncclGetLastError(NULL));
    NCCL(ncclCommAbort(comms[0]));
    NCCL(ncclCommAbort(comms[1]));
    NCCL(ncclCommInitAll(comms, n, NULL));
    NCCL(ncclRecv((void *)receives[1], 5, ncclFloat32, 0, comms[1], streams[1]));
    TELL(nccl.ncclCommAbort(comms[1])); /* ends what waits */
    CHECK(cuCtxSetCurrent(contexts[1]));
    CHECK(cuStreamSynchronize(streams[1]));
    TELL(nccl.ncclCommGetAsyncError(comms[0], &state));
    printf("rank 0: %d, %s\n", (int)state, nccl.ncclGetLastError(NULL));
    TELL(nccl.ncclCommDestroy(comms[0]));
    return 0;
}

/* Sums of `count` floats, for counting what goes over the wire. */
static int stream(size_t count, int times)
{
    CUdeviceptr large[DEVICES_MAX];
    NCCL(ncclCommInitAll(comms, n, NULL));
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuMemAlloc_v2(&large[rank], count * 4));
        CHECK(cuMemsetD32Async(large[rank], 0, count, streams[rank]));
    }
    for (int time = 0; time < times; time++) {
        NCCL(ncclGroupStart());
        for (int rank = 0; rank < n; rank++)
            NCCL(ncclAllReduce((void *)large[rank], (void *)large[rank], count, ncclFloat32, ncclSum,
                               comms[rank], streams[rank]));
        NCCL(ncclGroupEnd());
    }
    for (int rank = 0; rank < n; rank++) {
        CHECK(cuCtxSetCurrent(contexts[rank]));
        CHECK(cuStreamSynchronize(streams[rank]));
        NCCL(ncclCommDestroy(comms[rank]));
    }
    return 0;
}

/* Memory that is not the device's, or not to its end. */
static int foreign(void)
{
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommInitAll(comms, n, NULL));
    const struct {
        const char *what;
        const void *send;
        void *receive;
        size_t count;
    } cases[] = {{"sends the program's memory", inputs[0], (void *)receives[0], 4},
                 {"receives into it", (void *)sends[0], output, 4},
                 {"sends beyond the end", (void *)(sends[0] + SIZE - 16), (void *)receives[0], SIZE << 12}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ncclComm_t comm;
        ncclUniqueId another;
        NCCL(ncclGetUniqueId(&another));
        CHECK(cuCtxSetCurrent(contexts[0]));
        NCCL(ncclCommInitRank(&comm, 1, another, 0));
        const ncclResult_t result = nccl.ncclAllReduce(cases[i].send, cases[i].receive, cases[i].count,
                                                       ncclInt8, ncclSum, comm, streams[0]);
        TELL(nccl.ncclCommGetAsyncError(comm, &state));
        printf("%s: %d\n", cases[i].what, (int)(result != ncclSuccess ? result : state));
        TELL(nccl.ncclCommDestroy(comm));
        CHECK(cuStreamSynchronize(streams[0]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_nccl();
    start();
    if (argc > 1 && strcmp(argv[1], "missing") == 0)
        return missing();
    if (argc > 1 && strcmp(argv[1], "foreign") == 0)
        return foreign();
    if (argc > 3 && strcmp(argv[1], "stream") == 0)
        return stream((size_t)atol(argv[2]), atoi(argv[3]));
    const int devices[] = {0, 1, 2, 3};
    ncclComm_t first = NULL;
    int device = -1;
    CHECK(cuCtxSetCurrent(NULL)); /* as before the runtime has chosen a device */
    NCCL(ncclGetUniqueId(&id));
    TELL(nccl.ncclCommInitRank(&first, 1, id, 0));
    TELL(nccl.ncclCommCuDevice(first, &device));
    printf("device %d\n", device);
    TELL(nccl.ncclCommDestroy(first));
    NCCL(ncclCommInitAll(comms, n, devices));
    questions();
    every_collective();
    for (int type = 0; type < ncclNumTypes; type++)
        made_operators((ncclDataType_t)type, type % 2);
    made_operators(ncclFloat32, true);
    made_operators(ncclFloat32, false);
    operators_within_group();
    all_to_all();
    collective_messages(false);
    collective_messages(true);
    chain();
    threads();
    wrong_use();
    without_blocking();
    disagreement();
    all_to_all();
    collective_messages(false);
    collective_messages(true);
    for (int rank = 0; rank < n; rank++) {
        TELL(nccl.ncclCommFinalize(comms[rank]));
        TELL(nccl.ncclCommDestroy(comms[rank]));
    }
    printf("%d wrong\n", wrong);
    return wrong ? 1 : 0;
}
