/* give_back.c - blocks go back, because what they are for ends, nobody needs them, or the worker does. See
 * prealloc.h. */
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/queue.h"
#include "client/prealloc/slabs.h"
#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <stdlib.h>

#define OLD_NS 500000000ull /* what was not needed for so long goes back */

/* Which slabs; 0 and NULL: all. */
struct which {
    const struct rg_session *session;
    uint64_t context;
    uint64_t unused_since;
    uint32_t thread;
    bool by_stream, by_pool, ordered; /* ordered: of whichever pool */
    CUstream stream;
    CUmemoryPool pool;
};

static bool is_meant(const struct rg_slab *slab, const struct which *which)
{
    return (!which->session || slab->session == which->session) &&
           (!which->context || slab->context == which->context) &&
           (!which->unused_since || (slab->slab_id && slab->used < which->unused_since)) &&
           (!which->thread || slab->thread == which->thread) &&
           (!which->ordered || slab->key.kind == RG_PREALLOC_ORDERED) &&
           (!which->by_stream || slab->key.stream == which->stream) &&
           (!which->by_pool ||
            (slab->key.kind == RG_PREALLOC_ORDERED && (slab->key.pool == which->pool || !slab->key.pool)));
}

/* Takes the ids of the slabs that are meant, RG_PREALLOC_MAX at most, out of the table. The lock is held. */
static unsigned collect(const struct which *which, struct rg_session **sessions, uint64_t *slab_ids)
{
    unsigned n = 0;
    for (struct rg_slab *slab = rg_slabs_after(NULL), *next; slab && n < RG_PREALLOC_MAX; slab = next) {
        next = rg_slabs_after(slab);
        if (!is_meant(slab, which))
            continue;
        if (slab->slab_id) {
            sessions[n] = slab->session;
            slab_ids[n++] = slab->slab_id;
            atomic_fetch_sub(&rg_slabs.live[slab->session->number], 1);
        }
        rg_slab_drop_future(slab);
        if (which->unused_since || which->ordered) { /* that it was wanted is remembered */
            slab->slab_id = 0;
            slab->n = slab->due = slab->target = 0;
            slab->hinted = false;
        } else {
            rg_slabs_remove(slab);
        }
    }
    return n;
}

static bool give_back(const struct which *which)
{
    struct rg_session *sessions[RG_PREALLOC_MAX];
    uint64_t slab_ids[RG_PREALLOC_MAX];
    bool any = false;
    unsigned n;
    pthread_mutex_lock(&rg_slabs.order);
    do {
        pthread_mutex_lock(&rg_slabs.lock);
        n = collect(which, sessions, slab_ids);
        pthread_mutex_unlock(&rg_slabs.lock);
        for (unsigned i = 0; i < n; i++)
            any |= rg_op_rgMemReturn(slab_ids[i], rg_home_of_session(sessions[i])) == CUDA_SUCCESS;
    } while (n == RG_PREALLOC_MAX);
    pthread_mutex_unlock(&rg_slabs.order);
    return any;
}

bool rg_prealloc_any(const struct rg_session *session)
{
    return atomic_load_explicit(&rg_slabs.live[session->number], memory_order_relaxed) != 0;
}

bool rg_prealloc_give_back(struct rg_session *session)
{
    return rg_prealloc_any(session) && give_back(&(struct which){.session = session});
}

/* Whether there are slabs at all, also such that only remember what was asked for. */
static bool some(void)
{
    RG_SCOPED_LOCK(&rg_slabs.lock);
    return rg_slabs.table.n != 0;
}

void rg_prealloc_give_back_context(uint64_t context)
{
    if (some())
        (void)give_back(&(struct which){.context = context});
}

void rg_prealloc_give_back_stream(CUstream stream)
{
    if (some())
        (void)give_back(&(struct which){.by_stream = true, .stream = stream});
}

void rg_prealloc_give_back_pool(CUmemoryPool pool)
{
    if (some())
        (void)give_back(&(struct which){.by_pool = true, .pool = pool});
}

void rg_prealloc_give_back_pools(void)
{
    if (some())
        (void)give_back(&(struct which){.ordered = true});
}

void rg_prealloc_give_back_thread(uint32_t thread)
{
    if (some())
        (void)give_back(&(struct which){.thread = thread + 1});
}

void rg_prealloc_age(struct rg_session *session)
{
    const uint64_t now = rg_now_ns();
    /* Without async a return waits for its reply, and the sender must not: what others wait for may be its to
     * send. */
    if (now > OLD_NS && rg_optimise[RG_OPT_ASYNC])
        (void)give_back(&(struct which){.session = session, .unused_since = now - OLD_NS});
}

/* --- what the worker reclaims --------------------------------------------------------------------------- */

static _Atomic uint64_t reclaims[RG_SERVERS_MAX]; /* to be answered; 0: none */

bool rg_prealloc_reclaim_notice(struct rg_session *session, const struct rg_notice *notice,
                                struct rg_reader *in, size_t bulk_size)
{
    (void)in, (void)bulk_size;
    atomic_store(&reclaims[session->number], notice->id);
    rg_queue_wake_sender(session);
    return true;
}

/* Empties the slabs of a session, and makes do without for a while. The lock is held. */
static size_t empty(const struct rg_session *session, struct rg_prealloc_return *out, size_t most)
{
    size_t n = 0;
    for (struct rg_slab *slab = rg_slabs_after(NULL); slab; slab = rg_slabs_after(slab)) {
        if (slab->session != session || !slab->slab_id)
            continue;
        for (; slab->n && n < most; slab->n--)
            out[n++] = (struct rg_prealloc_return){slab->slab_id, slab->blocks[slab->n - 1].address};
        slab->target = 0;
        slab->refused = RG_SLAB_REFUSED;
    }
    return n;
}

/*
 * What was given out before has a record that is appended already (`order`). Where that lock is held until an
 * answer comes, which is so without the optimisation that calls do not wait, the worker may be waiting for
 * this one: it gets nothing then.
 */
void rg_prealloc_answer_reclaim(struct rg_session *session)
{
    const uint64_t reclaim = atomic_exchange(&reclaims[session->number], 0);
    if (!reclaim)
        return;
    enum { MOST = RG_BULK_MAX / sizeof(struct rg_prealloc_return) };
    struct rg_prealloc_return *blocks = NULL;
    size_t n = 0;
    const bool mine = rg_optimise[RG_OPT_ASYNC] ? pthread_mutex_lock(&rg_slabs.order) == 0
                                                : pthread_mutex_trylock(&rg_slabs.order) == 0;
    if (mine && (blocks = malloc(MOST * sizeof *blocks))) {
        pthread_mutex_lock(&rg_slabs.lock);
        n = empty(session, blocks, MOST);
        pthread_mutex_unlock(&rg_slabs.lock);
    }
    if (mine)
        pthread_mutex_unlock(&rg_slabs.order);
    const struct rg_answer answer = {.type = RG_ANSWER_RECLAIMED, .id = reclaim};
    const struct iovec bulk = {blocks, n * sizeof *blocks};
    (void)rg_queue_answer(session, &answer, &bulk, n ? 1 : 0, NULL);
    free(blocks);
}
