/* exchange.c - see exchange.h. */
#include "softgpu/nccl/exchange.h"

#include "common/base/clock.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/far.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RELEASED 0x7fffffffu /* of a word: more than any number of ranks */
#define ALIGNED  64u
#define WORDS    (2 * ALIGNED) /* bytes in front: one word to a cache line */

enum action {
    COME,   /* the rank is there; it gives nothing */
    ARRIVE, /* and what it gives is, too */
    REDUCE,
    DEPART
};

struct step {
    struct sg_exchange *exchange;
    ncclComm_t comm;
    int rank;
    enum action action;
};

static const char *const kind_names[] = {
    [SG_NCCL_ALL_REDUCE] = "ncclAllReduce",
    [SG_NCCL_REDUCE] = "ncclReduce",
    [SG_NCCL_BROADCAST] = "ncclBroadcast",
    [SG_NCCL_ALL_GATHER] = "ncclAllGather",
    [SG_NCCL_REDUCE_SCATTER] = "ncclReduceScatter",
    [SG_NCCL_SEND] = "ncclSend",
    [SG_NCCL_RECEIVE] = "ncclRecv",
};

const char *sg_nccl_kind_name(enum sg_nccl_kind kind)
{
    return kind_names[kind];
}

static uint32_t *word(const struct sg_exchange *exchange, int which)
{
    return (uint32_t *)(void *)(exchange->memory + (size_t)which * ALIGNED);
}

/* A stream of the software device that waits for the word looks at it at once, instead of a while later. */
static void wake(uint32_t *changed)
{
    (void)syscall(SYS_futex, changed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool sg_exchange_reduces(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_ALL_REDUCE || kind == SG_NCCL_REDUCE || kind == SG_NCCL_REDUCE_SCATTER;
}

static bool is_message(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_SEND || kind == SG_NCCL_RECEIVE;
}

static bool is_of_all(enum sg_nccl_kind kind)
{
    return kind == SG_NCCL_ALL_REDUCE || kind == SG_NCCL_ALL_GATHER || kind == SG_NCCL_REDUCE_SCATTER;
}

/* Only where each rank needs something of all others, so that nobody can be ahead by more than a group. */
bool sg_exchange_is_small(const struct sg_exchange *exchange)
{
    return is_of_all(exchange->kind) && sg_exchange_given_bytes(exchange) <= SG_NCCL_SMALL;
}

/* --- sizes ---------------------------------------------------------------------------------------------- */

/* Bytes that a rank gives, if it gives. */
size_t sg_exchange_given_bytes(const struct sg_exchange *exchange)
{
    const size_t bytes = exchange->count * rg_nccl_type_size(exchange->type);
    return exchange->kind == SG_NCCL_REDUCE_SCATTER ? bytes * (size_t)exchange->clique->n : bytes;
}

bool sg_exchange_gives(const struct sg_exchange *exchange, int rank)
{
    return exchange->source >= 0                 ? rank == exchange->source
           : exchange->kind == SG_NCCL_BROADCAST ? rank == exchange->peer
                                                 : true;
}

static int n_givers(const struct sg_exchange *exchange)
{
    return exchange->source >= 0 || exchange->kind == SG_NCCL_BROADCAST ? 1 : exchange->clique->n;
}

unsigned char *sg_exchange_place(const struct sg_exchange *exchange, int rank)
{
    return exchange->places +
           (n_givers(exchange) == 1 ? 0 : (size_t)rank * sg_exchange_given_bytes(exchange));
}

/* The block of elements that a rank reduces. */
void sg_exchange_block(const struct sg_exchange *exchange, int rank, size_t *first, size_t *count)
{
    const size_t n = (size_t)exchange->clique->n, r = (size_t)rank;
    switch ((int)exchange->kind) {
    case SG_NCCL_REDUCE:
        *first = 0;
        *count = rank == exchange->peer ? exchange->count : 0;
        return;
    case SG_NCCL_REDUCE_SCATTER:
        *first = r * exchange->count;
        *count = exchange->count;
        return;
    default: /* the first `count % n` blocks have an element more */
        *count = exchange->count / n + (r < exchange->count % n);
        *first = exchange->count / n * r + (r < exchange->count % n ? r : exchange->count % n);
    }
}

/* How many reductions there are here to be counted: of a small one each process makes all that it needs. */
static int n_reducers(const struct sg_exchange *exchange)
{
    return sg_exchange_is_small(exchange) ? exchange->clique->here : exchange->clique->n;
}

/* --- memory --------------------------------------------------------------------------------------------- */

static size_t aligned(size_t size)
{
    return (size + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Somewhat more than `size`, so that what one operation had is often enough for another. */
static size_t rounded(size_t size)
{
    size_t step = ALIGNED;
    while (step < size / 8)
        step *= 2;
    return (size + step - 1) / step * step;
}

/* The smallest memory of a finished operation that is large enough. None is freed before the clique ends: that could wait for streams. */
static void get_spare(struct sg_exchange *exchange, size_t size)
{
    struct sg_exchange **best = NULL;
    for (struct sg_exchange **at = &exchange->clique->spare; *at; at = &(*at)->next)
        if ((*at)->size >= size && (!best || (*at)->size < (*best)->size))
            best = at;
    if (!best)
        return;
    struct sg_exchange *spare = *best;
    *best = spare->next;
    exchange->memory = spare->memory;
    exchange->size = spare->size;
    free(spare);
}

/* Gets the memory and its parts; false: there is none. */
static bool get_memory(struct sg_exchange *exchange)
{
    struct sg_clique *clique = exchange->clique;
    const size_t scalars = aligned((size_t)clique->n * 8),
                 given = aligned(sg_exchange_given_bytes(exchange) * (size_t)n_givers(exchange)),
                 reduced =
                     sg_exchange_reduces(exchange->kind) ? aligned(sg_exchange_given_bytes(exchange)) : 0,
                 size = rounded(WORDS + scalars + given + reduced);
    get_spare(exchange, size);
    if (!exchange->memory) {
        void *memory = NULL;
        if (sg_nccl_driver()->p_cuMemHostAlloc(&memory, size, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
            return false;
        exchange->memory = memory;
        exchange->size = size;
    }
    memset(exchange->memory, 0, WORDS);
    exchange->scalars = exchange->memory + WORDS;
    exchange->places = exchange->scalars + scalars;
    exchange->reduced = exchange->places + given;
    return true;
}

void sg_exchange_finish(struct sg_exchange *exchange)
{
    struct sg_clique *clique = exchange->clique;
    if (exchange->n_departed < exchange->members || exchange->n_arrived < exchange->participants ||
        exchange->outgoing || exchange->incoming)
        return;
    for (struct sg_exchange **at = &clique->exchanges; *at; at = &(*at)->next)
        if (*at == exchange) {
            *at = exchange->next;
            break;
        }
    exchange->next = clique->spare;
    clique->spare = exchange;
}

void sg_exchange_fini(struct sg_clique *clique)
{
    struct sg_exchange **lists[] = {&clique->exchanges, &clique->spare};
    for (int i = 0; i < 2; i++)
        while (*lists[i]) {
            struct sg_exchange *exchange = *lists[i];
            *lists[i] = exchange->next;
            if (exchange->memory)
                sg_nccl_driver()->p_cuMemFreeHost(exchange->memory);
            free(exchange);
        }
}

/* --- what host functions of the streams do -------------------------------------------------------------- */

static void reduce_block(const struct sg_exchange *exchange, int rank)
{
    const int n = exchange->clique->n;
    const void *inputs[SG_NCCL_RANKS_MAX], *scalars[SG_NCCL_RANKS_MAX];
    const size_t width = rg_nccl_type_size(exchange->type);
    const struct sg_reduction reduction = {.type = exchange->type, .op = exchange->op, .n = n};
    size_t first, count;
    sg_exchange_block(exchange, rank, &first, &count);
    for (int k = 0; k < n; k++) {
        const int of = (rank + 1 + k) % n;
        inputs[k] = sg_exchange_place(exchange, of) + first * width;
        scalars[k] = exchange->scalars + (size_t)of * 8;
    }
    sg_reduce(&reduction, exchange->reduced + first * width, inputs, scalars, count);
}

/* The member's block; of a small sum of all also those of far ranks, of which each member takes its turn. */
static void reduce_blocks(const struct sg_exchange *exchange, int rank)
{
    const struct sg_clique *clique = exchange->clique;
    int member = 0, far = 0;
    reduce_block(exchange, rank);
    if (exchange->kind != SG_NCCL_ALL_REDUCE || !sg_exchange_is_small(exchange))
        return;
    for (int other = 0; other < rank; other++)
        member += clique->at[other] < 0;
    for (int other = 0; other < clique->n; other++)
        if (clique->at[other] >= 0 && far++ % clique->here == member)
            reduce_block(exchange, other);
}

void sg_exchange_arrives(struct sg_exchange *exchange, int rank)
{
    if (exchange->arrived[rank])
        return;
    exchange->arrived[rank] = true;
    exchange->n_arrived++;
    if (!exchange->waited_since_ns)
        exchange->waited_since_ns = rg_now_ns();
    if (exchange->n_arrived == exchange->participants)
        exchange->all_since_ns = rg_now_ns();
}

void sg_exchange_count(struct sg_exchange *exchange, enum sg_phase phase)
{
    if (exchange->clique->error != ncclSuccess)
        return;
    __atomic_add_fetch(word(exchange, phase), 1, __ATOMIC_RELEASE);
    wake(word(exchange, phase));
}

static void CUDA_CB run_step(void *argument)
{
    const struct step step = *(struct step *)argument;
    struct sg_exchange *exchange = step.exchange;
    struct sg_clique *clique = exchange->clique;
    free(argument);
    if (step.action == REDUCE && sg_clique_failed(clique) == ncclSuccess)
        reduce_blocks(exchange, step.rank);
    struct sg_peer *told[SG_NCCL_RANKS_MAX];
    int n_told = 0;
    pthread_mutex_lock(&clique->lock);
    if (step.action == COME || step.action == ARRIVE) {
        sg_exchange_arrives(exchange, step.rank);
        n_told = sg_far_tell_come(exchange, step.rank, told);
    }
    if (step.action == ARRIVE) {
        exchange->given |= UINT64_C(1) << step.rank;
        sg_exchange_count(exchange, SG_GIVEN);
    } else if (step.action == REDUCE) {
        exchange->done |= UINT64_C(1) << step.rank;
        sg_exchange_count(exchange, SG_REDUCED);
    } else if (step.action == DEPART) {
        exchange->n_departed++;
    }
    sg_far_send(exchange);
    sg_exchange_finish(exchange);
    step.comm->pending--;
    pthread_cond_broadcast(&clique->changed);
    pthread_mutex_unlock(&clique->lock);
    for (int i = 0; i < n_told; i++)
        sg_peer_push(told[i]);
}

void sg_exchange_release(struct sg_clique *clique)
{
    for (struct sg_exchange *exchange = clique->exchanges; exchange; exchange = exchange->next) {
        for (int which = 0; which < 2; which++) {
            __atomic_store_n(word(exchange, which), RELEASED, __ATOMIC_RELEASE);
            wake(word(exchange, which));
        }
    }
}

/* --- finding the operation that a call belongs to ------------------------------------------------------- */

static int describe(const struct sg_exchange *exchange, char *text, size_t size)
{
    return exchange->source >= 0
               ? snprintf(text, size, "message %llu from rank %d to rank %d (%zu elements of type %d)",
                          (unsigned long long)exchange->number, exchange->source, exchange->peer,
                          exchange->whole, exchange->type)
               : snprintf(text, size, "%s, collective %llu (%zu elements of type %d)",
                          kind_names[exchange->kind], (unsigned long long)exchange->number, exchange->whole,
                          exchange->type);
}

bool sg_exchange_overdue(const struct sg_clique *clique, uint64_t since_ns, char *text, size_t size)
{
    for (const struct sg_exchange *exchange = clique->exchanges; exchange; exchange = exchange->next) {
        if (!exchange->waited_since_ns || exchange->waited_since_ns >= since_ns)
            continue;
        int length = 0;
        char who[160] = "";
        for (int rank = 0; rank < clique->n && (size_t)length < sizeof who; rank++) {
            const bool takes_part =
                exchange->source < 0 || rank == exchange->source || rank == exchange->peer;
            if (takes_part && !exchange->arrived[rank])
                length +=
                    snprintf(who + length, sizeof who - (size_t)length, "%s%d", length ? ", " : "", rank);
        }
        const bool stuck = !length && exchange->all_since_ns < since_ns && sg_far_is_waited_for(exchange);
        if (!length && !stuck)
            continue; /* all came; the device is slow to take it */
        length = describe(exchange, text, size);
        if ((size_t)length < size)
            snprintf(text + length, size - (size_t)length,
                     stuck ? ": all ranks came, but not their data" : ": rank %s did not come", who);
        return true;
    }
    return false;
}

static void identify(const struct sg_nccl_call *call, int *source, int *peer, uint64_t *number)
{
    const ncclComm_t comm = call->comm;
    *source = call->kind == SG_NCCL_SEND ? comm->rank : call->kind == SG_NCCL_RECEIVE ? call->peer : -1;
    *peer = call->kind == SG_NCCL_RECEIVE ? comm->rank : call->peer;
    *number = call->kind == SG_NCCL_SEND      ? comm->sent[call->peer]
              : call->kind == SG_NCCL_RECEIVE ? comm->received[call->peer]
                                              : comm->collectives;
}

static int class_of(int op)
{
    return op >= ncclNumOps ? SG_NCCL_PRE_MUL_SUM : op;
}

struct sg_exchange *sg_exchange_find(const struct sg_clique *clique, int source, int peer, uint64_t number)
{
    for (struct sg_exchange *at = clique->exchanges; at; at = at->next)
        if (at->source == source && at->number == number && (source < 0 || at->peer == peer))
            return at;
    return NULL;
}

/* The operation of a call, made if it is new; NULL: no memory. */
static struct sg_exchange *find(struct sg_clique *clique, const struct sg_nccl_call *call)
{
    int source, peer;
    uint64_t number;
    identify(call, &source, &peer, &number);
    struct sg_exchange *exchange = sg_exchange_find(clique, source, peer, number);
    if (exchange)
        return exchange;
    exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    *exchange = (struct sg_exchange){.clique = clique,
                                     .kind = call->kind,
                                     .count = call->count,
                                     .whole = call->whole,
                                     .type = call->type,
                                     .op = class_of(call->op),
                                     .peer = peer,
                                     .source = source,
                                     .number = number,
                                     .first = call->comm->rank,
                                     .participants = source >= 0 ? 2 : clique->n};
    if (source >= 0 && source == peer)
        exchange->participants = 1;
    if (!get_memory(exchange)) {
        free(exchange);
        return NULL;
    }
    exchange->next = clique->exchanges;
    clique->exchanges = exchange;
    sg_far_begin(exchange);
    return exchange;
}

static bool agrees(const struct sg_exchange *exchange, const struct sg_nccl_call *call)
{
    if (exchange->whole != call->whole || exchange->count != call->count || exchange->type != call->type)
        return false;
    return is_message(call->kind) || (exchange->kind == call->kind && exchange->op == class_of(call->op) &&
                                      exchange->peer == call->peer);
}

void sg_exchange_disagree(const struct sg_exchange *exchange, int rank, int kind, size_t whole, int type,
                          int op, int peer)
{
    char text[200];
    describe(exchange, text, sizeof text);
    sg_clique_fail_locked(
        exchange->clique, ncclRemoteError,
        "rank %d called %s (%zu elements of type %d, operator %d, root or peer %d) where rank %d had "
        "called %s (operator %d, root or peer %d): all ranks must call the same",
        rank, kind_names[kind], whole, type, op, peer, exchange->first, text, exchange->op, exchange->peer);
}

static void counted(const struct sg_nccl_call *call)
{
    if (call->kind == SG_NCCL_SEND)
        call->comm->sent[call->peer]++;
    else if (call->kind == SG_NCCL_RECEIVE)
        call->comm->received[call->peer]++;
    else
        call->comm->collectives++;
}

/* The call takes its part in an operation. */
static ncclResult_t take_part(struct sg_enqueued *enqueued)
{
    const struct sg_nccl_call *call = &enqueued->call;
    struct sg_clique *clique = call->comm->clique;
    struct sg_exchange *exchange = find(clique, call);
    if (!exchange)
        return sg_nccl_fail(ncclSystemError, "%s: there is no memory for %zu elements of each of %d ranks",
                            kind_names[call->kind], call->whole, clique->n);
    if (!agrees(exchange, call))
        sg_exchange_disagree(exchange, call->comm->rank, call->kind, call->whole, call->type, call->op,
                             call->peer);
    if (clique->error != ncclSuccess) /* by that, or by a far rank that called something else */
        return ncclInvalidUsage;
    counted(call);
    enqueued->exchange = exchange;
    return ncclSuccess;
}

/* --- putting steps into the stream ---------------------------------------------------------------------- */

static CUresult put_step(const struct sg_enqueued *enqueued, enum action action)
{
    ncclComm_t comm = enqueued->call.comm;
    struct step *step = malloc(sizeof *step);
    if (!step)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *step = (struct step){enqueued->exchange, comm, comm->rank, action};
    pthread_mutex_lock(&comm->clique->lock);
    comm->pending++;
    pthread_mutex_unlock(&comm->clique->lock);
    const CUresult result = sg_nccl_driver()->p_cuLaunchHostFunc(enqueued->call.stream, run_step, step);
    if (result != CUDA_SUCCESS) {
        free(step);
        pthread_mutex_lock(&comm->clique->lock);
        comm->pending--;
        pthread_mutex_unlock(&comm->clique->lock);
    }
    return result;
}

static CUresult put_wait(const struct sg_enqueued *enqueued, enum sg_phase which)
{
    const struct sg_exchange *exchange = enqueued->exchange;
    const int until = which == SG_REDUCED ? n_reducers(exchange) : n_givers(exchange);
    return sg_nccl_driver()->p_cuStreamWaitValue32(enqueued->call.stream,
                                                   (CUdeviceptr)(uintptr_t)word(exchange, which),
                                                   (cuuint32_t)until, CU_STREAM_WAIT_VALUE_GEQ);
}

/*
 * How a call's buffer of all ranks' blocks is cut where only a part of each block is meant: `n` pieces of `size` bytes, `step` bytes from
 * one to the next. A buffer without blocks, or all of one, is one piece.
 */
struct pieces {
    size_t n, size, step;
};

static struct pieces pieces_of(const struct sg_nccl_call *call, bool blocks)
{
    const size_t width = rg_nccl_type_size(call->type), n = blocks ? (size_t)call->comm->clique->n : 1;
    if (call->count == call->whole)
        return (struct pieces){1, n * call->count * width, 0};
    return (struct pieces){n, call->count * width, call->whole * width};
}

static CUresult copy_given(const struct sg_nccl_call *call, unsigned char *place)
{
    const struct pieces pieces = pieces_of(call, call->kind == SG_NCCL_REDUCE_SCATTER);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < pieces.n && result == CUDA_SUCCESS; i++)
        result = sg_nccl_driver()->p_cuMemcpyDtoHAsync(place + i * pieces.size, call->send + i * pieces.step,
                                                       pieces.size, call->stream);
    return result;
}

static CUresult copy_taken(const struct sg_nccl_call *call, const unsigned char *from)
{
    const struct pieces pieces = pieces_of(call, call->kind == SG_NCCL_ALL_GATHER);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < pieces.n && result == CUDA_SUCCESS; i++)
        result = sg_nccl_driver()->p_cuMemcpyHtoDAsync(call->receive + i * pieces.step,
                                                       from + i * pieces.size, pieces.size, call->stream);
    return result;
}

static CUresult give(const struct sg_enqueued *enqueued)
{
    const struct sg_nccl_call *call = &enqueued->call;
    struct sg_exchange *exchange = enqueued->exchange;
    const int rank = call->comm->rank;
    if (!sg_exchange_gives(exchange, rank) || call->kind == SG_NCCL_RECEIVE)
        return put_step(enqueued, COME);
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    unsigned char *scalar = exchange->scalars + (size_t)rank * 8;
    CUresult result = CUDA_SUCCESS;
    if (exchange->op == SG_NCCL_PRE_MUL_SUM && call->operator.residence == ncclScalarHostImmediate)
        memcpy(scalar, call->operator.scalar, sizeof call->operator.scalar);
    else if (exchange->op == SG_NCCL_PRE_MUL_SUM)
        result = driver->p_cuMemcpyDtoHAsync(scalar, call->operator.device, rg_nccl_type_size(call->type),
                                             call->stream);
    if (result == CUDA_SUCCESS)
        result = copy_given(call, sg_exchange_place(exchange, rank));
    return result == CUDA_SUCCESS ? put_step(enqueued, ARRIVE) : result;
}

static CUresult reduce(const struct sg_enqueued *enqueued)
{
    const struct sg_exchange *exchange = enqueued->exchange;
    const int rank = enqueued->call.comm->rank;
    if (!sg_exchange_reduces(exchange->kind) || (exchange->kind == SG_NCCL_REDUCE && rank != exchange->peer))
        return CUDA_SUCCESS;
    const CUresult result = put_wait(enqueued, SG_GIVEN);
    return result == CUDA_SUCCESS ? put_step(enqueued, REDUCE) : result;
}

/* Where what the rank takes is when all are there; NULL: it takes nothing. */
static const unsigned char *taken(const struct sg_enqueued *enqueued)
{
    const struct sg_exchange *exchange = enqueued->exchange;
    const int rank = enqueued->call.comm->rank;
    switch (enqueued->call.kind) {
    case SG_NCCL_ALL_REDUCE:
        return exchange->reduced;
    case SG_NCCL_REDUCE:
        return rank == exchange->peer ? exchange->reduced : NULL;
    case SG_NCCL_REDUCE_SCATTER:
        return exchange->reduced + (size_t)rank * exchange->count * rg_nccl_type_size(exchange->type);
    case SG_NCCL_ALL_GATHER:
    case SG_NCCL_BROADCAST:
    case SG_NCCL_RECEIVE:
        return exchange->places;
    case SG_NCCL_SEND:
        break;
    }
    return NULL;
}

static CUresult take(const struct sg_enqueued *enqueued)
{
    const struct sg_nccl_call *call = &enqueued->call;
    const unsigned char *from = taken(enqueued);
    CUresult result = CUDA_SUCCESS;
    if (from && (!sg_exchange_reduces(call->kind) || call->kind == SG_NCCL_ALL_REDUCE))
        result = put_wait(enqueued, call->kind == SG_NCCL_ALL_REDUCE ? SG_REDUCED : SG_GIVEN);
    /* The root of a broadcast in place has it already. */
    if (result == CUDA_SUCCESS && from &&
        !(call->kind == SG_NCCL_BROADCAST && call->send == call->receive && call->comm->rank == call->peer))
        result = copy_taken(call, from);
    return result == CUDA_SUCCESS ? put_step(enqueued, DEPART) : result;
}

ncclResult_t sg_exchange_enqueue(struct sg_enqueued *enqueued, int pass)
{
    static CUresult (*const passes[SG_NCCL_PASSES])(const struct sg_enqueued *) = {give, reduce, take};
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    ncclComm_t comm = enqueued->call.comm;
    struct sg_clique *clique = comm->clique;
    CUcontext popped;
    CUresult status = driver->p_cuCtxPushCurrent(comm->context);
    if (status != CUDA_SUCCESS)
        return sg_nccl_fail(ncclUnhandledCudaError, "%s: the context of rank %d is gone (CUDA error %d)",
                            kind_names[enqueued->call.kind], comm->rank, status);
    pthread_mutex_lock(&clique->lock);
    ncclResult_t result = clique->error == ncclSuccess && pass == 0 ? take_part(enqueued) : clique->error;
    pthread_mutex_unlock(&clique->lock);
    if (result == ncclSuccess && (status = passes[pass](enqueued)) != CUDA_SUCCESS) {
        pthread_mutex_lock(&clique->lock);
        sg_clique_fail_locked(clique, ncclRemoteError,
                              "rank %d could not put %s into its stream (CUDA error %d)", comm->rank,
                              kind_names[enqueued->call.kind], status);
        pthread_mutex_unlock(&clique->lock);
        result = ncclUnhandledCudaError;
    }
    (void)driver->p_cuCtxPopCurrent(&popped);
    return result;
}
