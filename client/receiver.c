/*
 * receiver.c - the reader role: waiters in turn, the background thread when nobody waits.
 *
 * `lock` guards the role, the list of waiting lanes and every waiter's `done`. The connection is only read by the
 * thread that holds the role, without the lock. When the role is given up it goes to a waiter if there is one, else to
 * the background thread if notices are due, else to nobody: at rest no thread is inside a system call but sleeping.
 */
#include "client/receiver.h"

#include "client/command.h"
#include "client/session.h"
#include "client/stats.h"
#include "client/transfer.h"
#include "common/limits.h"
#include "common/log.h"
#include "proto/codec.h"
#include "proto/wire.h"
#include "transport/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t background_wake = PTHREAD_COND_INITIALIZER;
static bool role_taken;
static bool background_started;
static int notices_due;
static struct rg_waiter *waiting; /* first of the list */

static bool session_over(void)
{
    return atomic_load(&rg_session.ended) != CUDA_SUCCESS;
}

static void malformed(const char *what)
{
    rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "%s sent a malformed message (%s)", rg_session.server,
                   what);
}

/* Takes the bulk part of a reply into the rows its caller named. */
static enum rg_status take_bulk(struct rg_waiter *waiter, size_t size)
{
    if (!waiter->bulk || size != waiter->bulk_width * waiter->bulk_height)
        return size ? rg_conn_recv_bulk(rg_session.conn, NULL, size) : RG_OK;
    struct rg_host_area area = {
        waiter->bulk, waiter->bulk_pitch, waiter->bulk_width, waiter->bulk_height, 0, 0};
    return rg_area_receive(&area, 0, size, rg_session.conn);
}

static void handle_reply(const struct rg_message *message)
{
    struct rg_reader in = rg_reader_of(message->data, message->size);
    struct rg_reply reply;
    rg_get(&in, sizeof(struct rg_message_header));
    rg_get_into(&in, &reply, sizeof reply);
    if (in.bad || reply.size != rg_left(&in)) {
        malformed("reply");
        return;
    }
    struct rg_lane *lane = rg_lane_of_token(reply.token);
    struct rg_waiter *waiter = lane ? &lane->waiter : NULL;
    if (!waiter || waiter->done || waiter->token != reply.token) {
        malformed("reply that nobody waits for");
        return;
    }
    if (reply.size > sizeof waiter->small) {
        waiter->output = malloc(reply.size);
        if (!waiter->output) {
            waiter->output = waiter->small;
            rg_session_end(CUDA_ERROR_OUT_OF_MEMORY, "no memory for an answer of %zu bytes",
                           (size_t)reply.size);
            return;
        }
    }
    memcpy(waiter->output, in.at, reply.size);
    waiter->size = reply.size;
    waiter->result = (CUresult)reply.result;
    enum rg_status status = take_bulk(waiter, message->bulk_size);
    if (status == RG_ERR_FAULT)
        waiter->result = CUDA_ERROR_INVALID_VALUE;
    if (reply.async_result)
        rg_session_async_error((CUresult)reply.async_result, reply.async_op);
    pthread_mutex_lock(&lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->wake);
    pthread_mutex_unlock(&lock);
}

static void print_output(const struct rg_notice *notice, struct rg_reader *in)
{
    const char *text = rg_get(in, notice->arg[1]);
    size_t left = text ? notice->arg[1] : 0;
    /* The application's own buffered output came first. */
    FILE *stream = notice->arg[0] == 2 ? stderr : stdout;
    fwrite(text, 1, left, stream);
}

static void handle_notice(const struct rg_message *message)
{
    struct rg_reader in = rg_reader_of(message->data, message->size);
    struct rg_notice notice;
    rg_get(&in, sizeof(struct rg_message_header));
    rg_get_into(&in, &notice, sizeof notice);
    if (in.bad) {
        malformed("notice");
        return;
    }
    switch (notice.type) {
    case RG_NOTICE_ERROR:
        rg_session_async_error((CUresult)notice.arg[0], (unsigned)notice.arg[1]);
        return;
    case RG_NOTICE_OUTPUT:
        print_output(&notice, &in);
        return;
    default:
        if (rg_transfer_notice(&notice, rg_session.conn, message->bulk_size) == RG_ERR_PROTOCOL)
            malformed("notice of an unknown transfer");
        return;
    }
}

static void handle_control(const struct rg_message *message)
{
    struct rg_control control;
    if (rg_control_unpack(message->data, message->size, &control) != RG_OK) {
        malformed("control message");
        return;
    }
    if (control.kind == RG_CONTROL_SESSION_END)
        rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "%s ended the session: %s", rg_session.server,
                       control.session_end.reason);
    else if (control.kind == RG_CONTROL_REFUSAL)
        rg_session_end(CUDA_ERROR_DEVICE_UNAVAILABLE, "%s ended the session: %s", rg_session.server,
                       control.refusal.reason);
    rg_control_fini(&control);
}

/* Receives and handles one message; the caller holds the role. */
static void receive_one(void)
{
    struct rg_message message;
    enum rg_status status = rg_conn_recv(rg_session.conn, -1, &message);
    if (status != RG_OK) {
        rg_session_end(
            CUDA_ERROR_DEVICE_UNAVAILABLE,
            "lost the connection to %s (%s); CUDA calls of this program now fail, restart it when the "
            "server is back",
            rg_session.server, rg_status_string(status));
        return;
    }
    rg_stats.received_messages++;
    rg_stats.received_bytes += message.size + message.bulk_size;
    struct rg_message_header header;
    if (message.size < sizeof header) {
        malformed("message without a header");
        return;
    }
    memcpy(&header, message.data, sizeof header);
    switch (header.kind) {
    case RG_MESSAGE_REPLY:
        handle_reply(&message);
        return;
    case RG_MESSAGE_NOTICE:
        handle_notice(&message);
        return;
    case RG_MESSAGE_CONTROL:
        handle_control(&message);
        return;
    default:
        malformed("unknown kind of message");
    }
}

/* Gives the role to whoever should have it next; the lock is held, the role is free. */
static void pass_role(void)
{
    if (role_taken)
        return;
    for (struct rg_waiter *waiter = waiting; waiter; waiter = waiter->next)
        if (!waiter->done) {
            pthread_cond_signal(&waiter->wake);
            return;
        }
    if (notices_due > 0)
        pthread_cond_signal(&background_wake);
}

static bool others_wait(void)
{
    for (struct rg_waiter *waiter = waiting; waiter; waiter = waiter->next)
        if (!waiter->done)
            return true;
    return false;
}

static void *background_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (role_taken || notices_due <= 0 || others_wait() || session_over())
            pthread_cond_wait(&background_wake, &lock);
        role_taken = true;
        pthread_mutex_unlock(&lock);
        receive_one();
        pthread_mutex_lock(&lock);
        role_taken = false;
        pass_role();
    }
    return NULL;
}

void rg_receiver_expect_notices(int change)
{
    pthread_mutex_lock(&lock);
    notices_due += change;
    if (!background_started && notices_due > 0)
        background_started = rg_thread_start("rg-receiver", background_main) == RG_OK;
    pass_role();
    pthread_mutex_unlock(&lock);
}

void rg_receiver_prepare(struct rg_waiter *waiter, uint32_t token)
{
    waiter->token = token;
    waiter->output = waiter->small;
    waiter->size = 0;
    waiter->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    pthread_mutex_lock(&lock);
    waiter->done = false;
    pthread_mutex_unlock(&lock);
}

static void list_add(struct rg_waiter *waiter)
{
    waiter->previous = NULL;
    waiter->next = waiting;
    if (waiting)
        waiting->previous = waiter;
    waiting = waiter;
}

static void list_remove(struct rg_waiter *waiter)
{
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        waiting = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
}

void rg_receiver_wait(struct rg_waiter *waiter)
{
    pthread_mutex_lock(&lock);
    list_add(waiter);
    while (!waiter->done && !session_over()) {
        if (role_taken) {
            pthread_cond_wait(&waiter->wake, &lock);
            continue;
        }
        role_taken = true;
        while (!waiter->done && !session_over()) {
            pthread_mutex_unlock(&lock);
            receive_one();
            pthread_mutex_lock(&lock);
        }
        role_taken = false;
    }
    if (!waiter->done) {
        waiter->done = true; /* the session is over */
        waiter->result = atomic_load(&rg_session.ended);
    }
    list_remove(waiter);
    pass_role();
    pthread_mutex_unlock(&lock);
}

void rg_receiver_wake_all(void)
{
    pthread_mutex_lock(&lock);
    for (struct rg_waiter *waiter = waiting; waiter; waiter = waiter->next)
        pthread_cond_signal(&waiter->wake);
    pthread_mutex_unlock(&lock);
}
