/*
 * random_collectives.c - random programs of collectives, messages, groups and communicators that are split, against what the host computes.
 *
 * usage: random_collectives [ID_FILE RANKS FIRST COUNT SEED [DEVICE]]
 *
 * The process has ranks FIRST … FIRST + COUNT - 1 of RANKS, of devices DEVICE (0) and following; without arguments all, a rank on each
 * device. All processes draw the same program from SEED, compute what all ranks have, and do what their own ranks do. Memory of a rank is
 * one arena, in which calls of a group have parts that do not overlap, and of which every byte is compared. Ends with status 1 where one
 * is wrong.
 *
 * Values of floating types are small whole numbers, of which every result is exact, in whatever order they are combined.
 */
#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"
#include "tests/fidelity/nccl/program.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int first_device;
static const char *id_file;
static CUcontext contexts[RANKS_MAX];
static CUstream streams[RANKS_MAX];
static CUdeviceptr arenas[RANKS_MAX]; /* of ranks of this process, from its first on */
static ncclComm_t handles[COMMS_MAX][RANKS_MAX];
static ncclRedOp_t operators[CALLS_MAX][RANKS_MAX];
static int first, here;

static bool is_here(int rank)
{
    return rank >= first && rank < first + here;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* --- beginning and end ------------------------------------------------------------------------------------ */

static void share_id(ncclUniqueId *id)
{
    char temporary[600];
    snprintf(temporary, sizeof temporary, "%s.new", id_file ? id_file : "");
    if (first == 0) {
        CHECK(cuCtxSetCurrent(contexts[0]));
        NCCL(ncclGetUniqueId(id));
        FILE *file = id_file ? fopen(temporary, "wb") : NULL;
        if (file &&
            (fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 || rename(temporary, id_file) != 0))
            exit(1);
        return;
    }
    FILE *file;
    while (!(file = fopen(id_file, "rb")))
        nap();
    if (fread(id, sizeof *id, 1, file) != 1)
        exit(1);
    fclose(file);
}

static void begin(int ranks)
{
    ncclUniqueId id;
    for (int i = 0; i < here; i++) {
        CUdevice device;
        CHECK(cuDeviceGet(&device, first_device + i));
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], device));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAlloc_v2(&arenas[i], ARENA));
        CHECK(cuMemcpyHtoD_v2(arenas[i], model[first + i], ARENA));
    }
    share_id(&id);
    NCCL(ncclGroupStart());
    for (int i = 0; i < here; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        NCCL(ncclCommInitRank(&handles[0][i], ranks, id, first + i));
    }
    NCCL(ncclGroupEnd());
}

static void destroy(int comm)
{
    for (int i = 0; i < here; i++)
        if (handles[comm][i]) {
            NCCL(ncclCommDestroy(handles[comm][i]));
            handles[comm][i] = NULL;
        }
}

/* --- groups ----------------------------------------------------------------------------------------------- */

static void upload(const struct call *call)
{
    const struct comm *comm = &comms[call->comm];
    for (int i = 0; i < comm->n; i++) {
        const int rank = comm->members[i];
        if (is_here(rank) && gives(call, i)) {
            CHECK(cuCtxSetCurrent(contexts[rank - first]));
            CHECK(cuMemcpyHtoDAsync_v2(arenas[rank - first] + call->send[rank],
                                       model[rank] + call->send[rank], given_bytes(call),
                                       streams[rank - first]));
        }
    }
}

static void make_operators(const struct call *call, ncclRedOp_t made[RANKS_MAX])
{
    const struct comm *comm = &comms[call->comm];
    for (int i = 0; i < comm->n && call->op == PRE_MUL_SUM; i++) {
        unsigned char scalar[8];
        const int rank = comm->members[i];
        if (!is_here(rank))
            continue;
        encode(call->type, scalar, factor_of(rank));
        CHECK(cuCtxSetCurrent(contexts[rank - first]));
        NCCL(ncclRedOpCreatePreMulSum(&made[rank - first], scalar, call->type, ncclScalarHostImmediate,
                                      handles[call->comm][rank - first]));
    }
}

static void destroy_operators(const struct call *call, const ncclRedOp_t made[RANKS_MAX])
{
    const struct comm *comm = &comms[call->comm];
    for (int i = 0; i < comm->n && call->op == PRE_MUL_SUM; i++)
        if (is_here(comm->members[i]))
            NCCL(ncclRedOpDestroy(made[comm->members[i] - first],
                                  handles[call->comm][comm->members[i] - first]));
}

/* The member's part of the call. */
static void issue(const struct call *call, int member, const ncclRedOp_t made[RANKS_MAX])
{
    const int rank = comms[call->comm].members[member], i = rank - first;
    const ncclComm_t comm = handles[call->comm][i];
    const void *send = (const void *)(uintptr_t)(arenas[i] + call->send[rank]);
    void *receive = (void *)(uintptr_t)(arenas[i] + call->receive[rank]);
    const ncclRedOp_t op = call->op == PRE_MUL_SUM ? made[i] : (ncclRedOp_t)call->op;
    switch (call->kind) {
    case ALL_REDUCE:
        NCCL(ncclAllReduce(send, receive, call->count, call->type, op, comm, streams[i]));
        break;
    case REDUCE:
        NCCL(ncclReduce(send, receive, call->count, call->type, op, call->root, comm, streams[i]));
        break;
    case BROADCAST:
        NCCL(ncclBroadcast(send, receive, call->count, call->type, call->root, comm, streams[i]));
        break;
    case ALL_GATHER:
        NCCL(ncclAllGather(send, receive, call->count, call->type, comm, streams[i]));
        break;
    case REDUCE_SCATTER:
        NCCL(ncclReduceScatter(send, receive, call->count, call->type, op, comm, streams[i]));
        break;
    case MESSAGE:
        if (member == call->root)
            NCCL(ncclSend(send, call->count, call->type, call->to, comm, streams[i]));
        if (member == call->to)
            NCCL(ncclRecv(receive, call->count, call->type, call->root, comm, streams[i]));
        break;
    }
}

static void issue_all(const struct group *group)
{
    for (int outer = 0; outer < (group->by_rank ? here : group->n); outer++)
        for (int inner = 0; inner < (group->by_rank ? group->n : here); inner++) {
            const int number = group->by_rank ? inner : outer, i = group->by_rank ? outer : inner;
            const int member = member_of(&comms[group->calls[number].comm], first + i);
            CHECK(cuCtxSetCurrent(contexts[i]));
            if (member >= 0)
                issue(&group->calls[number], member, operators[number]);
        }
}

static void run_group(void)
{
    struct group group;
    draw_group(&group);
    for (int i = 0; i < group.n; i++) {
        if (group.calls[i].uploads)
            upload(&group.calls[i]);
        make_operators(&group.calls[i], operators[i]);
    }
    for (int depth = 0; depth < group.depth; depth++)
        NCCL(ncclGroupStart());
    issue_all(&group);
    for (int depth = 0; depth < group.depth; depth++)
        NCCL(ncclGroupEnd());
    for (int i = 0; i < group.n; i++) {
        destroy_operators(&group.calls[i], operators[i]);
        compute(&group.calls[i]);
    }
}

/* --- communicators ------------------------------------------------------------------------------------------ */

/* Until a communicator that does not block has begun. */
static void wait_for(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (; state == ncclInProgress; nap())
        NCCL(ncclCommGetAsyncError(comm, &state));
    must_nccl(state, "ncclCommGetAsyncError");
}

static void run_split(void)
{
    struct split split;
    ncclComm_t parts[RANKS_MAX] = {NULL};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (!draw_split(&split))
        return;
    const struct comm *parent = &comms[split.parent];
    NCCL(ncclGroupStart());
    for (int i = 0; i < parent->n; i++)
        if (is_here(parent->members[i])) {
            const int at = parent->members[i] - first;
            CHECK(cuCtxSetCurrent(contexts[at]));
            const ncclResult_t result =
                nccl.ncclCommSplit(handles[split.parent][at], split.colors[i], split.keys[i], &parts[at],
                                   split.blocking ? NULL : &config);
            if (result != ncclInProgress)
                must_nccl(result, "ncclCommSplit");
        }
    const ncclResult_t ended = nccl.ncclGroupEnd();
    if (ended != ncclInProgress)
        must_nccl(ended, "ncclGroupEnd of splits");
    for (int i = 0; i < parent->n; i++) {
        const int rank = parent->members[i];
        if (!is_here(rank))
            continue;
        wait_for(handles[split.parent][rank - first]);
        if (!!parts[rank - first] != (split.comms[i] >= 0))
            wrong("rank %d has a communicator of a split, or has none, in vain", rank);
        if (split.comms[i] < 0)
            continue;
        wait_for(parts[rank - first]);
        handles[split.comms[i]][rank - first] = parts[rank - first];
        int n = -1, own = -1;
        NCCL(ncclCommCount(parts[rank - first], &n));
        NCCL(ncclCommUserRank(parts[rank - first], &own));
        if (n != comms[split.comms[i]].n || own != member_of(&comms[split.comms[i]], rank))
            wrong("rank %d is %d of %d in its part", rank, own, n);
    }
}

/* --- programs ----------------------------------------------------------------------------------------------- */

static void compare(unsigned long seed, int step)
{
    static unsigned char *found;
    if (!found)
        found = malloc(ARENA);
    for (int i = 0; i < here; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuStreamSynchronize(streams[i]));
        CHECK(cuMemcpyDtoH_v2(found, arenas[i], ARENA));
        size_t at = 0;
        while (at < ARENA && found[at] == model[first + i][at])
            at++;
        if (at == ARENA)
            continue;
        wrong("program %lu, step %d: rank %d has %02x and not %02x at %zu", seed, step, first + i, found[at],
              model[first + i][at], at);
        CHECK(cuMemcpyHtoD_v2(arenas[i], model[first + i], ARENA));
    }
}

static void run_program(unsigned long seed)
{
    for (int step = 0; step < STEPS; step++)
        switch (draw_step()) {
        case STEP_SPLIT:
            run_split();
            break;
        case STEP_DESTROY:
            destroy(draw_destroyed());
            break;
        case STEP_COMPARE:
            compare(seed, step);
            break;
        case STEP_GROUP:
            run_group();
            break;
        }
    compare(seed, STEPS);
}

int main(int argc, char **argv)
{
    int ranks = 0;
    unsigned long seed = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_nccl();
    CHECK(cuInit(0));
    if (argc > 5) {
        id_file = argv[1];
        ranks = atoi(argv[2]);
        first = atoi(argv[3]);
        here = atoi(argv[4]);
        seed = strtoul(argv[5], NULL, 10);
        first_device = argc > 6 ? atoi(argv[6]) : 0;
    } else {
        CHECK(cuDeviceGetCount(&ranks));
        here = ranks;
        seed = argc > 1 ? strtoul(argv[1], NULL, 10) : seed;
    }
    if (ranks < 1 || ranks > RANKS_MAX || first < 0 || here < 1 || first + here > ranks)
        return 2;
    draw_begin(seed, ranks);
    begin(ranks);
    run_program(seed);
    for (int comm = COMMS_MAX - 1; comm >= 0; comm--)
        destroy(comm);
    printf("program %lu: %d calls, %d wrong\n", seed, n_calls_drawn, n_wrong);
    return n_wrong ? 1 : 0;
}
