/* steps.c - see steps.h. */
#include "softgpu/nccl/steps.h"

#include "common/base/status.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/far.h"

#include <stdlib.h>
#include <string.h>

enum action {
    COME,   /* the rank is there; it gives nothing */
    ARRIVE, /* and what it gives is, too */
    REDUCE,
    TAKE, /* of an operation by steps: it gets what there is for it, and */
    DEPART
};

struct step {
    struct sg_exchange *exchange;
    ncclComm_t comm;
    int rank;
    enum action action;
};

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
        inputs[k] = sg_exchange_given(exchange, of, first * width);
        scalars[k] = exchange->scalars + (size_t)of * 8;
    }
    sg_reduce(&reduction, sg_exchange_result(exchange, first * width), inputs, scalars, count);
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

/* The step has been done. The clique's lock is held. */
static void end_step(ncclComm_t comm)
{
    comm->pending--;
    pthread_cond_broadcast(&comm->clique->changed);
}

/* Sends what others have been told, and reads what they say of a small operation. */
static void talk(const struct step *step, struct sg_peer *const *told, int n_told)
{
    for (int i = 0; i < n_told; i++)
        sg_peer_push(told[i]);
    if (step->action == ARRIVE && sg_exchange_is_small(step->exchange)) {
        sg_clique_enter_stream(true);
        sg_far_read(step->exchange, told, n_told);
        sg_clique_enter_stream(false);
    }
    sg_exchange_enter_stream(NULL);
    for (int i = 0; i < n_told; i++)
        sg_peer_release(told[i]);
    pthread_mutex_lock(&step->comm->clique->lock);
    end_step(step->comm);
    pthread_mutex_unlock(&step->comm->clique->lock);
}

/* Whether the clique is well, and so are the buffers that are used. */
static bool is_well(const struct sg_exchange *exchange)
{
    RG_SCOPED_LOCK(&exchange->clique->lock);
    if (!sg_exchange_buffers_last(exchange))
        sg_exchange_buffers_gone(exchange);
    return exchange->clique->error == ncclSuccess;
}

/* What is done to the data itself. No lock is held. */
static void work(const struct step *step)
{
    const struct sg_exchange *exchange = step->exchange;
    if (step->action == ARRIVE)
        sg_exchange_copy_given(exchange);
    else if (sg_exchange_reduces(exchange->kind))
        reduce_blocks(exchange, step->rank);
    if (step->action == TAKE)
        sg_exchange_copy_taken(exchange);
}

static void CUDA_CB run_step(void *argument)
{
    const struct step step = *(struct step *)argument;
    struct sg_exchange *exchange = step.exchange;
    struct sg_clique *clique = exchange->clique;
    free(argument);
    sg_exchange_enter_stream(exchange);
    const bool touches = step.action == REDUCE || exchange->by_steps;
    if (touches && is_well(exchange))
        work(&step);
    struct sg_peer *told[SG_NCCL_RANKS_MAX];
    int n_told = 0;
    pthread_mutex_lock(&clique->lock);
    if (step.action == COME || step.action == ARRIVE) {
        sg_exchange_took_over(exchange);
        sg_exchange_arrives(exchange, step.rank);
        n_told = sg_far_tell_come(exchange, step.rank, told);
    }
    if (step.action == ARRIVE) {
        exchange->given |= UINT64_C(1) << step.rank;
        sg_exchange_count(exchange, SG_WORD_GIVEN);
    } else if (step.action == REDUCE) {
        exchange->done |= UINT64_C(1) << step.rank;
        sg_exchange_count(exchange, SG_WORD_REDUCED);
    } else if (step.action == TAKE || step.action == DEPART) {
        exchange->n_departed++;
    }
    sg_far_send(exchange);
    sg_exchange_finish(exchange);
    if (!n_told) {
        sg_exchange_enter_stream(NULL);
        end_step(step.comm);
    }
    pthread_mutex_unlock(&clique->lock);
    if (n_told)
        talk(&step, told, n_told);
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
    if (action == TAKE || action == DEPART)
        enqueued->exchange->enqueued = true;
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

/* Until all is given, all of it reduced, or the memory free. */
static CUresult put_wait(const struct sg_exchange *exchange, enum sg_exchange_word which, CUstream stream)
{
    return sg_nccl_driver()->p_cuStreamWaitValue32(
        stream, (CUdeviceptr)(uintptr_t)sg_exchange_word(exchange, which),
        (cuuint32_t)sg_exchange_awaited(exchange, which), CU_STREAM_WAIT_VALUE_GEQ);
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

/* The rank's own block, where its buffers are used and it is not there already. */
static CUresult gather_own(const struct sg_nccl_call *call)
{
    const size_t width = rg_nccl_type_size(call->type);
    const CUdeviceptr to = call->receive + (size_t)call->comm->rank * call->whole * width;
    return to == call->send
               ? CUDA_SUCCESS
               : sg_nccl_driver()->p_cuMemcpyDtoDAsync(to, call->send, call->count * width, call->stream);
}

static CUresult give(const struct sg_enqueued *enqueued)
{
    const struct sg_nccl_call *call = &enqueued->call;
    const struct sg_exchange *exchange = enqueued->exchange;
    const int rank = call->comm->rank;
    if (exchange->before)
        RG_TRY(put_wait(exchange->before, SG_WORD_FREE, call->stream));
    if (!sg_exchange_gives(exchange, rank) || call->kind == SG_NCCL_RECEIVE)
        return put_step(enqueued, COME);
    unsigned char *scalar = exchange->scalars + (size_t)rank * 8;
    if (exchange->op == SG_NCCL_PRE_MUL_SUM && call->operator.residence == ncclScalarHostImmediate)
        memcpy(scalar, call->operator.scalar, sizeof call->operator.scalar);
    else if (exchange->op == SG_NCCL_PRE_MUL_SUM)
        RG_TRY(sg_nccl_driver()->p_cuMemcpyDtoHAsync(scalar, call->operator.device,
                                                     rg_nccl_type_size(call->type), call->stream));
    if (!exchange->direct && !exchange->by_steps)
        RG_TRY(copy_given(call, sg_exchange_place(exchange, rank)));
    RG_TRY(put_step(enqueued, ARRIVE));
    return exchange->direct && exchange->kind == SG_NCCL_ALL_GATHER ? gather_own(call) : CUDA_SUCCESS;
}

static CUresult reduce(const struct sg_enqueued *enqueued)
{
    const struct sg_exchange *exchange = enqueued->exchange;
    const int rank = enqueued->call.comm->rank;
    if (!sg_exchange_reduces(exchange->kind) || exchange->by_steps ||
        (exchange->kind == SG_NCCL_REDUCE && rank != exchange->peer))
        return CUDA_SUCCESS;
    RG_TRY(put_wait(exchange, SG_WORD_GIVEN, enqueued->call.stream));
    return put_step(enqueued, REDUCE);
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
    if (enqueued->exchange->by_steps) {
        RG_TRY(put_wait(enqueued->exchange, SG_WORD_GIVEN, call->stream));
        return put_step(enqueued, TAKE);
    }
    if (enqueued->exchange->direct) { /* it is all there when nothing goes on in the buffers */
        RG_TRY(put_wait(enqueued->exchange, SG_WORD_FREE, call->stream));
        return put_step(enqueued, DEPART);
    }
    if (from && (!sg_exchange_reduces(call->kind) || call->kind == SG_NCCL_ALL_REDUCE))
        RG_TRY(put_wait(enqueued->exchange,
                        call->kind == SG_NCCL_ALL_REDUCE ? SG_WORD_REDUCED : SG_WORD_GIVEN, call->stream));
    /* The root of a broadcast in place has it already. */
    if (from &&
        !(call->kind == SG_NCCL_BROADCAST && call->send == call->receive && call->comm->rank == call->peer))
        RG_TRY(copy_taken(call, from));
    return put_step(enqueued, DEPART);
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
                            sg_nccl_kind_name(enqueued->call.kind), comm->rank, status);
    pthread_mutex_lock(&clique->lock);
    ncclResult_t result =
        clique->error == ncclSuccess && pass == 0 ? sg_exchange_take_part(enqueued) : clique->error;
    pthread_mutex_unlock(&clique->lock);
    if (result == ncclSuccess && (status = passes[pass](enqueued)) != CUDA_SUCCESS) {
        pthread_mutex_lock(&clique->lock);
        sg_clique_fail_locked(clique, ncclRemoteError,
                              "rank %d could not put %s into its stream (CUDA error %d)", comm->rank,
                              sg_nccl_kind_name(enqueued->call.kind), status);
        pthread_mutex_unlock(&clique->lock);
        result = ncclUnhandledCudaError;
    }
    (void)driver->p_cuCtxPopCurrent(&popped);
    return result;
}
