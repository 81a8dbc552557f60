/*
 * connection.c - a connection of the kubelet's: HTTP/2 by nghttp2, whose callbacks gather each request, and send. What is whole is a call's
 * (call.c). A peer that breaks HTTP/2's rules loses its connection.
 */
#include "places/kubernetes/grpc/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- what nghttp2 tells ------------------------------------------------------------------------------------------ */

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct rg_grpc_connection *connection = context;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct rg_grpc_call *call = calloc(1, sizeof *call);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->connection = connection;
    call->stream = frame->hd.stream_id;
    call->attached = true;
    if (nghttp2_session_set_stream_user_data(session, call->stream, call) != 0) {
        free(call);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    call->sibling = connection->calls;
    connection->calls = call;
    return 0;
}

static bool equals(const uint8_t *a, size_t size, const char *b)
{
    return size == strlen(b) && memcmp(a, b, size) == 0;
}

static int take_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_size, const uint8_t *value, size_t size, uint8_t flags, void *context)
{
    static const char grpc[] = "application/grpc"; /* "+proto" may follow */
    const struct rg_grpc_connection *connection = context;
    struct rg_grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    if (!call)
        return 0;
    if (equals(name, name_size, ":method"))
        call->is_post = equals(value, size, "POST");
    if (equals(name, name_size, "content-type"))
        call->is_grpc = size >= sizeof grpc - 1 && memcmp(value, grpc, sizeof grpc - 1) == 0;
    for (size_t i = 0; equals(name, name_size, ":path") && i < connection->server->n_methods; i++)
        if (equals(value, size, connection->server->methods[i].path))
            call->method = &connection->server->methods[i];
    return 0;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                     size_t size, void *context)
{
    struct rg_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)flags, (void)context;
    if (!call || call->too_large || !size)
        return 0;
    uint8_t *grown = size <= RG_KUBE_MESSAGE_MAX - call->size ? realloc(call->data, call->size + size) : NULL;
    if (!grown) {
        call->too_large = true;
        return 0;
    }
    memcpy(grown + call->size, data, size);
    call->data = grown;
    call->size += size;
    return 0;
}

static int take_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct rg_grpc_connection *connection = context;
    const bool is_end = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    struct rg_grpc_call *call =
        is_end ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;
    return !call || rg_grpc_call_begin(connection->server, call) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int close_stream(nghttp2_session *session, int32_t stream, uint32_t error, void *context)
{
    struct rg_grpc_connection *connection = context;
    struct rg_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)error;
    if (call) {
        (void)nghttp2_session_set_stream_user_data(session, stream, NULL);
        rg_grpc_call_detach(connection->server, call);
    }
    return 0;
}

static ssize_t put(nghttp2_session *session, const uint8_t *data, size_t size, int flags, void *context)
{
    const struct rg_grpc_connection *connection = context;
    (void)session, (void)flags;
    const ssize_t sent = send(connection->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* --- its life ---------------------------------------------------------------------------------------------------- */

static nghttp2_session *open_session(struct rg_grpc_connection *connection)
{
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, RG_KUBE_CALLS_MAX}};
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, take_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    nghttp2_session_callbacks_set_send_callback(callbacks, put);
    if (nghttp2_session_server_new(&session, callbacks, connection) != 0)
        session = NULL;
    nghttp2_session_callbacks_del(callbacks);
    if (session && nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, 1) == 0)
        return session;
    nghttp2_session_del(session);
    return NULL;
}

struct rg_grpc_connection *rg_grpc_connection_open(struct rg_grpc_server *server, int fd)
{
    struct rg_grpc_connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    *connection = (struct rg_grpc_connection){.server = server, .fd = fd};
    connection->session = open_session(connection);
    if (connection->session)
        return connection;
    free(connection);
    return NULL;
}

void rg_grpc_connection_close(struct rg_grpc_connection *connection)
{
    while (connection->calls)
        rg_grpc_call_detach(connection->server, connection->calls);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    free(connection);
}

bool rg_grpc_connection_read(const struct rg_grpc_connection *connection)
{
    uint8_t data[16384];
    const ssize_t size = recv(connection->fd, data, sizeof data, MSG_DONTWAIT);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    return size > 0 && nghttp2_session_mem_recv(connection->session, data, (size_t)size) == size;
}
