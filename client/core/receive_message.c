/*
 * receive_message.c - one message of the worker: a reply goes to who waits for it, a notice to the part that it is for.
 *
 * What is malformed, or answers nothing that was asked, ends the session. The thread that has the reader role (receiver.h), without
 * its lock.
 */
#include "client/core/receive_message.h"

#include "client/core/future.h"
#include "client/core/hooks.h"
#include "client/core/probe.h"
#include "client/core/region.h"
#include "client/core/session.h"
#include "client/core/stats.h"
#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/base/printable.h"
#include "proto/codec.h"
#include "proto/gpu_path.h"
#include "proto/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void malformed(struct rg_session *session, const char *what)
{
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s sent a malformed message (%s)",
                   session->server, what);
}

static void lost(struct rg_session *session, enum rg_status status)
{
    rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE,
                   "lost the connection to %s (%s); CUDA calls %s now fail, restart the program when the "
                   "server is back",
                   session->server, rg_status_string(status),
                   session->guest || rg_n_own_sessions > 1 ? "that concern its GPUs" : "of this program");
}

/* Takes the bulk part of a reply to where its caller wants it. */
static enum rg_status take_bulk(struct rg_session *session, const struct rg_region *into, size_t size)
{
    RG_THREAD_INSIDE(NULL);
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
    if (status == RG_ERR_FAULT) {
        waiter->result = CUDA_ERROR_INVALID_VALUE;
    } else if (status != RG_OK) { /* said before the call returns: the program may end by its error */
        waiter->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
        lost(session, status);
    }
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

/* What kernels print is the program's own. On standard error are assertions' texts, or what else a server says: no terminal obeys it. */
static void print_output(const struct rg_notice *notice, struct rg_reader *in)
{
    const char *text = rg_get(in, notice->arg[1]);
    const size_t size = text ? notice->arg[1] : 0;
    if (size && notice->arg[0] == 2) {
        RG_CLEANUP_FREE char *lines = malloc(size);
        if (lines) {
            memcpy(lines, text, size);
            rg_printable_clean_lines(lines, size);
            fwrite(lines, 1, size, stderr);
        }
        fflush(stderr);
        return;
    }
    /* The application's own buffered output came first. */
    if (size)
        fwrite(text, 1, size, stdout);
    fflush(stdout); /* as a driver in this process does: the program may end without that */
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

void rg_message_control(struct rg_session *session, const struct rg_message *message)
{
    RG_CLEANUP_FREE struct rg_control *control = malloc(sizeof *control); /* too large for little stacks */
    if (!control || rg_control_unpack(message->data, message->size, control) != RG_OK) {
        malformed(session, "control message");
        return;
    }
    if (control->kind == RG_CONTROL_SESSION_END || control->kind == RG_CONTROL_REFUSAL)
        rg_session_end(session, CUDA_ERROR_DEVICE_UNAVAILABLE, "%s ended the session: %s", session->server,
                       control->kind == RG_CONTROL_REFUSAL ? control->refusal.reason
                                                           : control->session_end.reason);
    rg_control_fini(control);
}

static enum rg_status receive(struct rg_session *session, int timeout_ms, struct rg_message *out)
{
    RG_THREAD_INSIDE(session->conn);
    return rg_conn_recv(session->conn, timeout_ms, out);
}

bool rg_message_receive(struct rg_session *session, int timeout_ms)
{
    struct rg_message message;
    const enum rg_status status = receive(session, timeout_ms, &message);
    if (status == RG_ERR_TIMEOUT)
        return false;
    if (status != RG_OK) {
        lost(session, status);
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
        rg_message_control(session, &message);
        return true;
    default:
        malformed(session, "unknown kind of message");
        return false;
    }
}
