/*
 * capture.c - see capture.h.
 *
 * Happy path: the calls of a communicator in a group are kept, as one node behind all of their streams. Each launch of a graph puts them,
 * as a group, into the stream that the node has then: operations are numbered when graphs are launched, among the calls that are made
 * without graphs, and their memory is taken then.
 *
 * A communicator that its program destroys while graphs have calls of it lives on, for their launches, and leaves its clique with the last
 * of them. One that is aborted fails at once; launches fail from then on, as they do when it has been finalised.
 */
#include "softgpu/nccl/capture.h"

#include "common/base/cleanup.h"
#include "common/base/status.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/group.h"

#include <stdlib.h>
#include <string.h>

struct node {
    struct rg_captured_work work;
    ncclComm_t comm;
    size_t n;
    struct sg_nccl_call calls[]; /* of the communicator */
};

/* --- what a graph does with a node ------------------------------------------------------------------------ */

static CUresult run(struct rg_captured_work *work, CUstream stream)
{
    const struct node *node = (const struct node *)work;
    RG_CLEANUP_FREE struct sg_nccl_call *calls = malloc(node->n * sizeof *calls);
    if (!calls)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->comm->ended) {
        (void)sg_nccl_fail(ncclInvalidUsage, "a graph has calls of a communicator that has been finalised");
        return CUDA_ERROR_UNKNOWN;
    }
    memcpy(calls, node->calls, node->n * sizeof *calls);
    for (size_t i = 0; i < node->n; i++)
        calls[i].stream = stream;
    return sg_group_run(calls, node->n) == ncclSuccess ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* One node less has calls of it. */
static void release(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->clique->lock);
    const bool last = --comm->graphs == 0 && comm->left;
    pthread_mutex_unlock(&comm->clique->lock);
    if (last)
        (void)sg_clique_leave(comm, false);
}

static void end(struct rg_captured_work *work)
{
    struct node *node = (struct node *)work;
    release(node->comm);
    free(node);
}

bool sg_capture_keeps(ncclComm_t comm)
{
    sg_nccl_driver()->captured->collect();
    pthread_mutex_lock(&comm->clique->lock);
    const bool keeps = comm->graphs > 0;
    comm->left = keeps;
    pthread_mutex_unlock(&comm->clique->lock);
    return keeps;
}

/* --- making nodes ------------------------------------------------------------------------------------------- */

static struct node *make(ncclComm_t comm, const struct sg_nccl_call *calls, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += calls[i].comm == comm;
    struct node *node = malloc(sizeof *node + count * sizeof *calls);
    if (!node)
        return NULL;
    *node = (struct node){.work = {.owner = comm, .run = run, .end = end}, .comm = comm};
    for (size_t i = 0; i < n; i++)
        if (calls[i].comm == comm)
            node->calls[node->n++] = calls[i];
    pthread_mutex_lock(&comm->clique->lock);
    comm->graphs++;
    pthread_mutex_unlock(&comm->clique->lock);
    return node;
}

/* The calls of one communicator, of all those of a group. */
static ncclResult_t capture(ncclComm_t comm, const struct sg_nccl_call *calls, size_t n)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    RG_CLEANUP_FREE CUstream *streams = calloc(n, sizeof *streams);
    struct node *node = streams ? make(comm, calls, n) : NULL;
    CUcontext popped;
    if (!node)
        return sg_nccl_fail(ncclSystemError, "out of memory");
    for (size_t i = 0; i < node->n; i++)
        streams[i] = node->calls[i].stream;
    CUresult status = driver->p_cuCtxPushCurrent(comm->context);
    if (status == CUDA_SUCCESS) {
        status = driver->captured->add(&node->work, streams, node->n);
        (void)driver->p_cuCtxPopCurrent(&popped);
    }
    if (status == CUDA_SUCCESS)
        return ncclSuccess;
    end(&node->work);
    return sg_nccl_fail(status == CUDA_ERROR_NOT_SUPPORTED ? ncclInvalidUsage : ncclUnhandledCudaError,
                        "%s (CUDA error %d)", rg_nccl_why_not_captured(status), (int)status);
}

ncclResult_t sg_capture_calls(struct sg_nccl_call *calls, size_t *n)
{
    size_t left = 0;
    for (size_t i = 0; i < *n; i++) {
        bool first = calls[i].capture != 0;
        for (size_t k = 0; k < i && first; k++)
            first = calls[k].comm != calls[i].comm;
        if (first)
            RG_TRY(capture(calls[i].comm, calls, *n));
    }
    for (size_t i = 0; i < *n; i++)
        if (!calls[i].capture)
            calls[left++] = calls[i];
    *n = left;
    return ncclSuccess;
}

/* --- checking ------------------------------------------------------------------------------------------------ */

static ncclResult_t check_stream(struct sg_nccl_call *call)
{
    const struct sg_nccl_driver *driver = sg_nccl_driver();
    const char *name = sg_nccl_kind_name(call->kind);
    CUcontext popped;
    if (driver->p_cuCtxPushCurrent(call->comm->context) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    const CUresult status = driver->captured->number(call->stream, &call->capture);
    (void)driver->p_cuCtxPopCurrent(&popped);
    if (status == CUDA_SUCCESS)
        return ncclSuccess;
    return sg_nccl_fail(ncclUnhandledCudaError, "%s: %s (CUDA error %d)", name,
                        rg_nccl_why_not_captured(status), (int)status);
}

ncclResult_t sg_capture_check(struct sg_nccl_call *call, const struct sg_nccl_call *group, size_t n,
                              bool captured)
{
    RG_TRY(check_stream(call));
    for (size_t i = 0; i < n && (captured || call->capture); i++) {
        const char *why =
            rg_nccl_why_not_together(group[i].comm == call->comm, group[i].comm->clique == call->comm->clique,
                                     group[i].capture, call->capture);
        if (why)
            return sg_nccl_fail(ncclInvalidUsage, "%s: %s", sg_nccl_kind_name(call->kind), why);
    }
    return ncclSuccess;
}
