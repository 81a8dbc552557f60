/*
 * peer_copy.c - see peer_copy.h.
 *
 * A copy is taken apart. At the source, a stream of its own comes to a fence before each part and waits
 * there. The destination's worker pulls the parts in the order of the copy's stream; its first question for
 * one lets that part and a few behind it go. What has been read goes on to the destination from the memory it
 * was read into.
 *
 * Where the two workers are connected (peer_link.h) none of this is needed: one record on each side makes them copy by themselves,
 * the source in a stream of its own, which waits until the destination's stream has come to the copy and asks.
 *
 * Threads: callers, and readers, which call `start`, `reached` and `arrived` and must not be held up. `lock`
 * guards the states of parts; it is a leaf.
 */
#include "client/multiserver/peer_copy.h"

#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/home.h"
#include "client/core/probe.h"
#include "client/multiserver/helper_stream.h"
#include "client/multiserver/peer_link.h"
#include "client/multiserver/proxy.h"
#include "client/transfer/protocol.h"
#include "client/transfer/transfer.h"
#include "common/base/tuning.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define PART   ((size_t)RG_BULK_MAX) /* bytes that are let go at once */
#define WINDOW 4                     /* parts that are sent ahead of the one asked for */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct peer_copy;

/* A part of a copy: a fence and a deferred read at the source, a rendezvous at the destination. */
struct part {
    struct rg_lazy_source source; /* first */
    struct peer_copy *copying;
    struct rg_region to, from;
    uint64_t fence, read;
    /* guarded by `lock` */
    unsigned char *memory; /* once it is wanted */
    bool wanted, at_fence, arrived;
    unsigned known; /* to how many of fence, read and rendezvous */
};

struct peer_copy {
    struct rg_session *from, *to;
    struct rg_helper_stream *helper; /* of the source; given back with the copying */
    atomic_size_t references;        /* parts that are known to somebody, and the maker */
    size_t n;
    struct part parts[];
};

static void release(struct peer_copy *copying)
{
    if (atomic_fetch_sub(&copying->references, 1) != 1)
        return;
    rg_helper_stream_give(copying->helper);
    free(copying);
}

static void part_release(struct part *part)
{
    pthread_mutex_lock(&lock);
    const bool last = --part->known == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    free(part->memory);
    release(part->copying);
}

/* Lets the source send a part, unless that has been done. */
static void want(struct part *part)
{
    struct peer_copy *copying = part->copying;
    pthread_mutex_lock(&lock);
    const bool before = part->memory != NULL;
    if (!before)
        part->memory = calloc(1, rg_region_size(&part->to)); /* zeros, should nothing come */
    unsigned char *memory = part->memory;
    pthread_mutex_unlock(&lock);
    if (before)
        return;
    if (!memory) {
        rg_session_end(copying->to, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a copy between servers");
        rg_session_end(copying->from, CUDA_ERROR_OUT_OF_MEMORY, "no memory for a copy between servers");
        return;
    }
    rg_read_set_memory(part->read, memory);
    pthread_mutex_lock(&lock);
    part->wanted = true;
    const bool release = part->at_fence, ready = part->arrived;
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(copying->from, part->fence);
    if (ready)
        rg_lazy_source_ready(copying->to, &part->source, memory);
}

/* The source's stream has come to the part. */
static void reached(void *user, bool alive)
{
    struct part *part = user;
    pthread_mutex_lock(&lock);
    part->at_fence = alive;
    const bool release = alive && part->wanted;
    pthread_mutex_unlock(&lock);
    if (release)
        rg_fence_release(part->copying->from, part->fence);
    part_release(part);
}

/* Nothing more comes from the source. Without the data there are zeros and an error, so that the stream goes
 * on. */
static void arrived(void *user, bool complete)
{
    struct part *part = user;
    struct rg_session *to = part->copying->to;
    pthread_mutex_lock(&lock);
    part->arrived = true;
    const bool ready = part->wanted;
    pthread_mutex_unlock(&lock);
    if (!complete)
        rg_session_async_error(to, CUDA_ERROR_DEVICE_UNAVAILABLE, RG_OP_rgCopyInDeferred);
    if (ready)
        rg_lazy_source_ready(to, &part->source, part->memory);
    part_release(part);
}

/* While `start` runs, all parts may come to their end. */
static void keep(struct rg_lazy_source *source)
{
    atomic_fetch_add(&((struct part *)source)->copying->references, 1);
}

/* The destination asks for a part: that and the next ones are sent by the source. */
static void start(struct rg_lazy_source *source)
{
    struct part *first = (struct part *)source;
    struct peer_copy *copying = first->copying;
    for (struct part *part = first; part < copying->parts + copying->n && part <= first + WINDOW; part++)
        want(part);
    release(copying);
}

static void finish(struct rg_lazy_source *source)
{
    struct part *part = (struct part *)source;
    want(part); /* also of no use any more: the source's stream must not stay where it is */
    part_release(part);
}

/* Takes the copy apart. */
static struct peer_copy *create(const struct rg_copy *copy)
{
    const size_t total = rg_region_size(&copy->to);
    size_t n = 0;
    for (size_t at = 0; at < total; n++) {
        const struct rg_region cut = rg_region_cut(&copy->to, at, PART);
        at += rg_region_size(&cut);
    }
    struct peer_copy *copying = calloc(1, sizeof *copying + n * sizeof(struct part));
    if (!copying)
        return NULL;
    copying->n = n;
    for (size_t i = 0, at = 0; i < n; at += rg_region_size(&copying->parts[i++].to))
        copying->parts[i] = (struct part){.source = {.keep = keep, .start = start, .finish = finish},
                                          .copying = copying,
                                          .to = rg_region_cut(&copy->to, at, PART),
                                          .from = rg_region_cut(&copy->from, at, PART),
                                          .known = 3};
    atomic_init(&copying->references, n + 1);
    return copying;
}

/* What has been registered for a record that could not be sent; the session's end may have been faster. */
static void withdraw(struct part *part, uint64_t id)
{
    if (id && rg_transfer_cancel(id))
        part_release(part);
    else if (!id)
        part_release(part);
}

/* Puts the source's side into the helper's stream: each part waits until it is wanted. The source's context
 * is current. */
static CUresult put_source(struct peer_copy *copying)
{
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < copying->n; i++) {
        struct part *part = &copying->parts[i];
        CUstream stream = copying->helper->stream;
        part->fence = rg_fence_create(copying->from, reached, part);
        part->read = rg_read_create_staged(copying->from, rg_region_size(&part->from), arrived, part);
        if (status == CUDA_SUCCESS)
            status = part->fence && part->read ? rg_op_rgHostCall(stream, part->fence, 0)
                                               : CUDA_ERROR_OUT_OF_MEMORY;
        if (status != CUDA_SUCCESS)
            withdraw(part, part->fence);
        else
            status = rg_copy_put_deferred_read(&part->from, stream, part->read);
        if (status != CUDA_SUCCESS)
            withdraw(part, part->read);
    }
    return status;
}

/* Puts the destination's side into the stream, unless `status` says that the source's side is not complete:
 * then nobody will ask for the parts. The destination's context is current. */
static CUresult put_destination(struct peer_copy *copying, CUstream stream, CUresult status)
{
    for (size_t i = 0; i < copying->n; i++) {
        struct part *part = &copying->parts[i];
        const size_t size = rg_region_size(&part->to);
        const uint64_t id =
            status == CUDA_SUCCESS ? rg_rendezvous_create_lazy(copying->to, size, &part->source) : 0;
        if (status == CUDA_SUCCESS)
            status = id ? rg_copy_put_rendezvous(&part->to, stream, id) : CUDA_ERROR_OUT_OF_MEMORY;
        if (status != CUDA_SUCCESS && (!id || rg_transfer_cancel(id)))
            finish(&part->source);
    }
    return status;
}

/* Nothing of it has been registered. */
static void abandon(struct peer_copy *copying)
{
    for (size_t i = 0; i < copying->n; i++)
        release(copying);
}

/*
 * All that the workers have to do is put into their streams at once (rg_calls_together_begin): a worker that
 * waits in a call that must stay in order, such as cuMemFree, executes no further ones meanwhile, but takes
 * answers.
 */
static CUresult put_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_context)
{
    struct rg_helper_stream *helper;
    RG_TRY(from_context ? rg_helper_stream_take(from_context, copy->stream, &helper)
                        : CUDA_ERROR_INVALID_CONTEXT);
    struct peer_copy *copying = create(copy);
    if (!copying) {
        rg_helper_stream_give(helper);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    copying->from = rg_home_session(from_context);
    copying->to = rg_home_session(to_home);
    copying->helper = helper;
    struct rg_proxy proxy;
    CUresult status = rg_proxy_begin(&proxy, to_home, copy->stream, false);
    const bool begun = status == CUDA_SUCCESS;
    if (begun)
        status = rg_context_scope_enter(from_context);
    if (status == CUDA_SUCCESS) {
        rg_calls_together_begin();
        status = put_source(copying);
        rg_context_scope_leave();
        status = put_destination(copying, proxy.stream, status);
        rg_calls_together_end();
    } else {
        abandon(copying);
    }
    if (begun)
        status = rg_proxy_end(&proxy, status);
    release(copying);
    return status;
}

/* --- from one server to the other -------------------------------------------------------------------------- */

#define PIECE ((size_t)256 << 20) /* bytes that one pair of records copies */

static CUresult put_receive(const struct rg_region *to, CUstream stream, uint64_t transfer, unsigned peer)
{
    if (rg_region_is_rows(to))
        return rg_op_rgPeerReceive(to->address, to->pitch, to->width, to->height, stream, transfer, peer);
    const CUDA_MEMCPY3D box = rg_copy_box(to, NULL);
    return rg_op_rgPeerReceiveBox(&box, to->array, stream, transfer, peer);
}

static CUresult put_send(const struct rg_region *from, CUstream stream, uint64_t transfer, unsigned peer)
{
    if (rg_region_is_rows(from))
        return rg_op_rgPeerSend(from->address, from->pitch, from->width, from->height, stream, transfer,
                                peer);
    const CUDA_MEMCPY3D box = rg_copy_box(NULL, from);
    return rg_op_rgPeerSendBox(&box, from->array, stream, transfer, peer);
}

/* What the half that was just put brings its server to send or receive: what is asked for comes, some chunks at a time. */
static void tell_probe(uint64_t transfer, uint64_t sent, uint64_t received)
{
    rg_probe_exchanged(&(struct rg_probe_exchange){
        .key = transfer,
        .sent = sent,
        .received = received,
        .ways = 2,
        .turns = (unsigned)((sent + received) / (RG_DEFERRED_SLOTS * RG_DEFERRED_CHUNK))});
}

/*
 * Both halves of each piece. If only one could be put there, its stream would wait for the other for ever: then a session has
 * ended, or there was no memory for a record, and the other one ends, too.
 */
static CUresult put_halves(const struct rg_copy *copy, struct rg_session *to, struct rg_session *from,
                           const struct rg_proxy *proxy, uint64_t from_context, CUstream source)
{
    const size_t total = rg_region_size(&copy->to);
    CUresult status = CUDA_SUCCESS;
    for (size_t at = 0; at < total && status == CUDA_SUCCESS;) {
        const struct rg_region to_cut = rg_region_cut(&copy->to, at, PIECE),
                               from_cut = rg_region_cut(&copy->from, at, PIECE);
        const uint64_t transfer = rg_peer_transfer_number(), size = rg_region_size(&to_cut);
        status = put_receive(&to_cut, proxy->stream, transfer, from->number);
        if (status != CUDA_SUCCESS)
            return status;
        tell_probe(transfer, 0, size);
        status = rg_context_scope_enter(from_context);
        if (status == CUDA_SUCCESS) {
            status = put_send(&from_cut, source, transfer, to->number);
            tell_probe(transfer, size, 0);
            rg_context_scope_leave();
        }
        if (status != CUDA_SUCCESS)
            rg_session_end(to, status, "the other half of a copy between servers is missing");
        at += rg_region_size(&to_cut);
    }
    return status;
}

static CUresult put_direct(const struct rg_copy *copy, uint64_t to_home, uint64_t from_context)
{
    struct rg_session *const to = rg_home_session(to_home), *const from = rg_home_session(from_context);
    struct rg_helper_stream *helper;
    struct rg_proxy proxy;
    RG_TRY(rg_helper_stream_take(from_context, copy->stream, &helper));
    CUresult status = rg_proxy_begin(&proxy, to_home, copy->stream, false);
    if (status != CUDA_SUCCESS) {
        rg_helper_stream_give(helper);
        return status;
    }
    rg_calls_together_begin();
    status = put_halves(copy, to, from, &proxy, from_context, helper->stream);
    const CUresult given = rg_helper_stream_give_behind(helper);
    rg_calls_together_end();
    if (status == CUDA_SUCCESS)
        status = given;
    atomic_fetch_add(&to->stats.peer_direct, rg_region_size(&copy->to));
    if (rg_peer_link_is_rdma(to, from))
        atomic_fetch_add(&to->stats.peer_rdma, rg_region_size(&copy->to));
    return rg_proxy_end(&proxy, status);
}

CUresult rg_peer_copy(const struct rg_copy *copy, uint64_t to_home, uint64_t from_home)
{
    const uint64_t from_context = rg_home_context(from_home);
    if (!copy->asynchronous) { /* it comes behind what both devices were given by their default streams */
        RG_TRY(rg_context_scope_synchronize(from_context, CU_STREAM_LEGACY));
        RG_TRY(rg_context_scope_synchronize(rg_home_context(to_home), CU_STREAM_LEGACY));
    }
    if (from_context && rg_peer_link(rg_home_session(to_home), rg_home_session(from_context))) {
        RG_TRY(put_direct(copy, to_home, from_context));
    } else {
        atomic_fetch_add(&rg_home_session(to_home)->stats.peer_by_client, rg_region_size(&copy->to));
        RG_TRY(put_copy(copy, to_home, from_context));
    }
    return copy->asynchronous ? CUDA_SUCCESS : rg_op_cuStreamSynchronize(copy->stream);
}
