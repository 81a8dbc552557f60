/*
 * receiver.c - the reader role: waiters in turn, the background thread when nobody waits.
 *
 * `lock` guards the role, the list of waiting threads and every waiter's `done`. The connection is only read
 * by the thread that holds the role, without the lock. When the role is given up it goes to a waiter if there
 * is one, else to the background thread if notices are due, else to nobody: at rest no thread is inside a
 * system call but sleeping.
 */
#include "client/core/receiver.h"

#include "client/core/future.h"
#include "client/core/hooks.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/region.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"
#include "proto/codec.h"
#include "proto/gpu_path.h"
#include "proto/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IN_VAIN 8 /* wakes that were not needed, before the background thread looks by itself instead */
#define ROLE_PAUSES                                                                                          \
    20 /* of 5 ms: how long another thread that receives is waited for where nothing is sent any more */

void rg_receiver_init(struct rg_session *session)
{
    pthread_mutex_init(&session->receiver.lock, NULL);
    rg_cond_init(&session->receiver.background_wake);
}

static bool session_over(const struct rg_session *session)
{
    return atomic_load(&session->ended) != CUDA_SUCCESS;
}

static void malformed(struct rg_session *session, const char *what)
{
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s sent a malformed message (%s)",
                   session->server, what);
}

/* Takes the bulk part of a reply to where its caller wants it. */
static enum rg_status take_bulk(struct rg_session *session, const struct rg_region *into, size_t size)
{
    return into && size == rg_region_size(into) ? rg_region_receive(into, 0, size, session->conn)
           : size                               ? rg_conn_recv_bulk(session->conn, NULL, size)
                                                : RG_OK;
}

/* The outputs and the bulk data of a reply. False: there is no memory for it. */
static bool take_reply(struct rg_session *session, struct rg_waiter *waiter, const struct rg_message *message,
                       const struct rg_reply *reply, const unsigned char *outputs)
{
    if (reply->size > sizeof waiter->small) {
        waiter->output = malloc(reply->size);
        if (!waiter->output) {
            waiter->output = waiter->small;
            return false;
        }
    }
    memcpy(waiter->output, outputs, reply->size);
    waiter->size = reply->size;
    waiter->received = message->size + message->bulk_size;
    waiter->result = (CUresult)reply->result;
    waiter->memory_taken = RG_REPLY_TAKEN(reply->memory);
    const enum rg_status status = take_bulk(session, waiter->into, message->bulk_size);
    if (status == RG_ERR_FAULT)
        waiter->result = CUDA_ERROR_INVALID_VALUE;
    else if (status != RG_OK) /* not all has come; the next receive reports the broken connection */
        waiter->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    return true;
}

/* What the server says with each message of how much device memory is left; 0: nothing. */
static void note_memory_left(struct rg_session *session, unsigned level)
{
    if (level && level <= RG_MEMORY_LEVEL_MASK)
        atomic_store_explicit(&session->memory_left, (uint8_t)level, memory_order_relaxed);
}

static void handle_reply(struct rg_session *session, const struct rg_message *message)
{
    struct rg_reader in = rg_reader_of(message->data, message->size);
    struct rg_reply reply;
    rg_get(&in, sizeof(struct rg_message_header));
    rg_get_into(&in, &reply, sizeof reply);
    if (in.bad || reply.size != rg_left(&in)) {
        malformed(session, "reply");
        return;
    }
    note_memory_left(session, RG_REPLY_LEFT(reply.memory));
    struct rg_thread *thread = rg_thread_of_token(reply.token);
    struct rg_waiter *waiter = thread ? &thread->waiter : rg_future_of_token(session, reply.token);
    pthread_mutex_lock(&session->receiver.lock); /* what the waiter has prepared is seen from here on */
    const bool awaited =
        waiter && waiter->session == session && !waiter->done && waiter->token == reply.token;
    if (awaited)
        waiter->filling = true;
    pthread_mutex_unlock(&session->receiver.lock);
    if (!awaited) {
        malformed(session, "reply that nobody waits for");
        return;
    }
    const bool taken = take_reply(session, waiter, message, &reply, in.at);
    if (taken && reply.async_result)
        rg_session_async_error(session, (CUresult)reply.async_result, reply.async_op);
    pthread_mutex_lock(&session->receiver.lock);
    waiter->filling = false;
    waiter->done = taken;
    pthread_cond_signal(&waiter->wake);
    pthread_mutex_unlock(&session->receiver.lock);
    if (!taken) {
        rg_session_end(session, CUDA_ERROR_OUT_OF_MEMORY, "no memory for an answer of %zu bytes",
                       (size_t)reply.size);
        return;
    }
    if (!thread)
        rg_future_arrived(session, waiter);
}

static void print_output(const struct rg_notice *notice, struct rg_reader *in)
{
    const char *text = rg_get(in, notice->arg[1]);
    size_t left = text ? notice->arg[1] : 0;
    /* The application's own buffered output came first. */
    FILE *stream = notice->arg[0] == 2 ? stderr : stdout;
    if (left)
        fwrite(text, 1, left, stream);
    fflush(stream); /* as a driver in this process does: the program may end without that */
}

static void handle_notice(struct rg_session *session, const struct rg_message *message)
{
    struct rg_reader in = rg_reader_of(message->data, message->size);
    struct rg_notice notice;
    rg_get(&in, sizeof(struct rg_message_header));
    rg_get_into(&in, &notice, sizeof notice);
    if (in.bad) {
        malformed(session, "notice");
        return;
    }
    note_memory_left(session, notice.memory_left);
    switch (notice.type) {
    case RG_NOTICE_ERROR:
        rg_session_async_error(session, (CUresult)notice.arg[0], (unsigned)notice.arg[1]);
        return;
    case RG_NOTICE_ALIVE:
        return; /* that it came is all it says */
    case RG_NOTICE_OUTPUT:
        print_output(&notice, &in);
        return;
    case RG_NOTICE_GPU_PATH:
        if (notice.arg[0] >= RG_DEVICES_MAX || notice.arg[1] >= RG_GPU_PATH_PATHS)
            malformed(session, "notice of a way to a GPU");
        else
            atomic_store_explicit(&session->gpu_paths[notice.arg[0]], (uint8_t)notice.arg[1],
                                  memory_order_relaxed);
        return;
    case RG_NOTICE_TIMES:
        if (!RG_PROBED(times_notice) || !rg_probe->times_notice(session, &notice, message->bulk_size))
            malformed(session, "times that were not asked for");
        return;
    default: {
        rg_notice_handler *handler = notice.type < RG_NOTICE_TYPES ? rg_hooks.notice[notice.type] : NULL;
        if (!handler || !handler(session, &notice, &in, message->bulk_size)) {
            char what[32];
            snprintf(what, sizeof what, "notice of type %u", (unsigned)notice.type);
            malformed(session, what);
        }
    }
    }
}

static void handle_control(struct rg_session *session, const struct rg_message *message)
{
    struct rg_control control;
    if (rg_control_unpack(message->data, message->size, &control) != RG_OK) {
        malformed(session, "control message");
        return;
    }
    if (control.kind == RG_CONTROL_SESSION_END)
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s ended the session: %s", session->server,
                       control.session_end.reason);
    else if (control.kind == RG_CONTROL_REFUSAL)
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s ended the session: %s", session->server,
                       control.refusal.reason);
    rg_control_fini(&control);
}

/*
 * Receives and handles one message, up to `timeout_ms` from now (-1: for ever); the caller holds the role.
 * False: none came, or the session is over.
 */
static bool receive_one(struct rg_session *session, int timeout_ms)
{
    struct rg_message message;
    enum rg_status status = rg_conn_recv(session->conn, timeout_ms, &message);
    if (status == RG_ERR_TIMEOUT)
        return false;
    if (status != RG_OK) {
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE,
                       "lost the connection to %s (%s); CUDA calls %s now fail, restart the program when the "
                       "server is back",
                       session->server, rg_status_string(status),
                       rg_n_sessions > 1 ? "that concern its GPUs" : "of this program");
        return false;
    }
    session->stats.received_messages++;
    session->stats.received_bytes += message.size + message.bulk_size;
    struct rg_message_header header;
    if (message.size < sizeof header) {
        malformed(session, "message without a header");
        return false;
    }
    memcpy(&header, message.data, sizeof header);
    switch (header.kind) {
    case RG_MESSAGE_REPLY:
        handle_reply(session, &message);
        return true;
    case RG_MESSAGE_NOTICE:
        handle_notice(session, &message);
        return true;
    case RG_MESSAGE_CONTROL:
        handle_control(session, &message);
        return true;
    default:
        malformed(session, "unknown kind of message");
        return false;
    }
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
           !session_over(session);
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
        if (receiver->expected == expected && !is_needed(session))
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
        (void)receive_one(session, -1);
        pthread_mutex_lock(&receiver->lock);
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
    pthread_mutex_lock(&receiver->lock);
    expect(session, change);
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

void rg_receiver_expect_copy(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    pthread_mutex_lock(&receiver->lock);
    expect(session, 1);
    receiver->expected++;
    if (!receiver->looks)
        pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

void rg_receiver_prepare(struct rg_session *session, struct rg_waiter *waiter, uint32_t token)
{
    struct rg_receiver *receiver = &session->receiver;
    waiter->session = session;
    waiter->token = token;
    waiter->output = waiter->small;
    waiter->size = 0;
    waiter->received = 0;
    waiter->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    waiter->memory_taken = 0;
    pthread_mutex_lock(&receiver->lock);
    waiter->done = false;
    pthread_mutex_unlock(&receiver->lock);
}

bool rg_receiver_done(struct rg_session *session, struct rg_waiter *waiter)
{
    pthread_mutex_lock(&session->receiver.lock);
    const bool done = waiter->done;
    pthread_mutex_unlock(&session->receiver.lock);
    return done;
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

void rg_receiver_wait(struct rg_session *session, struct rg_waiter *waiter)
{
    RG_UNCANCELLED;
    struct rg_receiver *receiver = &session->receiver;
    pthread_mutex_lock(&receiver->lock);
    list_add(receiver, waiter);
    while (!waiter->done && (waiter->filling || !session_over(session))) {
        if (receiver->role_taken) { /* also by who fills it */
            pthread_cond_wait(&waiter->wake, &receiver->lock);
            continue;
        }
        receiver->role_taken = true;
        while (!waiter->done && !session_over(session)) {
            pthread_mutex_unlock(&receiver->lock);
            (void)receive_one(session, -1);
            pthread_mutex_lock(&receiver->lock);
        }
        receiver->role_taken = false;
    }
    if (!waiter->done) {
        waiter->done = true; /* the session is over */
        waiter->result = atomic_load(&session->ended);
    }
    list_remove(receiver, waiter);
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

/* Takes the role; false: another thread has it, and does not give it back soon. */
static bool take_role(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int i = 0; i < ROLE_PAUSES && !session_over(session); i++) {
        pthread_mutex_lock(&receiver->lock);
        const bool free = !receiver->role_taken;
        receiver->role_taken = true;
        pthread_mutex_unlock(&receiver->lock);
        if (free)
            return true;
        nanosleep(&pause, NULL);
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
    while (!session_over(session) && rg_conn_recv(session->conn, 0, &message) == RG_OK &&
           !message.bulk_size && message.size >= sizeof header) {
        memcpy(&header, message.data, sizeof header);
        if (header.kind == RG_MESSAGE_CONTROL)
            handle_control(session, &message);
    }
    pthread_mutex_lock(&receiver->lock);
    receiver->role_taken = false;
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
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
    while (!session_over(session) && receive_one(session, 0))
        ;
    pthread_mutex_lock(&receiver->lock);
    receiver->role_taken = false;
    pass_role(receiver);
    pthread_mutex_unlock(&receiver->lock);
}

void rg_receiver_wake_all(struct rg_session *session)
{
    struct rg_receiver *receiver = &session->receiver;
    pthread_mutex_lock(&receiver->lock);
    for (struct rg_waiter *waiter = receiver->waiting; waiter; waiter = waiter->next)
        pthread_cond_signal(&waiter->wake);
    pthread_mutex_unlock(&receiver->lock);
}
