/*
 * receiver.c - the reader role: waiters in turn, the background thread when nobody waits (what is read: receive_message.c).
 *
 * `lock` guards the role, the list of waiting threads and every waiter's `done`. The connection is only read
 * by the thread that holds the role, without the lock. When the role is given up it goes to a waiter if there
 * is one, else to the background thread if notices are due, else to nobody: at rest no thread is inside a
 * system call but sleeping.
 */
#include "client/core/receiver.h"

#include "client/core/receive_message.h"
#include "client/core/session.h"
#include "common/base/clock.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "proto/wire.h"

#include <string.h>
#include <time.h>

#define IN_VAIN 8 /* wakes that were not needed, before the background thread looks by itself instead */
/* how long another thread that receives is waited for where nothing is sent any more */
#define ROLE_PAUSES   20
#define ROLE_PAUSE_NS 5000000u

void rg_receiver_init(struct rg_session *session)
{
    pthread_mutex_init(&session->receiver.lock, NULL);
    rg_cond_init(&session->receiver.background_wake);
}

/* Gives the role to whoever should have it next; the lock is held, the role is free. */
static void pass_role(struct rg_receiver *receiver)
{
    if (receiver->role_taken)
        return;
    for (struct rg_waiter *waiter = receiver->waiting; waiter; waiter = waiter->next)
        if (!waiter->done) {
            pthread_cond_signal(&waiter->wake);
            return;
        }
    if (receiver->notices_due > 0)
        pthread_cond_signal(&receiver->background_wake);
}

static bool others_wait(const struct rg_receiver *receiver)
{
    for (struct rg_waiter *waiter = receiver->waiting; waiter; waiter = waiter->next)
        if (!waiter->done)
            return true;
    return false;
}

/* Whether there is something to read and nobody who does. The lock is held. */
static bool is_needed(const struct rg_session *session)
{
    const struct rg_receiver *receiver = &session->receiver;
    return !receiver->role_taken && receiver->notices_due > 0 && !others_wait(receiver) &&
           rg_session_lives(session);
}

/*
 * The background thread looks whether it is needed, once in a while for as long as copies come. True: it is.
 * It is not while others receive, even if a copy is due just now: most likely somebody is about to wait for
 * it. The lock is held.
 */
static bool look(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    uint64_t pause_ns = RG_RECEIVER_LOOK_MS * 1000000ull;
    for (;;) {
        const uint64_t expected = receiver->expected, received = session->stats.received_messages;
        const bool due = receiver->notices_due > 0;
        const struct timespec until = rg_timespec(rg_now_ns() + pause_ns);
        receiver->looks = true;
        const bool woken = pthread_cond_timedwait(&receiver->background_wake, &receiver->lock, &until) == 0;
        receiver->looks = false;
        if (is_needed(session) && woken)
            return true; /* for something else */
        if (is_needed(session) && due && received == session->stats.received_messages) {
            receiver->in_vain = 0;
            return true;
        }
        if (receiver->expected == expected && !is_needed(session) &&
            pause_ns >= RG_RECEIVER_LOOK_MOST_MS * 1000000ull)
            return false; /* none come; who receives just now wakes this thread if something is left */
        pause_ns = pause_ns < RG_RECEIVER_LOOK_MOST_MS * 1000000ull ? pause_ns * 2 : pause_ns;
    }
}

/* The background thread has nothing to do. The lock is held. */
static void sleep_until_needed(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    bool often = true;
    for (;;) {
        if (often && receiver->in_vain >= IN_VAIN && look(session))
            return;
        const uint64_t since = rg_now_ns();
        pthread_cond_wait(&receiver->background_wake, &receiver->lock);
        if (is_needed(session))
            return;
        receiver->in_vain++;
        often = rg_now_ns() - since <
                RG_RECEIVER_LOOK_MOST_MS * 1000000ull; /* else looking is no less than being woken */
    }
}

/* Messages have come: who waits for notices looks. The lock is held. */
static void wake_for_notices(struct rg_receiver *receiver)
{
    if (!receiver->n_for_notices)
        return;
    for (struct rg_waiter *waiter = receiver->waiting; waiter; waiter = waiter->next)
        if (waiter->for_notice)
            pthread_cond_signal(&waiter->wake);
}

static void *background_main(void *argument)
{
    struct rg_session *session = argument;
    struct rg_receiver *receiver = &session->receiver;
    pthread_mutex_lock(&receiver->lock);
    for (;;) {
        if (!is_needed(session))
            sleep_until_needed(session);
        receiver->role_taken = true;
        pthread_mutex_unlock(&receiver->lock);
        (void)rg_message_receive(session, -1);
        pthread_mutex_lock(&receiver->lock);
        wake_for_notices(receiver);
        receiver->role_taken = false;
        receiver->in_vain = others_wait(receiver) ? receiver->in_vain + 1 : 0;
        pass_role(receiver);
    }
    return NULL;
}

/* The lock is held. */
static void expect(struct rg_session *session, int change)
{
    struct rg_receiver *receiver = &session->receiver;
    receiver->notices_due += change;
    if (!receiver->background_started && receiver->notices_due > 0)
        receiver->background_started =
            rg_thread_create_detached("rg-receiver", background_main, session) == RG_OK;
}

void rg_receiver_expect_notices(struct rg_session *session, int change)
{
    struct rg_receiver *receiver = &session->receiver;
    RG_SCOPED_LOCK(&receiver->lock);
    expect(session, change);
    pass_role(receiver);
}

void rg_receiver_expect_copy(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    RG_SCOPED_LOCK(&receiver->lock);
    expect(session, 1);
    receiver->expected++;
    if (!receiver->looks)
        pass_role(receiver);
}

void rg_receiver_prepare(struct rg_session *session, struct rg_waiter *waiter, uint32_t token,
                         const struct rg_region *into)
{
    struct rg_receiver *receiver = &session->receiver;
    waiter->session = session;
    waiter->token = token;
    waiter->into = into;
    waiter->output = waiter->small;
    waiter->size = 0;
    waiter->received = 0;
    waiter->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    waiter->memory_taken = 0;
    RG_SCOPED_LOCK(&receiver->lock);
    waiter->done = false;
}

bool rg_receiver_done(struct rg_session *session, struct rg_waiter *waiter)
{
    RG_SCOPED_LOCK(&session->receiver.lock);
    return waiter->done;
}

static void list_add(struct rg_receiver *receiver, struct rg_waiter *waiter)
{
    waiter->previous = NULL;
    waiter->next = receiver->waiting;
    if (receiver->waiting)
        receiver->waiting->previous = waiter;
    receiver->waiting = waiter;
}

static void list_remove(struct rg_receiver *receiver, struct rg_waiter *waiter)
{
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        receiver->waiting = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
}

/*
 * Receives, or sleeps while another thread does, until `over(argument)` or the session is. `over` is called with the lock held, which is
 * not held before and after.
 */
static inline void wait_until(struct rg_session *session, struct rg_waiter *waiter,
                              bool (*over)(const void *argument), const void *argument)
{
    struct rg_receiver *receiver = &session->receiver;
    const bool has_role =
        rg_thread_rests_at(session->conn); /* a signal handler's call, in one that receives */
    pthread_mutex_lock(&receiver->lock);
    list_add(receiver, waiter);
    receiver->n_for_notices += waiter->for_notice;
    while (!over(argument) && (waiter->filling || rg_session_lives(session))) {
        if (receiver->role_taken && !has_role) { /* also by who fills it */
            pthread_cond_wait(&waiter->wake, &receiver->lock);
            continue;
        }
        receiver->role_taken = true;
        pthread_mutex_unlock(&receiver->lock);
        (void)rg_message_receive(session, -1);
        pthread_mutex_lock(&receiver->lock);
        receiver->role_taken = has_role;
        wake_for_notices(receiver);
    }
    receiver->n_for_notices -= waiter->for_notice;
    list_remove(receiver, waiter);
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

static bool is_answered(const void *waiter)
{
    return ((const struct rg_waiter *)waiter)->done;
}

void rg_receiver_wait(struct rg_session *session, struct rg_waiter *waiter)
{
    RG_UNCANCELLED;
    wait_until(session, waiter, is_answered, waiter);
    if (!waiter->done) {
        waiter->done = true; /* the session is over */
        waiter->result = atomic_load(&session->ended);
    }
}

void rg_receiver_wait_for_notice(struct rg_session *session, bool (*over)(const void *argument),
                                 const void *argument)
{
    RG_UNCANCELLED;
    struct rg_waiter waiter = {.session = session, .wake = PTHREAD_COND_INITIALIZER, .for_notice = true};
    wait_until(session, &waiter, over, argument);
    pthread_cond_destroy(&waiter.wake);
}

/* Takes the role; false: another thread has it, and does not give it back soon. */
static bool take_role(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    for (int i = 0; i < ROLE_PAUSES && rg_session_lives(session); i++) {
        pthread_mutex_lock(&receiver->lock);
        const bool free = !receiver->role_taken;
        receiver->role_taken = true;
        pthread_mutex_unlock(&receiver->lock);
        if (free)
            return true;
        rg_pause(ROLE_PAUSE_NS);
    }
    return false;
}

void rg_receiver_last_words(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    struct rg_message message;
    struct rg_message_header header;
    if (!take_role(session))
        return; /* whoever has it comes to them */
    while (rg_session_lives(session) && rg_conn_recv(session->conn, 0, &message) == RG_OK &&
           !message.bulk_size && message.size >= sizeof header) {
        memcpy(&header, message.data, sizeof header);
        if (header.kind == RG_MESSAGE_CONTROL)
            rg_message_control(session, &message);
    }
    RG_SCOPED_LOCK(&receiver->lock);
    receiver->role_taken = false;
    pass_role(receiver);
}

void rg_receiver_poll(struct rg_session *session)
{
    RG_UNCANCELLED;
    struct rg_receiver *receiver = &session->receiver;
    pthread_mutex_lock(&receiver->lock);
    if (receiver->role_taken) {
        pthread_mutex_unlock(&receiver->lock);
        return;
    }
    receiver->role_taken = true;
    pthread_mutex_unlock(&receiver->lock);
    while (rg_session_lives(session) && rg_message_receive(session, 0))
        ;
    pthread_mutex_lock(&receiver->lock);
    wake_for_notices(receiver);
    receiver->role_taken = false;
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

void rg_receiver_wake_all(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    RG_SCOPED_LOCK(&receiver->lock);
    for (struct rg_waiter *waiter = receiver->waiting; waiter; waiter = waiter->next)
        pthread_cond_signal(&waiter->wake);
}
