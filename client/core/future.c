/*
 * future.c - see future.h. Tokens of these answers have no generation of a thread in their high half, but 0;
 * the low half is a place in `table`. One lock guards the table, the references, and who of several threads
 * waits on the connection; it is a leaf but for the receiver's.
 *
 * Who owns an answer: who began it, everybody who keeps it, and, from the beginning until it has arrived or
 * is known never to, the table. Each of them counts as one reference, taken and given back by itself (hold,
 * rg_future_release); nothing else changes the count.
 */
#include "client/core/future.h"

#include "client/core/call.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"

#include <stdlib.h>

#define PLACES 65536u /* of which 0 is no token */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* An answer and what only this file knows of it. */
struct answer {
    struct rg_future future; /* first: it is found back from there */
    struct rg_waiter waiter;
    bool posted; /* its record has been appended: it will arrive, unless the session ends */
    bool waited; /* a thread waits on the connection for it */
    unsigned references;
};

static struct answer *table[PLACES];
static unsigned n_used, last_place;

static struct answer *answer_of(struct rg_future *future)
{
    return (struct answer *)(void *)future;
}

static struct answer *answer_of_waiter(struct rg_waiter *waiter)
{
    return (struct answer *)(void *)((unsigned char *)waiter - offsetof(struct answer, waiter));
}

/* Puts the answer into the table, which holds it from now on. False: too many are under way. */
static bool enter_table(struct answer *answer)
{
    RG_SCOPED_LOCK(&lock);
    const bool room = n_used < PLACES / 2;
    if (room) {
        do
            last_place = (last_place + 1) % PLACES;
        while (!last_place || table[last_place]);
        table[last_place] = answer;
        answer->waiter.token = last_place;
        answer->references++;
        n_used++;
    }
    return room;
}

/* The answer's token is free again; the table's reference is the caller's to release. */
static void leave_table(const struct answer *answer)
{
    RG_SCOPED_LOCK(&lock);
    table[answer->waiter.token] = NULL;
    n_used--;
}

struct rg_future *rg_future_begin(rg_future_arrived_fn *arrived)
{
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer)
        return NULL;
    struct rg_future *future = &answer->future;
    future->arrived = arrived;
    answer->references = 1;
    pthread_cond_init(&answer->waiter.wake, NULL);
    if (!enter_table(answer)) {
        rg_future_release(future);
        return NULL;
    }
    return future;
}

CUresult rg_future_end(struct rg_future *future, CUresult status)
{
    if (!future)
        return status;
    struct answer *answer = answer_of(future);
    if (answer->posted) { /* no lock of the command stream may be held for that */
        rg_receiver_expect_notices(future->session, 1);
        return status;
    }
    leave_table(answer);
    rg_future_release(future); /* the table's */
    rg_future_release(future); /* the caller's */
    return status;
}

uint32_t rg_future_prepare(struct rg_future *future, struct rg_session *session, enum rg_op op)
{
    struct answer *answer = answer_of(future);
    const uint32_t token = answer->waiter.token;
    future->session = session;
    future->op = op;
    rg_receiver_prepare(session, &answer->waiter, token, NULL);
    pthread_mutex_lock(&lock); /* from here on a reply may name it */
    answer->posted = true;
    pthread_mutex_unlock(&lock);
    return token;
}

struct rg_waiter *rg_future_of_token(const struct rg_session *session, uint32_t token)
{
    if (!token || token >= PLACES)
        return NULL;
    pthread_mutex_lock(&lock);
    struct answer *answer = table[token];
    if (answer && (!answer->posted || answer->future.session != session))
        answer = NULL; /* the reader of another session may be done with it at any time */
    pthread_mutex_unlock(&lock);
    return answer ? &answer->waiter : NULL; /* the table holds it until the caller says that it has arrived */
}

void rg_future_arrived(struct rg_session *session, struct rg_waiter *waiter)
{
    struct answer *answer = answer_of_waiter(waiter);
    struct rg_future *future = &answer->future;
    leave_table(answer);
    rg_receiver_expect_notices(session, -1);
    if (rg_error_is_sticky(waiter->result))
        atomic_store(&rg_contexts_suspect, true);
    if (future->arrived)
        future->arrived(future, waiter->result, rg_reader_of(waiter->output, waiter->size));
    rg_future_release(future); /* the table's */
}

CUresult rg_future_wait(struct rg_future *future, struct rg_reader *reply)
{
    RG_UNCANCELLED;
    struct answer *answer = answer_of(future);
    struct rg_session *session = future->session;
    struct rg_waiter *waiter = &answer->waiter;
    pthread_mutex_lock(&lock);
    while (answer->waited)
        pthread_cond_wait(&changed, &lock);
    const bool mine = !rg_receiver_done(session, waiter);
    answer->waited = mine;
    pthread_mutex_unlock(&lock);
    if (mine) {
        atomic_fetch_add_explicit(&session->stats.round_trips, 1, memory_order_relaxed);
        const uint64_t began = rg_now_ns();
        rg_queue_flush(session);
        rg_receiver_wait(session, waiter);
        atomic_fetch_add_explicit(&session->stats.waited_ns, rg_now_ns() - began, memory_order_relaxed);
        rg_probe_waited(began, 1);
        pthread_mutex_lock(&lock);
        answer->waited = false;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    if (reply)
        *reply = rg_reader_of(waiter->output, waiter->size);
    return waiter->result;
}

unsigned rg_future_memory_taken(struct rg_future *future)
{
    return answer_of(future)->waiter.memory_taken;
}

void rg_future_keep(struct rg_future *future)
{
    RG_SCOPED_LOCK(&lock);
    answer_of(future)->references++;
}

void rg_future_release(struct rg_future *future)
{
    if (!future)
        return;
    struct answer *answer = answer_of(future);
    pthread_mutex_lock(&lock);
    const bool last = --answer->references == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (answer->waiter.output != answer->waiter.small)
        free(answer->waiter.output);
    pthread_cond_destroy(&answer->waiter.wake);
    free(answer);
}
