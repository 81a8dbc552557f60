/*
 * prealloc.c - what is ready, by what is allocated. See prealloc.h.
 *
 * Two locks: `order` is held while a block is taken or given back and until the record of that is appended, so that records
 * about a ticket are in the order of what happens to it; `lock` guards the table, is a leaf but for that of futures, and is all
 * that a reader takes.
 */
#include "client/prealloc/prealloc.h"

#include "client/core/call.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "common/base/clock.h"
#include "common/base/hash_table.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

#define STOCKS_MAX 1024u
#define FIRST      2u            /* so many are made ready at first */
#define LARGE      (64ull << 20) /* of blocks of this size, no more than that */
#define OLD_NS     500000000ull  /* what was not needed for so long goes back */
#define FORESEEN_NS                                                                                          \
    10000000000ull     /* what was foreseen, that much later: frameworks take their time to start */
#define POOR       64u /* after a refusal, this many allocations ask before it is tried again */
#define UNREAD_MAX 64u /* notices that may be due at a time */

struct stock {
    struct rg_hash_link link;
    struct rg_prealloc_key key;
    struct rg_session *session;
    uint64_t context;
    uint32_t thread; /* of per-thread default streams; else 0 */
    uint64_t ticket; /* 0: nothing is ready or due */
    unsigned asked;  /* times that the worker was asked for one */
    unsigned target, due, n;
    unsigned poor;            /* allocations until it is tried again */
    uint64_t used;            /* when it was needed last */
    bool foreseen;            /* what is ready was foreseen, and `used` is ahead of the time */
    struct rg_future *future; /* the answer with the blocks that were foreseen, until it has come */
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
};

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table stocks;
static uint64_t next_ticket = 1;
static atomic_uint live[RG_SERVERS_MAX]; /* stocks with a ticket */
static atomic_uint awaited;              /* stocks with a future */
/*
 * Records that the worker answers with a notice, and has not yet. A program that only sends reads no notices: were there more
 * than the connection holds, the worker would wait until somebody reads, and the program until the worker does.
 */
static unsigned unread[RG_SERVERS_MAX];
static atomic_bool announced[RG_SERVERS_MAX]; /* the worker knows that it may recall */

static uint32_t thread_of(const struct rg_prealloc_key *key)
{
    const struct rg_thread *thread = rg_thread_if_any();
    return key->stream == CU_STREAM_PER_THREAD && thread ? thread->number + 1 : 0;
}

static uint64_t hash_of(const struct rg_prealloc_key *key, uint64_t context)
{
    return (key->size * 0x9E3779B97F4A7C15ull) ^ (key->height * 0xC2B2AE3D27D4EB4Full) ^
           ((uint64_t)(uintptr_t)key->stream << 7) ^ context ^ (uint64_t)key->kind;
}

/* The next one, or NULL; the lock is held. For all, `at` is NULL at first, and the next one is asked for before `at` ends. */
static struct stock *after(const struct stock *at)
{
    return (struct stock *)rg_hash_table_after(&stocks, at ? &at->link : NULL);
}

/* The lock is held. */
static struct stock *find(const struct rg_prealloc_key *key, uint64_t context)
{
    struct rg_hash_link *at = rg_hash_table_first(&stocks, hash_of(key, context));
    for (; at; at = rg_hash_table_next(at)) {
        struct stock *stock = (struct stock *)at;
        if (stock->context == context && stock->key.kind == key->kind && stock->key.size == key->size &&
            stock->key.height == key->height && stock->key.element == key->element &&
            stock->key.stream == key->stream && stock->key.pool == key->pool &&
            stock->thread == thread_of(key))
            return stock;
    }
    return NULL;
}

static void forget(struct stock *stock)
{
    rg_hash_table_remove(&stocks, &stock->link);
    free(stock);
}

/* The session of the current context, if memory can be made ready there. */
static struct rg_session *usable(void)
{
    struct rg_session *session = rg_session_current();
    return rg_optimise[RG_OPT_AHEAD] && session->op_numbers[RG_OP_rgMemAhead] ? session : NULL;
}

static bool pop(struct stock *stock, struct rg_prealloc_block *out)
{
    if (!stock || !stock->n)
        return false;
    *out = stock->blocks[0]; /* the oldest */
    memmove(&stock->blocks[0], &stock->blocks[1], --stock->n * sizeof *stock->blocks);
    return true;
}

/* How many are to be asked for, so that there are as many as the target says; they count as due. The lock is held. */
static unsigned refill(struct stock *stock)
{
    const unsigned have = stock->n + stock->due;
    const unsigned more = have <= stock->target / 2 ? stock->target - have : 0;
    if (!more || unread[stock->session->number] == UNREAD_MAX)
        return 0;
    unread[stock->session->number]++;
    stock->due += more;
    return more;
}

/* The answer has come, or the stock ends. The lock is held. */
static void drop_promise(struct stock *stock)
{
    if (!stock->future)
        return;
    rg_future_release(stock->future);
    stock->future = NULL;
    atomic_fetch_sub(&awaited, 1);
}

static struct stock *find_ticket(const struct rg_session *session, uint64_t ticket);

/* Takes the blocks of an answer to rgMemForesee into the stocks that still wait for them. Any thread, more than once. */
static void settle(struct rg_future *future, CUresult result, struct rg_reader reply)
{
    struct rg_session *session = future->session;
    bool bad = false;
    pthread_mutex_lock(&lock);
    for (uint64_t i = 0; i < future->user[1]; i++) {
        uint64_t made = 0;
        if (result == CUDA_SUCCESS)
            rg_get_into(&reply, &made, sizeof made);
        const void *blocks = !reply.bad && made <= RG_PREALLOC_MAX
                                 ? rg_get(&reply, made * sizeof(struct rg_prealloc_block))
                                 : NULL;
        struct stock *stock = find_ticket(session, future->user[0] + i); /* NULL: given back meanwhile */
        bad |= !blocks || (stock && stock->future && made > stock->due);
        if (!stock || !stock->future)
            continue;
        if (!bad)
            memcpy(stock->blocks, blocks, made * sizeof *stock->blocks);
        stock->n = bad ? 0 : (unsigned)made;
        stock->due = 0;
        drop_promise(stock);
    }
    pthread_mutex_unlock(&lock);
    if (bad && result == CUDA_SUCCESS)
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s sent a malformed message (%s)",
                       session->server, "memory that was foreseen");
}

/* Waits for the answer that has what is wanted, if it was foreseen. */
static void await_foreseen(const struct rg_prealloc_key *key)
{
    pthread_mutex_lock(&lock);
    const struct stock *stock = find(key, rg_context_current());
    struct rg_future *future = stock ? stock->future : NULL;
    if (future)
        rg_future_keep(future);
    pthread_mutex_unlock(&lock);
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
    if (atomic_load_explicit(&awaited, memory_order_relaxed))
        await_foreseen(key);
    unsigned more = 0;
    pthread_mutex_lock(&order);
    pthread_mutex_lock(&lock);
    struct stock *stock = find(key, rg_context_current());
    bool got = pop(stock, out);
    if (!got && stock && stock->due) {
        pthread_mutex_unlock(&lock);
        rg_receiver_poll(session);
        pthread_mutex_lock(&lock); /* the stock is still there: nobody else has `order` */
        got = pop(stock, out);
    }
    if (got) {
        stock->foreseen &= stock->n != 0;
        if (!stock->foreseen)
            stock->used = rg_now_ns();
        more = refill(stock);
    }
    pthread_mutex_unlock(&lock);
    if (got)
        got = rg_op_rgMemTake(stock->ticket, out->address, key->stream, key->pool, more) == CUDA_SUCCESS;
    pthread_mutex_unlock(&order);
    return got;
}

/* Makes room: of what was asked for, and is not made ready, nothing is remembered. Both locks are held. */
static void forget_idle(void)
{
    for (struct stock *at = after(NULL), *next; at; at = next) {
        next = after(at);
        if (!at->ticket)
            forget(at);
    }
}

/* A stock for what was asked for; NULL: there are too many. Both locks are held. */
static struct stock *remember(const struct rg_prealloc_key *key, struct rg_session *session)
{
    const uint64_t context = rg_context_current();
    struct stock *stock = find(key, context);
    if (stock)
        return stock;
    if (stocks.n == STOCKS_MAX)
        forget_idle();
    stock = stocks.n < STOCKS_MAX ? calloc(1, sizeof *stock) : NULL;
    if (!stock)
        return NULL;
    *stock = (struct stock){.key = *key, .session = session, .context = context, .thread = thread_of(key)};
    rg_hash_table_add(&stocks, &stock->link, hash_of(key, context));
    return stock;
}

/* The worker may recall what is made ready from now on. `order` is held. */
static void announce(const struct rg_session *session)
{
    if (session->op_numbers[RG_OP_rgMemMayRecall] && !atomic_exchange(&announced[session->number], true))
        (void)rg_op_rgMemMayRecall();
}

/* Takes a stock with memory for it that was not there before; NULL: it is not a new one. Both locks are held. */
static struct stock *expect(const struct rg_prealloc_key *key, unsigned count, struct rg_session *session,
                            struct rg_future *future)
{
    struct stock *stock = count && count <= RG_PREALLOC_MAX ? remember(key, session) : NULL;
    if (!stock || stock->ticket)
        return NULL;
    stock->ticket = next_ticket++;
    stock->asked = 1;
    stock->due = count;
    stock->foreseen = true;
    stock->used = rg_now_ns() + FORESEEN_NS;
    stock->future = future;
    rg_future_keep(future);
    atomic_fetch_add(&awaited, 1);
    atomic_fetch_add(&live[session->number], 1);
    return stock;
}

void rg_prealloc_hint(const struct rg_prealloc_key *keys, const unsigned *counts, unsigned n)
{
    struct rg_session *session = usable();
    struct rg_prealloc_hint wishes[RG_PREALLOC_HINTS];
    struct rg_call reply;
    unsigned made = 0;
    if (!session || !n || n > RG_PREALLOC_HINTS || !session->op_numbers[RG_OP_rgMemForesee])
        return;
    struct rg_future *future = rg_future_begin(settle);
    if (!future)
        return;
    pthread_mutex_lock(&order);
    pthread_mutex_lock(&lock);
    future->user[0] = next_ticket;
    for (unsigned i = 0; i < n; i++) {
        const struct stock *stock = expect(&keys[i], counts[i], session, future);
        if (stock)
            wishes[made++] = (struct rg_prealloc_hint){.ticket = stock->ticket,
                                                       .size = keys[i].size,
                                                       .height = keys[i].height,
                                                       .kind = keys[i].kind,
                                                       .element = keys[i].element,
                                                       .count = counts[i]};
    }
    future->user[1] = made;
    pthread_mutex_unlock(&lock);
    future->session = session;
    if (made)
        announce(session);
    const CUresult status =
        made ? rg_op_rgMemForesee(made * sizeof *wishes, wishes, future, &reply) : CUDA_ERROR_NOT_FOUND;
    pthread_mutex_unlock(&order);
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
    pthread_mutex_lock(&order);
    pthread_mutex_lock(&lock);
    unread[session->number] = 0; /* the answer came after them */
    struct stock *stock = remember(key, session);
    if (stock && stock->poor)
        stock->poor--;
    else if (stock && ++stock->asked > 1) {
        const unsigned most = key->size >= LARGE ? FIRST : RG_PREALLOC_MAX;
        stock->target = !stock->target ? FIRST : stock->target < most / 2 ? stock->target * 2 : most;
        stock->used = rg_now_ns();
        if (!stock->ticket) {
            stock->ticket = next_ticket++;
            atomic_fetch_add(&live[session->number], 1);
        }
        more = refill(stock);
    }
    pthread_mutex_unlock(&lock);
    if (more)
        announce(session);
    if (more && rg_op_rgMemAhead(stock->ticket, key->kind, key->size, key->height, key->element, key->stream,
                                 key->pool, more) != CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        stock->due -= more; /* the session is over */
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&order);
}

/* --- giving back ---------------------------------------------------------------------------------------------- */

/* Which stocks; 0 and NULL: all. */
struct which {
    const struct rg_session *session;
    uint64_t context;
    uint64_t unused_since;
    uint32_t thread;
    bool by_stream, by_pool;
    CUstream stream;
    CUmemoryPool pool;
};

static bool is_meant(const struct stock *stock, const struct which *which)
{
    return (!which->session || stock->session == which->session) &&
           (!which->context || stock->context == which->context) &&
           (!which->unused_since || (stock->ticket && stock->used < which->unused_since)) &&
           (!which->thread || stock->thread == which->thread) &&
           (!which->by_stream || stock->key.stream == which->stream) &&
           (!which->by_pool ||
            (stock->key.kind == RG_PREALLOC_ORDERED && (stock->key.pool == which->pool || !stock->key.pool)));
}

/* Takes the tickets of what is meant, RG_PREALLOC_MAX at most, out of the table. The lock is held. */
static unsigned collect(const struct which *which, struct rg_session **sessions, uint64_t *tickets)
{
    unsigned n = 0;
    for (struct stock *stock = after(NULL), *next; stock && n < RG_PREALLOC_MAX; stock = next) {
        next = after(stock);
        if (!is_meant(stock, which))
            continue;
        if (stock->ticket) {
            sessions[n] = stock->session;
            tickets[n++] = stock->ticket;
            atomic_fetch_sub(&live[stock->session->number], 1);
        }
        drop_promise(stock);
        if (which->unused_since) { /* that it was wanted is remembered */
            stock->ticket = 0;
            stock->n = stock->due = stock->target = 0;
            stock->foreseen = false;
        } else {
            forget(stock);
        }
    }
    return n;
}

static bool give_back(const struct which *which)
{
    struct rg_session *sessions[RG_PREALLOC_MAX];
    uint64_t tickets[RG_PREALLOC_MAX];
    bool any = false;
    unsigned n;
    pthread_mutex_lock(&order);
    do {
        pthread_mutex_lock(&lock);
        n = collect(which, sessions, tickets);
        pthread_mutex_unlock(&lock);
        for (unsigned i = 0; i < n; i++)
            any |= rg_op_rgMemReturn(tickets[i], rg_home_of_session(sessions[i])) == CUDA_SUCCESS;
    } while (n == RG_PREALLOC_MAX);
    pthread_mutex_unlock(&order);
    return any;
}

bool rg_prealloc_any(const struct rg_session *session)
{
    return atomic_load_explicit(&live[session->number], memory_order_relaxed) != 0;
}

bool rg_prealloc_give_back(struct rg_session *session)
{
    return rg_prealloc_any(session) && give_back(&(struct which){.session = session});
}

/* Whether there are stocks at all, also such that only remember what was asked for. */
static bool some(void)
{
    pthread_mutex_lock(&lock);
    const bool any = stocks.n != 0;
    pthread_mutex_unlock(&lock);
    return any;
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

void rg_prealloc_give_back_thread(uint32_t thread)
{
    if (some())
        (void)give_back(&(struct which){.thread = thread + 1});
}

void rg_prealloc_age(struct rg_session *session)
{
    const uint64_t now = rg_now_ns();
    /* Without async a return waits for its reply, and the sender must not: what others wait for may be its to send. */
    if (now > OLD_NS && rg_optimise[RG_OPT_ASYNC])
        (void)give_back(&(struct which){.session = session, .unused_since = now - OLD_NS});
}

/* --- recalls --------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t recalls[RG_SERVERS_MAX]; /* to be answered; 0: none */

bool rg_prealloc_reclaim_notice(struct rg_session *session, const struct rg_notice *notice,
                                struct rg_reader *in, size_t bulk_size)
{
    (void)in, (void)bulk_size;
    atomic_store(&recalls[session->number], notice->id);
    rg_queue_wake_sender(session);
    return true;
}

/* Empties the stocks of a session, and makes do without for a while. The lock is held. */
static size_t empty(const struct rg_session *session, struct rg_prealloc_return *out, size_t most)
{
    size_t n = 0;
    for (struct stock *stock = after(NULL); stock; stock = after(stock)) {
        if (stock->session != session || !stock->ticket)
            continue;
        for (; stock->n && n < most; stock->n--)
            out[n++] = (struct rg_prealloc_return){stock->ticket, stock->blocks[stock->n - 1].address};
        stock->target = 0;
        stock->poor = POOR;
    }
    return n;
}

/*
 * What was given out before has a record that is appended already (`order`). Where that lock is held until an answer comes,
 * which is so without the optimisation that calls do not wait, the worker may be waiting for this one: it gets nothing then.
 */
void rg_prealloc_answer_reclaim(struct rg_session *session)
{
    const uint64_t recall = atomic_exchange(&recalls[session->number], 0);
    if (!recall)
        return;
    enum { MOST = RG_BULK_MAX / sizeof(struct rg_prealloc_return) };
    struct rg_prealloc_return *blocks = NULL;
    size_t n = 0;
    const bool mine =
        rg_optimise[RG_OPT_ASYNC] ? pthread_mutex_lock(&order) == 0 : pthread_mutex_trylock(&order) == 0;
    if (mine && (blocks = malloc(MOST * sizeof *blocks))) {
        pthread_mutex_lock(&lock);
        n = empty(session, blocks, MOST);
        pthread_mutex_unlock(&lock);
    }
    if (mine)
        pthread_mutex_unlock(&order);
    const struct rg_answer answer = {.type = RG_ANSWER_RECLAIMED, .id = recall};
    const struct iovec bulk = {blocks, n * sizeof *blocks};
    (void)rg_queue_answer(session, &answer, &bulk, n ? 1 : 0, NULL);
    free(blocks);
}

/* --- notices --------------------------------------------------------------------------------------------------- */

/* The lock is held. */
static struct stock *find_ticket(const struct rg_session *session, uint64_t ticket)
{
    struct stock *stock = after(NULL);
    while (stock && (stock->ticket != ticket || stock->session != session))
        stock = after(stock);
    return stock;
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
    pthread_mutex_lock(&lock);
    if (unread[session->number])
        unread[session->number]--;
    struct stock *stock = find_ticket(session, notice->id); /* NULL: it has been given back meanwhile */
    if (stock) {
        good = ready + refused <= stock->due && ready <= RG_PREALLOC_MAX - stock->n;
        if (good) {
            memcpy(&stock->blocks[stock->n], blocks, ready * sizeof *stock->blocks);
            stock->n += (unsigned)ready;
            stock->due -= (unsigned)(ready + refused);
        }
        if (refused) {
            stock->target = 0;
            stock->poor = POOR;
        }
    }
    pthread_mutex_unlock(&lock);
    return good;
}
