/* prealloc.c - blocks are taken, and asked for; answers and notices bring them. See prealloc.h. */
#include "client/prealloc/prealloc.h"

#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/receiver.h"
#include "client/core/thread.h"
#include "client/prealloc/slabs.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <string.h>

#define FIRST 2u            /* so many are made ready at first */
#define LARGE (64ull << 20) /* of blocks of this size, no more than that */
#define HINTED_NS                                                                                            \
    10000000000ull     /* what was hinted is kept so much longer: frameworks take their time to start */
#define UNREAD_MAX 64u /* notices that may be due at a time */

static uint64_t next_slab_id = 1; /* guarded by the lock of slabs, as is the next */
/*
 * Records that the worker answers with a notice, and has not yet. A program that only sends reads no notices:
 * were there more than the connection holds, the worker would wait until somebody reads, and the program
 * until the worker does.
 */
static unsigned unread[RG_SERVERS_MAX];
static atomic_bool announced[RG_SERVERS_MAX]; /* the worker knows that it may reclaim */

/* The session of the current context, if memory can be made ready there. */
static struct rg_session *usable(void)
{
    struct rg_session *session = rg_session_current();
    return rg_optimise[RG_OPT_PREALLOC] && session->op_numbers[RG_OP_rgMemPrealloc] ? session : NULL;
}

static bool pop(struct rg_slab *slab, struct rg_prealloc_block *out)
{
    if (!slab || !slab->n)
        return false;
    *out = slab->blocks[0]; /* the oldest */
    memmove(&slab->blocks[0], &slab->blocks[1], --slab->n * sizeof *slab->blocks);
    return true;
}

/* How many are to be asked for, so that there are as many as the target says; they count as due. The lock is
 * held. */
static unsigned refill(struct rg_slab *slab)
{
    const unsigned have = slab->n + slab->due;
    const unsigned more = have <= slab->target / 2 ? slab->target - have : 0;
    if (!more || unread[slab->session->number] == UNREAD_MAX)
        return 0;
    unread[slab->session->number]++;
    slab->due += more;
    return more;
}

/* Takes the blocks of an answer to rgMemPreallocHints into the slabs that still wait for them. Any thread, more
 * than once. */
static void settle(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    struct rg_session *session = future->session;
    bool bad = false;
    pthread_mutex_lock(&rg_slabs.lock);
    for (uint64_t i = 0; i < future->user[1]; i++) {
        uint64_t made = 0;
        if (result == CUDA_SUCCESS)
            rg_get_into(&reply, &made, sizeof made);
        const void *blocks = !reply.bad && made <= RG_PREALLOC_MAX
                                 ? rg_get(&reply, made * sizeof(struct rg_prealloc_block))
                                 : NULL;
        struct rg_slab *slab =
            rg_slabs_find_id(session, future->user[0] + i); /* NULL: given back meanwhile */
        bad |= !blocks || (slab && slab->future && made > slab->due);
        if (!slab || !slab->future)
            continue;
        if (!bad)
            memcpy(slab->blocks, blocks, made * sizeof *slab->blocks);
        slab->n = bad ? 0 : (unsigned)made;
        slab->due = 0;
        rg_slab_drop_future(slab);
    }
    pthread_mutex_unlock(&rg_slabs.lock);
    if (bad && result == CUDA_SUCCESS)
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s sent a malformed message (%s)",
                       session->server, "memory that was hinted");
}

/* Waits for the answer that has what is wanted, if it was hinted. */
static void await_hinted(const struct rg_prealloc_key *key)
{
    pthread_mutex_lock(&rg_slabs.lock);
    const struct rg_slab *slab = rg_slabs_find(key, rg_context_current_owner());
    struct rg_future *future = slab ? slab->future : NULL;
    if (future)
        rg_future_keep(future);
    pthread_mutex_unlock(&rg_slabs.lock);
    if (!future)
        return;
    struct rg_reader reply;
    const CUresult result = rg_future_wait(future, &reply);
    settle(future, result, reply); /* the thread that has read it may not have come to that yet */
    rg_future_release(future);
}

bool rg_prealloc_take(const struct rg_prealloc_key *key, struct rg_prealloc_block *out)
{
    struct rg_session *session = usable();
    if (!session || !rg_prealloc_any(session))
        return false;
    if (atomic_load_explicit(&rg_slabs.awaited, memory_order_relaxed))
        await_hinted(key);
    unsigned more = 0;
    pthread_mutex_lock(&rg_slabs.order);
    pthread_mutex_lock(&rg_slabs.lock);
    struct rg_slab *slab = rg_slabs_find(key, rg_context_current_owner());
    bool got = pop(slab, out);
    if (!got && slab && slab->due) {
        pthread_mutex_unlock(&rg_slabs.lock);
        rg_receiver_poll(session);
        pthread_mutex_lock(&rg_slabs.lock); /* the slab is still there: nobody else has `order` */
        got = pop(slab, out);
    }
    if (got) {
        slab->hinted &= slab->n != 0;
        if (!slab->hinted)
            slab->used = rg_now_ns();
        more = refill(slab);
    }
    pthread_mutex_unlock(&rg_slabs.lock);
    if (got)
        got = rg_op_rgMemTake(slab->slab_id, out->address, key->stream, key->pool, more) == CUDA_SUCCESS;
    pthread_mutex_unlock(&rg_slabs.order);
    return got;
}

/* The worker may reclaim what is made ready from now on. `order` is held. */
static void announce(const struct rg_session *session)
{
    if (session->op_numbers[RG_OP_rgMemMayReclaim] && !atomic_exchange(&announced[session->number], true))
        (void)rg_op_rgMemMayReclaim();
}

/* Takes a slab with memory for it that was not there before; NULL: it is not a new one. Both locks are
 * held. */
static struct rg_slab *expect(const struct rg_prealloc_key *key, unsigned count, struct rg_session *session,
                              struct rg_future *future)
{
    struct rg_slab *slab = count && count <= RG_PREALLOC_MAX ? rg_slabs_add(key, session) : NULL;
    if (!slab || slab->slab_id)
        return NULL;
    slab->slab_id = next_slab_id++;
    slab->asked = 1;
    slab->due = count;
    slab->hinted = true;
    slab->used = rg_now_ns() + HINTED_NS;
    slab->future = future;
    rg_future_keep(future);
    atomic_fetch_add(&rg_slabs.awaited, 1);
    atomic_fetch_add(&rg_slabs.live[session->number], 1);
    return slab;
}

void rg_prealloc_hint(const struct rg_prealloc_key *keys, const unsigned *counts, unsigned n)
{
    struct rg_session *session = usable();
    struct rg_prealloc_hint hints[RG_PREALLOC_HINTS];
    struct rg_call reply;
    unsigned made = 0;
    if (!session || !n || n > RG_PREALLOC_HINTS || !session->op_numbers[RG_OP_rgMemPreallocHints])
        return;
    struct rg_future *future = rg_future_begin(settle);
    if (!future)
        return;
    pthread_mutex_lock(&rg_slabs.order);
    pthread_mutex_lock(&rg_slabs.lock);
    future->user[0] = next_slab_id;
    for (unsigned i = 0; i < n; i++) {
        const struct rg_slab *slab = expect(&keys[i], counts[i], session, future);
        if (slab)
            hints[made++] = (struct rg_prealloc_hint){.slab_id = slab->slab_id,
                                                      .size = keys[i].size,
                                                      .height = keys[i].height,
                                                      .kind = keys[i].kind,
                                                      .element = keys[i].element,
                                                      .count = counts[i]};
    }
    future->user[1] = made;
    pthread_mutex_unlock(&rg_slabs.lock);
    future->session = session;
    if (made)
        announce(session);
    const CUresult status =
        made ? rg_op_rgMemPreallocHints(made * sizeof *hints, hints, future, &reply) : CUDA_ERROR_NOT_FOUND;
    pthread_mutex_unlock(&rg_slabs.order);
    if (status != CUDA_SUCCESS)
        settle(future, status, rg_reader_of(NULL, 0));
    if (rg_future_end(future, status) == CUDA_SUCCESS)
        rg_future_release(future);
}

void rg_prealloc_want(const struct rg_prealloc_key *key)
{
    struct rg_session *session = usable();
    if (!session)
        return;
    unsigned more = 0;
    pthread_mutex_lock(&rg_slabs.order);
    pthread_mutex_lock(&rg_slabs.lock);
    unread[session->number] = 0; /* the answer came after them */
    struct rg_slab *slab = rg_slabs_add(key, session);
    if (slab && slab->refused)
        slab->refused--;
    else if (slab && ++slab->asked > 1) {
        const unsigned most = key->size >= LARGE ? FIRST : RG_PREALLOC_MAX;
        slab->target = !slab->target ? FIRST : slab->target < most / 2 ? slab->target * 2 : most;
        slab->used = rg_now_ns();
        if (!slab->slab_id) {
            slab->slab_id = next_slab_id++;
            atomic_fetch_add(&rg_slabs.live[session->number], 1);
        }
        more = refill(slab);
    }
    pthread_mutex_unlock(&rg_slabs.lock);
    if (more)
        announce(session);
    if (more && rg_op_rgMemPrealloc(slab->slab_id, key->kind, key->size, key->height, key->element,
                                    key->stream, key->pool, more) != CUDA_SUCCESS) {
        pthread_mutex_lock(&rg_slabs.lock);
        slab->due -= more; /* the session is over */
        pthread_mutex_unlock(&rg_slabs.lock);
    }
    pthread_mutex_unlock(&rg_slabs.order);
}

bool rg_prealloc_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                        size_t bulk_size)
{
    (void)bulk_size;
    const uint64_t ready = notice->arg[0], refused = notice->arg[1];
    if (!notice->id || ready > RG_PREALLOC_MAX || refused > RG_PREALLOC_MAX)
        return false;
    const void *blocks = rg_get(in, ready * sizeof(struct rg_prealloc_block));
    if (!blocks)
        return false;
    bool good = true;
    RG_SCOPED_LOCK(&rg_slabs.lock);
    if (unread[session->number])
        unread[session->number]--;
    struct rg_slab *slab = rg_slabs_find_id(session, notice->id); /* NULL: it has been given back meanwhile */
    if (slab) {
        good = ready + refused <= slab->due && ready <= RG_PREALLOC_MAX - slab->n;
        if (good) {
            memcpy(&slab->blocks[slab->n], blocks, ready * sizeof *slab->blocks);
            slab->n += (unsigned)ready;
            slab->due -= (unsigned)(ready + refused);
        }
        if (refused) {
            slab->target = 0;
            slab->refused = RG_SLAB_REFUSED;
        }
    }
    return good;
}
