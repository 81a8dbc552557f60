/*
 * capture.c - calls in streams that are being captured: nodes of graphs (common/cuda/graph/captured.h). See nccl.h. Any thread.
 *
 * Happy path: the calls of a communicator in a group are kept, as one node behind all of their streams; no record leaves. Each launch of
 * a graph sends them, as the record of a group, for the stream that the node has then. So the server's library captures nothing, and
 * needs to know nothing of graphs.
 *
 * A communicator that its program destroys while graphs have calls of it lives on, for their launches, and ends with the last of them; so
 * does an operator. One that is aborted is over at once: launches fail from then on, as they do when it has been finalised, or has failed.
 */
#include "client/nccl/nccl.h"
#include "common/base/cleanup.h"
#include "common/cuda/graph/graph.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>
#include <string.h>

struct node {
    struct rg_captured_work work;
    ncclComm_t comm;
    size_t n;
    struct rg_nccl_submitted calls[]; /* of the communicator */
};

/* Guards `graphs`, `left` and `over` of all communicators. A leaf. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- what a graph does with a node ------------------------------------------------------------------------ */

static bool is_over(ncclComm_t comm)
{
    RG_SCOPED_LOCK(&lock);
    return comm->over || comm->finalized;
}

static CUresult run(struct rg_captured_work *work, CUstream stream)
{
    const struct node *node = (const struct node *)work;
    RG_CLEANUP_FREE struct rg_nccl_submitted *calls = malloc(node->n * sizeof *calls);
    ncclResult_t result = atomic_load(&node->comm->failed);
    if (!calls)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(calls, node->calls, node->n * sizeof *calls);
    for (size_t i = 0; i < node->n; i++)
        calls[i].wire.stream = (uint64_t)(uintptr_t)stream;
    if (is_over(node->comm))
        result = rg_nccl_fail(ncclInvalidUsage,
                              "a graph has calls of a communicator that has been finalised or aborted");
    else if (result == ncclSuccess)
        result = rg_nccl_run(calls, node->n);
    return result == ncclSuccess || result == ncclInProgress ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* One node less has calls of it. */
static void release(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    const bool last = --comm->graphs == 0 && comm->left, over = comm->over;
    pthread_mutex_unlock(&lock);
    if (last)
        rg_nccl_comm_end(comm, over);
}

static void end(struct rg_captured_work *work)
{
    struct node *node = (struct node *)work;
    for (size_t i = 0; i < node->n; i++)
        rg_nccl_operator_release(node->comm, (int)node->calls[i].wire.op);
    release(node->comm);
    free(node);
}

bool rg_nccl_graphs_keep(ncclComm_t comm, bool over)
{
    rg_captured_collect();
    RG_SCOPED_LOCK(&lock);
    comm->left = comm->graphs > 0;
    comm->over = comm->over || over;
    return comm->left;
}

/* --- making nodes ------------------------------------------------------------------------------------------- */

static struct node *make(ncclComm_t comm, const struct rg_nccl_submitted *calls, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += calls[i].comm == comm;
    struct node *node = malloc(sizeof *node + count * sizeof *calls);
    if (!node)
        return NULL;
    *node = (struct node){.work = {.owner = comm, .run = run, .end = end}, .comm = comm};
    for (size_t i = 0; i < n; i++)
        if (calls[i].comm == comm) {
            node->calls[node->n++] = calls[i];
            rg_nccl_operator_keep(comm, (int)calls[i].wire.op);
        }
    RG_SCOPED_LOCK(&lock);
    comm->graphs++;
    return node;
}

/* The calls of one communicator, of all those of a group. */
static ncclResult_t capture(ncclComm_t comm, const struct rg_nccl_submitted *calls, size_t n)
{
    RG_CLEANUP_FREE CUstream *streams = calloc(n, sizeof *streams);
    struct node *node = streams ? make(comm, calls, n) : NULL;
    if (!node)
        return rg_nccl_fail(ncclSystemError, "out of memory");
    for (size_t i = 0; i < node->n; i++)
        streams[i] = (CUstream)(uintptr_t)node->calls[i].wire.stream;
    const CUresult status = rg_captured_add(&node->work, streams, node->n);
    if (status == CUDA_SUCCESS)
        return ncclSuccess;
    end(&node->work);
    return rg_nccl_fail(status == CUDA_ERROR_NOT_SUPPORTED ? ncclInvalidUsage : ncclUnhandledCudaError,
                        "%s (CUDA error %d)", rg_nccl_why_not_captured(status), (int)status);
}

ncclResult_t rg_nccl_capture(struct rg_nccl_submitted *calls, size_t *n)
{
    size_t left = 0;
    for (size_t i = 0; i < *n; i++) {
        bool first = calls[i].capture != 0;
        for (size_t k = 0; k < i && first; k++)
            first = calls[k].comm != calls[i].comm;
        const ncclResult_t result = first ? capture(calls[i].comm, calls, *n) : ncclSuccess;
        if (result != ncclSuccess)
            return result;
    }
    for (size_t i = 0; i < *n; i++)
        if (!calls[i].capture)
            calls[left++] = calls[i];
    *n = left;
    return ncclSuccess;
}

/* --- checking ------------------------------------------------------------------------------------------------ */

/* Which capture the stream takes part in. */
static ncclResult_t look(const char *name, ncclComm_t comm, CUstream stream, uint64_t *capture)
{
    const CUresult status = rg_capture_number(stream, capture);
    if (status == CUDA_SUCCESS)
        return *capture ? rg_nccl_ready(name, comm) : ncclSuccess;
    return rg_nccl_fail(ncclUnhandledCudaError, "%s: %s (CUDA error %d)", name,
                        rg_nccl_why_not_captured(status), (int)status);
}

ncclResult_t rg_nccl_check_capture(const char *name, struct rg_nccl_submitted *call,
                                   const struct rg_nccl_submitted *group, size_t n, bool captured)
{
    const CUstream stream = (CUstream)(uintptr_t)call->wire.stream;
    call->capture = 0;
    if (rg_capture_takes(stream)) {
        const ncclResult_t result = look(name, call->comm, stream, &call->capture);
        if (result != ncclSuccess)
            return result;
    }
    if (!captured && !call->capture)
        return ncclSuccess;
    for (size_t i = 0; i < n; i++) {
        const char *why = rg_nccl_why_not_together(group[i].comm == call->comm,
                                                   group[i].comm->clique->whole == call->comm->clique->whole,
                                                   group[i].capture, call->capture);
        if (why)
            return rg_nccl_fail(ncclInvalidUsage, "%s: %s", name, why);
    }
    return ncclSuccess;
}
