/*
 * stream.c - calls whose answer has no end: they are told what is published, and wait while that is the same. See internal.h.
 */
#include "places/kubernetes/grpc/header.h"
#include "places/kubernetes/grpc/internal.h"

#include <stdlib.h>
#include <string.h>

/* Has the call send what is published. False: it has sent that already, or there is no memory. */
static bool take_edition(struct rg_grpc_server *server, struct rg_grpc_call *call)
{
    pthread_mutex_lock(&server->lock);
    uint8_t *copy = call->edition != server->edition ? malloc(server->published_size + 1) : NULL;
    if (copy) {
        if (server->published_size)
            memcpy(copy, server->published, server->published_size);
        free(call->answer.message);
        call->answer.message = copy;
        call->answer.size = server->published_size;
        call->edition = server->edition;
        call->sent = 0;
        rg_grpc_frame(call->head, call->answer.size);
    }
    pthread_mutex_unlock(&server->lock);
    return copy != NULL;
}

static ssize_t put_stream(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *context)
{
    const struct rg_grpc_connection *connection = context;
    struct rg_grpc_call *call = source->ptr;
    (void)session, (void)stream, (void)flags;
    if ((!call->edition || rg_grpc_call_is_sent(call)) && !take_edition(connection->server, call)) {
        call->is_idle = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)rg_grpc_call_put(call, out, room);
}

bool rg_grpc_stream_begin(struct rg_grpc_call *call)
{
    const nghttp2_nv headers[] = {RG_GRPC_HEADER(":status", "200"),
                                  RG_GRPC_HEADER("content-type", "application/grpc")};
    const nghttp2_data_provider body = {.source.ptr = call, .read_callback = put_stream};
    return nghttp2_submit_response(call->connection->session, call->stream, headers, 2, &body) == 0;
}

void rg_grpc_streams_resume(struct rg_grpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    const uint64_t edition = server->edition;
    pthread_mutex_unlock(&server->lock);
    for (unsigned i = 0; i < server->n_connections; i++)
        for (struct rg_grpc_call *call = server->connections[i]->calls; call; call = call->sibling)
            if (call->is_idle && call->edition != edition) {
                call->is_idle = false;
                (void)nghttp2_session_resume_data(server->connections[i]->session, call->stream);
            }
}

bool rg_grpc_publish(struct rg_grpc_server *server, const uint8_t *message, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return false;
    if (size)
        memcpy(copy, message, size);
    pthread_mutex_lock(&server->lock);
    free(server->published);
    server->published = copy;
    server->published_size = size;
    server->edition++;
    pthread_mutex_unlock(&server->lock);
    rg_grpc_wake(server);
    return true;
}
