/*
 * peer_copy.c - copies between servers (fence.h).
 *
 * A copy is taken apart. At the source, a stream of its own comes to a point before each part and waits there. The
 * destination's worker pulls the parts in the order of the copy's stream; its first question for one lets that part and a
 * few behind it go. What has landed goes on to the destination from the memory it landed in.
 *
 * Threads: callers, and readers, which call `start`, `reached` and `landed` and must not be held up. `lock` guards the
 * states of parts; it is a leaf.
 */
#include "client/multiserver/fence.h"

#include "client/core/call.h"
#include "client/transfer/protocol.h"
#include "client/transfer/transfer.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define PART   ((size_t)RG_BULK_MAX) /* bytes that are let go at once */
#define WINDOW 4                     /* parts that are sent ahead of the one asked for */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct crossing;

/* A part of a copy: a point and a copy out at the source, a pull at the destination. */
struct part {
    struct rg_lazy_source supply; /* first */
    struct crossing *crossing;
    struct rg_region to, from;
    uint64_t point, landing;
    /* guarded by `lock` */
    unsigned char *memory; /* once it is wanted */
    bool wanted, at_point, landed;
    unsigned known; /* to how many of point, landing and pull */
};

struct crossing {
    struct rg_session *from, *to;
    struct rg_helper_stream *helper; /* of the source; given back with the crossing */
    atomic_size_t references;        /* parts that are known to somebody, and the maker */
    size_t n;
    struct part parts[];
};

static void crossing_release(struct crossing *crossing)
{
    if (atomic_fetch_sub(&crossing->references, 1) != 1)
        return;
    rg_helper_stream_give(crossing->helper);
    free(crossing);
}

static void part_release(struct part *part)
{
    pthread_mutex_lock(&lock);
    const bool last = --part->known == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    free(part->memory);
    crossing_release(part->crossing);
}

/* Lets the source send a part, unless that has been done. */
static void want(struct part *part)
{
    struct crossing *crossing = part->crossing;
    pthread_mutex_lock(&lock);
    const bool before = part->memory != NULL;
    if (!before)
        part->memory = calloc(1, rg_region_size(&part->to)); /* zeros, should nothing come */
    unsigned char *memory = part->memory;
    pthread_mutex_unlock(&lock);
    if (before)
        return;
    if (!memory) {
        rg_session_end(crossing->to, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a copy between servers");
        rg_session_end(crossing->from, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a copy between servers");
        return;
    }
    rg_read_set_memory(part->landing, memory);
    pthread_mutex_lock(&lock);
    part->wanted = true;
    const bool release = part->at_point, ready = part->landed;
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(crossing->from, part->point);
    if (ready)
        rg_lazy_source_ready(crossing->to, &part->supply, memory);
}

/* The source's stream has come to the part. */
static void reached(void *user, bool alive)
{
    struct part *part = user;
    pthread_mutex_lock(&lock);
    part->at_point = alive;
    const bool release = alive && part->wanted;
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(part->crossing->from, part->point);
    part_release(part);
}

/* Nothing more comes from the source. Without the data there are zeros and an error, so that the stream goes on. */
static void landed(void *user, bool complete)
{
    struct part *part = user;
    struct rg_session *to = part->crossing->to;
    pthread_mutex_lock(&lock);
    part->landed = true;
    const bool ready = part->wanted;
    pthread_mutex_unlock(&lock);
    if (!complete)
        rg_session_async_error(to, CUDA_ERROR_DEVICE_UNAVAILABLE, RG_OP_rgCopyInLate);
    if (ready)
        rg_lazy_source_ready(to, &part->supply, part->memory);
    part_release(part);
}

/* While `start` runs, all parts may come to their end. */
static void keep(struct rg_lazy_source *supply)
{
    atomic_fetch_add(&((struct part *)supply)->crossing->references, 1);
}

/* The destination asks for a part: that and the next ones are sent by the source. */
static void start(struct rg_lazy_source *supply)
{
    struct part *first = (struct part *)supply;
    struct crossing *crossing = first->crossing;
    for (struct part *part = first; part < crossing->parts + crossing->n && part <= first + WINDOW; part++)
        want(part);
    crossing_release(crossing);
}

static void finish(struct rg_lazy_source *supply)
{
    struct part *part = (struct part *)supply;
    want(part); /* also of no use any more: the source's stream must not stay where it is */
    part_release(part);
}

/* Takes the copy apart. */
static struct crossing *crossing_create(const struct rg_copy *copy)
{
    const size_t total = rg_region_size(&copy->to);
    size_t n = 0;
    for (size_t at = 0; at < total; n++) {
        const struct rg_region cut = rg_region_cut(&copy->to, at, PART);
        at += rg_region_size(&cut);
    }
    struct crossing *crossing = calloc(1, sizeof *crossing + n * sizeof(struct part));
    if (!crossing)
        return NULL;
    crossing->n = n;
    for (size_t i = 0, at = 0; i < n; at += rg_region_size(&crossing->parts[i++].to))
        crossing->parts[i] = (struct part){.supply = {.keep = keep, .start = start, .finish = finish},
                                           .crossing = crossing,
                                           .to = rg_region_cut(&copy->to, at, PART),
                                           .from = rg_region_cut(&copy->from, at, PART),
                                           .known = 3};
    atomic_init(&crossing->references, n + 1);
    return crossing;
}

/* What has been registered for a record that could not be sent; the session's end may have been faster. */
static void withdraw(struct part *part, uint64_t id)
{
    if (id && rg_transfer_cancel(id))
        part_release(part);
    else if (!id)
        part_release(part);
}

/* Puts the source's side into the helper's stream: each part waits until it is wanted. The source's context is current. */
static CUresult put_source(struct crossing *crossing)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < crossing->n; i++) {
        struct part *part = &crossing->parts[i];
        CUstream stream = crossing->helper->stream;
        part->point = rg_fence_create(crossing->from, reached, part);
        part->landing = rg_read_create_staged(crossing->from, rg_region_size(&part->from), landed, part);
        if (status == CUDA_SUCCESS)
            status = part->point && part->landing ? rg_op_rgHostCall(stream, part->point, 0)
                                                  : CUDA_ERROR_OUT_OF_MEMORY;
        if (status != CUDA_SUCCESS)
            withdraw(part, part->point);
        else
            status = rg_copy_put_deferred_read(&part->from, stream, part->landing);
        if (status != CUDA_SUCCESS)
            withdraw(part, part->landing);
    }
    return status;
}

/* Puts the destination's side into the stream, unless `status` says that the source's side is not complete: then nobody
 * will ask for the parts. The destination's context is current. */
static CUresult put_pulls(struct crossing *crossing, CUstream stream, CUresult status)
{
    for (size_t i = 0; i < crossing->n; i++) {
        struct part *part = &crossing->parts[i];
        const size_t size = rg_region_size(&part->to);
        const uint64_t id =
            status == CUDA_SUCCESS ? rg_rendezvous_create_lazy(crossing->to, size, &part->supply) : 0;
        if (status == CUDA_SUCCESS)
            status = id ? rg_copy_put_rendezvous(&part->to, stream, id) : CUDA_ERROR_OUT_OF_MEMORY;
        if (status != CUDA_SUCCESS && (!id || rg_transfer_cancel(id)))
            finish(&part->supply);
    }
    return status;
}

/* Nothing of it has been registered. */
static void abandon(struct crossing *crossing)
{
    for (size_t i = 0; i < crossing->n; i++)
        crossing_release(crossing);
}

/*
 * All that the workers have to do is put into their streams at once (rg_calls_together_begin): a worker that waits in a
 * call that must stay in order, such as cuMemFree, executes no further ones meanwhile, but takes answers.
 */
static CUresult put_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_context)
{
    struct rg_helper_stream *helper;
    CUresult status = from_context ? rg_helper_stream_take(from_context, copy->stream, &helper)
                                   : CUDA_ERROR_INVALID_CONTEXT;
    if (status != CUDA_SUCCESS)
        return status;
    struct crossing *crossing = crossing_create(copy);
    if (!crossing) {
        rg_helper_stream_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    crossing->from = rg_home_session(from_context);
    crossing->to = rg_home_session(to_home);
    crossing->helper = helper;
    struct rg_proxy proxy;
    status = rg_proxy_begin(&proxy, to_home, copy->stream, false);
    const bool begun = status == CUDA_SUCCESS;
    if (begun)
        status = rg_context_enter(from_context);
    if (status == CUDA_SUCCESS) {
        rg_calls_together_begin();
        status = put_source(crossing);
        rg_context_leave();
        status = put_pulls(crossing, proxy.stream, status);
        rg_calls_together_end();
    } else {
        abandon(crossing);
    }
    if (begun)
        status = rg_proxy_end(&proxy, status);
    crossing_release(crossing);
    return status;
}

CUresult rg_peer_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_home)
{
    const uint64_t from_context = rg_home_context(from_home);
    CUresult status = CUDA_SUCCESS;
    if (!copy->asynchronous) { /* it comes behind what both devices were given by their default streams */
        status = rg_fence_synchronize(from_context, CU_STREAM_LEGACY);
        if (status == CUDA_SUCCESS)
            status = rg_fence_synchronize(rg_home_context(to_home), CU_STREAM_LEGACY);
    }
    if (status == CUDA_SUCCESS)
        status = put_copy(copy, to_home, from_context);
    if (status == CUDA_SUCCESS && !copy->asynchronous)
        status = rg_op_cuStreamSynchronize(copy->stream);
    return status;
}
