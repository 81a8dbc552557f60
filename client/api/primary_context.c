/*
 * primary_context.c - the primary context of each device.
 *
 * It is retained on the worker once; further retains and releases are counted here, under `lock`. The first retain takes the context
 * that the server has made ready with the hello, where it has, and asks for it elsewhere. With the last release it ends as any other
 * (context.h), and may be retained again, once all that is kept of it has been forgotten: until then other threads wait. Any thread.
 */
#include "client/api/context.h"
#include "client/core/call.h"
#include "client/core/device_list.h"
#include "client/core/session.h"
#include "client/prefetch/image_prefetch.h"
#include "client/prefetch/startup_profile.h"
#include "client/timeline/timeline.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <pthread.h>

struct primary {
    uint64_t handle; /* 0: never retained */
    unsigned references;
    unsigned flags;
    bool ends; /* and `ender` has not forgotten all of it yet */
    pthread_t ender;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct primary primaries[RG_DEVICES_MAX];

/* Whether the server has made the context ready, so that retaining it succeeds. Once. The lock is held. */
static bool is_ready(CUdevice device)
{
    static uint64_t taken[RG_SERVERS_MAX];
    const struct rg_session *session = rg_device_session(device);
    const CUdevice there = rg_device_there(session, device);
    const uint64_t bit = there >= 0 && there < 64 ? 1ull << there : 0;
    if (!(session->hello.contexts & ~taken[session->number] & bit))
        return false;
    taken[session->number] |= bit;
    return true;
}

/* Waits while another thread ends the context; destructors of what goes with it may retain and release it. The lock is held. */
static void wait_for_end(const struct primary *primary)
{
    RG_UNCANCELLED;
    while (primary->ends && !pthread_equal(primary->ender, pthread_self()))
        pthread_cond_wait(&ended, &lock);
}

/* A context that nobody holds has been destroyed, as far as calls can tell, until it is retained again. The lock is held. */
static void mark_ended(const struct primary *primary, uint64_t context)
{
    struct rg_context *shadow = rg_context_shadow((CUcontext)context);
    if (shadow && primary->references == 0)
        atomic_store(&shadow->sticky, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* Forgets all that went with the context, for which the lock is given up. */
static void forget(struct primary *primary)
{
    const uint64_t context = primary->handle;
    const bool outermost = !primary->ends;
    primary->ends = true;
    primary->ender = pthread_self();
    pthread_mutex_unlock(&lock);
    rg_context_forget_contents(context);
    rg_context_orphan_contents(context);
    pthread_mutex_lock(&lock);
    mark_ended(primary, context);
    if (outermost) {
        primary->ends = false;
        pthread_cond_broadcast(&ended);
    }
}

/* First retain: asks the worker, unless it is known what it will say. The lock is held. */
static CUresult retain_remotely(struct primary *primary, CUdevice device)
{
    CUcontext context = (CUcontext)rg_handle_create(RG_KIND_CONTEXT);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t proposed = (uint64_t)context;
    CUresult status = is_ready(device) ? rg_op_rgPrimaryTake(&context, device)
                                       : rg_op_cuDevicePrimaryCtxRetain(&context, device);
    RG_TRY(rg_handle_found(RG_KIND_CONTEXT, proposed, (uint64_t)context, status));
    struct rg_context *shadow = rg_context_shadow(context);
    *shadow = (struct rg_context){.session = rg_device_session(device),
                                  .device = device,
                                  .flags = primary->flags,
                                  .api_version = 3020,
                                  .primary = true,
                                  .settings = shadow->settings};
    primary->handle = (uint64_t)context;
    return CUDA_SUCCESS;
}

/* *first: it was not retained before. */
static CUresult retain(CUcontext *pctx, CUdevice dev, bool *first)
{
    CUresult status = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct primary *primary = &primaries[dev];
    wait_for_end(primary);
    *first = primary->references == 0;
    if (*first)
        status = retain_remotely(primary, dev);
    if (status == CUDA_SUCCESS) {
        primary->references++;
        *pctx = (CUcontext)primary->handle;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult rg_context_of_guest(CUcontext *context, CUdevice device)
{
    bool first;
    return retain(context, device, &first);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    RG_TRY(rg_context_allowed_on(dev));
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    bool first;
    const CUresult status = retain(pctx, dev, &first);
    if (status == CUDA_SUCCESS && first) {
        rg_startup_profile_context(dev, (uint64_t)*pctx);
        rg_image_prefetch_context((uint64_t)*pctx);
    }
    return status;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    CUresult status = CUDA_SUCCESS;
    RG_TRY(rg_context_allowed_on(dev));
    pthread_mutex_lock(&lock);
    struct primary *primary = &primaries[dev];
    wait_for_end(primary);
    if (primary->references == 1) { /* most likely it ends now */
        const uint64_t ends = primary->handle;
        pthread_mutex_unlock(&lock);
        rg_timeline_before_end(ends);
        pthread_mutex_lock(&lock);
    }
    if (primary->references == 0) {
        status = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--primary->references == 0) {
        rg_context_before_end(primary->handle);
        status = rg_op_cuDevicePrimaryCtxRelease_v2(dev);
        forget(primary);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* A primary context that is held while it is reset goes on as one that nothing has been set of. */
static void forget_flags(CUdevice dev)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_context *shadow = rg_context_shadow((CUcontext)primaries[dev].handle);
    if (shadow && primaries[dev].references > 0)
        shadow->flags = primaries[dev].flags = 0;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    RG_TRY(rg_context_allowed_on(dev));
    pthread_mutex_lock(&lock);
    const uint64_t context = primaries[dev].handle;
    (void)is_ready(dev);
    pthread_mutex_unlock(&lock);
    if (context) {
        rg_timeline_before_end(context);
        rg_context_before_end(context);
        rg_context_forget_contents(context); /* first: its destructors may still use the context */
        pthread_mutex_lock(&lock);
        mark_ended(&primaries[dev], context);
        pthread_mutex_unlock(&lock);
    }
    CUresult status = rg_op_cuDevicePrimaryCtxReset_v2(dev);
    if (context) {
        rg_context_orphan_contents(context);
        forget_flags(dev);
    }
    return status;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    RG_TRY(rg_context_allowed_on(dev));
    pthread_mutex_lock(&lock);
    (void)is_ready(dev); /* not as it is */
    pthread_mutex_unlock(&lock);
    CUresult status = rg_op_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
    if (status == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        primaries[dev].flags = flags;
        struct rg_context *shadow = rg_context_shadow((CUcontext)primaries[dev].handle);
        if (shadow)
            shadow->flags = flags;
        pthread_mutex_unlock(&lock);
    }
    return status;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    RG_TRY(rg_context_allowed_on(dev));
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&lock);
    *flags = primaries[dev].flags;
    *active = primaries[dev].references > 0;
    return CUDA_SUCCESS;
}
