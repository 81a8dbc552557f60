/*
 * promise.c - see promise.h. Tokens of these answers have no generation of a lane in their high half, but 0; the low half is
 * a place in `table`. One lock guards the table, the references, and who of several threads waits on the connection;
 * it is a leaf but for the receiver's.
 */
#include "client/promise.h"

#include "client/call.h"
#include "client/command.h"
#include "client/context.h"
#include "client/profile/profile.h"
#include "client/receiver.h"
#include "client/session.h"
#include "common/clock.h"
#include "common/uncancelled.h"

#include <stdlib.h>

#define PLACES 65536u /* of which 0 is no token */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct rg_promise *table[PLACES];
static unsigned n_used, last_place;

struct rg_promise *rg_promise_begin(enum rg_op op, void (*arrived)(struct rg_promise *promise,
                                                                   CUresult result, struct rg_reader reply))
{
    struct rg_lane *lane = rg_lane_current();
    struct rg_promise *promise = lane ? calloc(1, sizeof *promise) : NULL;
    if (!promise)
        return NULL;
    promise->op = op;
    promise->arrived = arrived;
    promise->references = 1;
    pthread_cond_init(&promise->waiter.wake, NULL);
    pthread_mutex_lock(&lock);
    const bool room = n_used < PLACES / 2;
    if (room) {
        do
            last_place = (last_place + 1) % PLACES;
        while (!last_place || table[last_place]);
        table[last_place] = promise;
        promise->waiter.token = last_place;
        n_used++;
    }
    pthread_mutex_unlock(&lock);
    if (!room) {
        rg_promise_release(promise);
        return NULL;
    }
    lane->promise = promise;
    return promise;
}

/* The token is free again. The lock is held. */
static void leave_table(struct rg_promise *promise)
{
    table[promise->waiter.token] = NULL;
    n_used--;
}

CUresult rg_promise_end(struct rg_promise *promise, CUresult status)
{
    struct rg_lane *lane = rg_lane_current();
    if (!promise)
        return status;
    lane->promise = NULL;
    if (promise->posted) {
        rg_receiver_expect_notices(promise->session,
                                   1); /* no lock of the command stream may be held for that */
        return status;
    }
    pthread_mutex_lock(&lock);
    leave_table(promise);
    pthread_mutex_unlock(&lock);
    rg_promise_release(promise);
    return status;
}

struct rg_promise *rg_promise_takes(struct rg_lane *lane, uint16_t op)
{
    return lane->promise && (uint16_t)lane->promise->op == op ? lane->promise : NULL;
}

uint32_t rg_promise_prepare(struct rg_promise *promise, struct rg_session *session)
{
    const uint32_t token = promise->waiter.token;
    promise->session = session;
    promise->posted = true;
    promise->references = 2; /* the answer itself is one */
    rg_receiver_prepare(session, &promise->waiter, token);
    return token;
}

struct rg_waiter *rg_promise_of_token(uint32_t token)
{
    if (!token || token >= PLACES)
        return NULL;
    pthread_mutex_lock(&lock);
    struct rg_promise *promise = table[token];
    pthread_mutex_unlock(&lock);
    return promise && promise->posted ? &promise->waiter : NULL;
}

void rg_promise_arrived(struct rg_session *session, struct rg_waiter *waiter)
{
    struct rg_promise *promise = (struct rg_promise *)(void *)waiter;
    pthread_mutex_lock(&lock);
    leave_table(promise);
    pthread_mutex_unlock(&lock);
    rg_receiver_expect_notices(session, -1);
    if (rg_error_is_sticky(waiter->result))
        atomic_store(&rg_contexts_suspect, true);
    if (promise->arrived)
        promise->arrived(promise, waiter->result, rg_reader_of(waiter->output, waiter->size));
    rg_promise_release(promise);
}

CUresult rg_promise_wait(struct rg_promise *promise, struct rg_reader *reply)
{
    RG_UNCANCELLED;
    struct rg_session *session = promise->session;
    struct rg_waiter *waiter = &promise->waiter;
    pthread_mutex_lock(&lock);
    while (promise->waited)
        pthread_cond_wait(&changed, &lock);
    const bool mine = !rg_receiver_done(session, waiter);
    promise->waited = mine;
    pthread_mutex_unlock(&lock);
    if (mine) {
        atomic_fetch_add_explicit(&session->stats.round_trips, 1, memory_order_relaxed);
        const uint64_t began = rg_now_ns();
        rg_command_flush(session);
        rg_receiver_wait(session, waiter);
        atomic_fetch_add_explicit(&session->stats.waited_ns, rg_now_ns() - began, memory_order_relaxed);
        rg_profile_waited(rg_profiling ? began : 0, 1);
        pthread_mutex_lock(&lock);
        promise->waited = false;
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
    promise->references++;
    pthread_mutex_unlock(&lock);
}

void rg_promise_release(struct rg_promise *promise)
{
    if (!promise)
        return;
    pthread_mutex_lock(&lock);
    const bool last = --promise->references == 0;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    if (promise->waiter.output != promise->waiter.small)
        free(promise->waiter.output);
    pthread_cond_destroy(&promise->waiter.wake);
    free(promise);
}
