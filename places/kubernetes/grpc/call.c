/* call.c - calls, the threads that answer them, and what is sent back: see internal.h. */
#include "places/kubernetes/grpc/internal.h"

#include "common/base/thread.h"
#include "places/kubernetes/grpc/header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- who has them ------------------------------------------------------------------------------------------------ */

static void free_call(struct rg_grpc_call *call)
{
    free(call->data);
    free(call->answer.message);
    free(call);
}

void rg_grpc_call_detach(struct rg_grpc_server *server, struct rg_grpc_call *call)
{
    for (struct rg_grpc_call **at = &call->connection->calls; *at; at = &(*at)->sibling)
        if (*at == call) {
            *at = call->sibling;
            break;
        }
    pthread_mutex_lock(&server->lock);
    call->attached = false;
    call->connection = NULL;
    const bool mine = !call->running;
    for (struct rg_grpc_call **at = &server->done; mine && *at; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            break;
        }
    pthread_mutex_unlock(&server->lock);
    if (mine)
        free_call(call);
}

struct job {
    struct rg_grpc_server *server;
    struct rg_grpc_call *call;
};

static void *answer(void *context)
{
    const struct job job = *(const struct job *)context;
    struct rg_grpc_server *server = job.server;
    struct rg_grpc_call *call = job.call;
    free(context); /* nothing of it is left when the server is told that this is done */
    const uint8_t *message;
    size_t size;
    call->status = rg_grpc_unframe(call->data, call->size, &message, &size);
    if (call->status == RG_GRPC_OK)
        call->status = call->method->serve(server->context, message, size, &call->answer);
    else
        snprintf(call->answer.why, sizeof call->answer.why,
                 "the request is not one whole, uncompressed message");
    pthread_mutex_lock(&server->lock);
    call->running = false;
    const bool mine = !call->attached;
    if (!mine) {
        call->next = server->done;
        server->done = call;
        rg_grpc_wake(server);
    }
    if (--server->n_running == 0)
        pthread_cond_signal(&server->idle);
    pthread_mutex_unlock(&server->lock);
    if (mine)
        free_call(call);
    return NULL;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

size_t rg_grpc_call_put(struct rg_grpc_call *call, uint8_t *out, size_t room)
{
    size_t put = 0;
    while (put < room && call->sent < sizeof call->head)
        out[put++] = call->head[call->sent++];
    const size_t at = call->sent - (call->sent < sizeof call->head ? call->sent : sizeof call->head);
    size_t more = call->sent < sizeof call->head ? 0 : call->answer.size - at;
    more = more < room - put ? more : room - put;
    if (more)
        memcpy(out + put, call->answer.message + at, more);
    call->sent += more;
    return put + more;
}

bool rg_grpc_call_is_sent(const struct rg_grpc_call *call)
{
    return call->sent == sizeof call->head + call->answer.size;
}

/* Head and message, and then the trailer with the status. */
static ssize_t put_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    struct rg_grpc_call *call = source->ptr;
    (void)context;
    const size_t put = rg_grpc_call_put(call, out, room);
    if (rg_grpc_call_is_sent(call)) {
        const nghttp2_nv trailer[] = {RG_GRPC_HEADER("grpc-status", "0")};
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream, trailer, 1) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)put;
}

/* False: the connection is of no further use. */
static bool submit(struct rg_grpc_call *call)
{
    nghttp2_session *session = call->connection->session;
    if (call->status == RG_GRPC_OK) {
        const nghttp2_nv headers[] = {RG_GRPC_HEADER(":status", "200"),
                                      RG_GRPC_HEADER("content-type", "application/grpc")};
        const nghttp2_data_provider body = {.source.ptr = call, .read_callback = put_body};
        rg_grpc_frame(call->head, call->answer.size);
        return nghttp2_submit_response(session, call->stream, headers, 2, &body) == 0;
    }
    rg_grpc_escape(call->answer.why, call->why, sizeof call->why);
    snprintf(call->code, sizeof call->code, "%d", (int)call->status);
    const nghttp2_nv headers[] = {
        RG_GRPC_HEADER(":status", "200"), RG_GRPC_HEADER("content-type", "application/grpc"),
        RG_GRPC_HEADER("grpc-status", call->code), RG_GRPC_HEADER("grpc-message", call->why)};
    return nghttp2_submit_response(session, call->stream, headers, 4, NULL) == 0;
}

static bool refuse(struct rg_grpc_call *call, enum rg_grpc_status status, const char *why)
{
    call->status = status;
    snprintf(call->answer.why, sizeof call->answer.why, "%s", why);
    return submit(call);
}

bool rg_grpc_call_begin(struct rg_grpc_server *server, struct rg_grpc_call *call)
{
    if (!call->is_post || !call->is_grpc || !call->method)
        return refuse(call, RG_GRPC_UNIMPLEMENTED, "this driver has no such method");
    if (call->too_large)
        return refuse(call, RG_GRPC_RESOURCE_EXHAUSTED, "the message is larger than this driver takes");
    if (!call->method->serve)
        return rg_grpc_stream_begin(call);
    struct job *job = malloc(sizeof *job);
    pthread_mutex_lock(&server->lock);
    const bool room = job && server->n_running < RG_KUBE_CALLS_MAX;
    server->n_running += room;
    call->running = room;
    pthread_mutex_unlock(&server->lock);
    if (room) {
        *job = (struct job){server, call};
        if (rg_thread_start("grpc-call", answer, job))
            return true;
        pthread_mutex_lock(&server->lock);
        server->n_running--;
        call->running = false;
        pthread_mutex_unlock(&server->lock);
    }
    free(job);
    return refuse(call, RG_GRPC_RESOURCE_EXHAUSTED, "too many calls are being answered; try again");
}

void rg_grpc_calls_submit(struct rg_grpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    struct rg_grpc_call *call = server->done;
    server->done = NULL;
    pthread_mutex_unlock(&server->lock);
    for (struct rg_grpc_call *next; call; call = next) {
        next = call->next;
        call->next = NULL;
        if (!submit(call))
            (void)nghttp2_session_terminate_session(call->connection->session, NGHTTP2_INTERNAL_ERROR);
    }
}
