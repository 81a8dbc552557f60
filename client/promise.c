/*
 * promise.c - see promise.h. Tokens of these answers have no generation of a lane in their high half, but 0; the low half is
 * a place in `table`. One lock guards the table, the references, and who of several threads waits on the connection;
 * it is a leaf but for the receiver's.
 *
 * Who owns an answer: who began it, everybody who keeps it, and, from the beginning until it has arrived or is known never to,
 * the table. Each of them counts as one reference, taken and given back by itself (hold, rg_promise_release); nothing else
 * changes the count.
 */
#include "client/promise.h"

#include "client/call.h"
#include "client/command.h"
#include "client/context.h"
#include "client/core/probe.h"
#include "client/receiver.h"
#include "client/session.h"
#include "common/base/clock.h"
#include "common/base/uncancelled.h"

#include <stdlib.h>

#define PLACES 65536u /* of which 0 is no token */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* An answer and what only this file knows of it. */
struct answer {
    struct rg_promise promise; /* first: it is found back from there */
    struct rg_waiter waiter;
    bool posted; /* its record has been appended: it will arrive, unless the session ends */
    bool waited; /* a thread waits on the connection for it */
    unsigned references;
};

static struct answer *table[PLACES];
static unsigned n_used, last_place;

static struct answer *answer_of(struct rg_promise *promise)
{
    return (struct answer *)(void *)promise;
}

static struct answer *answer_of_waiter(struct rg_waiter *waiter)
{
    return (struct answer *)(void *)((unsigned char *)waiter - offsetof(struct answer, waiter));
}

/* Puts the answer into the table, which holds it from now on. False: too many are under way. */
static bool enter_table(struct answer *answer)
{
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return room;
}

/* The answer's token is free again; the table's reference is the caller's to release. */
static void leave_table(const struct answer *answer)
{
    pthread_mutex_lock(&lock);
    table[answer->waiter.token] = NULL;
    n_used--;
    pthread_mutex_unlock(&lock);
}

struct rg_promise *rg_promise_begin(enum rg_op op, void (*arrived)(struct rg_promise *promise,
                                                                   CUresult result, struct rg_reader reply))
{
    struct rg_lane *lane = rg_lane_current();
    struct answer *answer = lane ? calloc(1, sizeof *answer) : NULL;
    if (!answer)
        return NULL;
    struct rg_promise *promise = &answer->promise;
    promise->op = op;
    promise->arrived = arrived;
    answer->references = 1;
    pthread_cond_init(&answer->waiter.wake, NULL);
    if (!enter_table(answer)) {
        rg_promise_release(promise);
        return NULL;
    }
    lane->promise = promise;
    return promise;
}

CUresult rg_promise_end(struct rg_promise *promise, CUresult status)
{
    struct rg_lane *lane = rg_lane_current();
    if (!promise)
        return status;
    lane->promise = NULL;
    struct answer *answer = answer_of(promise);
    if (answer->posted) { /* no lock of the command stream may be held for that */
        rg_receiver_expect_notices(promise->session, 1);
        return status;
    }
    leave_table(answer);
    rg_promise_release(promise); /* the table's */
    rg_promise_release(promise); /* the caller's */
    return status;
}

struct rg_promise *rg_promise_takes(struct rg_lane *lane, uint16_t op)
{
    return lane->promise && (uint16_t)lane->promise->op == op ? lane->promise : NULL;
}

uint32_t rg_promise_prepare(struct rg_promise *promise, struct rg_session *session)
{
    struct answer *answer = answer_of(promise);
    const uint32_t token = answer->waiter.token;
    promise->session = session;
    rg_receiver_prepare(session, &answer->waiter, token);
    pthread_mutex_lock(&lock); /* from here on a reply may name it */
    answer->posted = true;
    pthread_mutex_unlock(&lock);
    return token;
}

struct rg_waiter *rg_promise_of_token(const struct rg_session *session, uint32_t token)
{
    if (!token || token >= PLACES)
        return NULL;
    pthread_mutex_lock(&lock);
    struct answer *answer = table[token];
    if (answer && (!answer->posted || answer->promise.session != session))
        answer = NULL; /* the reader of another session may be done with it at any time */
    pthread_mutex_unlock(&lock);
    return answer ? &answer->waiter : NULL; /* the table holds it until the caller says that it has arrived */
}

void rg_promise_arrived(struct rg_session *session, struct rg_waiter *waiter)
{
    struct answer *answer = answer_of_waiter(waiter);
    struct rg_promise *promise = &answer->promise;
    leave_table(answer);
    rg_receiver_expect_notices(session, -1);
    if (rg_error_is_sticky(waiter->result))
        atomic_store(&rg_contexts_suspect, true);
    if (promise->arrived)
        promise->arrived(promise, waiter->result, rg_reader_of(waiter->output, waiter->size));
    rg_promise_release(promise); /* the table's */
}

CUresult rg_promise_wait(struct rg_promise *promise, struct rg_reader *reply)
{
    RG_UNCANCELLED;
    struct answer *answer = answer_of(promise);
    struct rg_session *session = promise->session;
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
        rg_command_flush(session);
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

void rg_promise_keep(struct rg_promise *promise)
{
    pthread_mutex_lock(&lock);
    answer_of(promise)->references++;
    pthread_mutex_unlock(&lock);
}

void rg_promise_release(struct rg_promise *promise)
{
    if (!promise)
        return;
    struct answer *answer = answer_of(promise);
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
