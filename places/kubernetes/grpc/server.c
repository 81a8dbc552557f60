/*
 * server.c - see server.h.
 *
 * A call belongs to its stream until that closes, and to the thread that answers it until that is done; who lets go of it last
 * frees it. What both look at is under the server's lock: `attached`, `running`, the list of calls that are done.
 */
#include "places/kubernetes/grpc/server.h"

#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/thread.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENERS 2

struct connection {
    struct rg_grpc_server *server;
    int fd;
    nghttp2_session *session;
    struct call *calls; /* that are attached */
};

struct call {
    struct connection *connection; /* where attached */
    int32_t stream;
    const struct rg_grpc_method *method; /* NULL: there is none of that path */
    uint8_t *data;                       /* what has come of the request */
    size_t size;
    bool too_large, is_post, is_grpc;
    enum rg_grpc_status status;
    struct rg_grpc_answer answer;
    uint8_t head[RG_GRPC_FRAME];
    size_t sent; /* of head and message */
    char code[8], why[512];
    bool attached, running;
    struct call *next;    /* in the list of those that are done */
    struct call *sibling; /* in its connection's list */
};

struct rg_grpc_server {
    const struct rg_grpc_method *methods;
    size_t n_methods;
    void *context;
    int listeners[LISTENERS], wake;
    char *paths[LISTENERS];
    unsigned n_listeners, n_connections;
    struct connection *connections[RG_KUBE_CONNECTIONS_MAX];
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned n_running; /* under the lock, as is the list */
    struct call *done;
};

/* --- calls ------------------------------------------------------------------------------------------------------ */

static void free_call(struct call *call)
{
    free(call->data);
    free(call->answer.message);
    free(call);
}

static void wake(const struct rg_grpc_server *server)
{
    const uint64_t one = 1;
    if (write(server->wake, &one, sizeof one) < 0) {
        /* it is full: the loop wakes up anyway */
    }
}

/* The stream has closed, or its connection. */
static void detach(struct rg_grpc_server *server, struct call *call)
{
    for (struct call **at = &call->connection->calls; *at; at = &(*at)->sibling)
        if (*at == call) {
            *at = call->sibling;
            break;
        }
    pthread_mutex_lock(&server->lock);
    call->attached = false;
    call->connection = NULL;
    const bool mine = !call->running;
    for (struct call **at = &server->done; mine && *at; at = &(*at)->next)
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
    struct call *call;
};

static void *answer(void *context)
{
    RG_CLEANUP_FREE struct job *job = context;
    struct rg_grpc_server *server = job->server;
    struct call *call = job->call;
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
        wake(server);
    }
    if (--server->n_running == 0)
        pthread_cond_signal(&server->idle);
    pthread_mutex_unlock(&server->lock);
    if (mine)
        free_call(call);
    return NULL;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

#define HEADER(name_, value_)                                                                                \
    {                                                                                                        \
        .name = (uint8_t *)(uintptr_t)(name_), .namelen = strlen(name_),                                     \
        .value = (uint8_t *)(uintptr_t)(value_), .valuelen = strlen(value_), .flags = NGHTTP2_NV_FLAG_NONE   \
    }

/* Head and message, and then the trailer with the status. */
static ssize_t put_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    struct call *call = source->ptr;
    size_t put = 0;
    (void)context;
    while (put < room && call->sent < sizeof call->head)
        out[put++] = call->head[call->sent++];
    const size_t at = call->sent - (call->sent < sizeof call->head ? call->sent : sizeof call->head);
    size_t more = call->sent < sizeof call->head ? 0 : call->answer.size - at;
    more = more < room - put ? more : room - put;
    if (more)
        memcpy(out + put, call->answer.message + at, more);
    call->sent += more;
    put += more;
    if (call->sent == sizeof call->head + call->answer.size) {
        const nghttp2_nv trailer[] = {HEADER("grpc-status", "0")};
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream, trailer, 1) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)put;
}

/* False: the connection is of no further use. */
static bool submit(struct call *call)
{
    nghttp2_session *session = call->connection->session;
    if (call->status == RG_GRPC_OK) {
        const nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};
        const nghttp2_data_provider body = {.source.ptr = call, .read_callback = put_body};
        rg_grpc_frame(call->head, call->answer.size);
        return nghttp2_submit_response(session, call->stream, headers, 2, &body) == 0;
    }
    rg_grpc_escape(call->answer.why, call->why, sizeof call->why);
    snprintf(call->code, sizeof call->code, "%d", (int)call->status);
    const nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc"),
                                  HEADER("grpc-status", call->code), HEADER("grpc-message", call->why)};
    return nghttp2_submit_response(session, call->stream, headers, 4, NULL) == 0;
}

static bool refuse(struct call *call, enum rg_grpc_status status, const char *why)
{
    call->status = status;
    snprintf(call->answer.why, sizeof call->answer.why, "%s", why);
    return submit(call);
}

/* The request is whole. */
static bool begin(struct rg_grpc_server *server, struct call *call)
{
    if (!call->is_post || !call->is_grpc || !call->method)
        return refuse(call, RG_GRPC_UNIMPLEMENTED, "this driver has no such method");
    if (call->too_large)
        return refuse(call, RG_GRPC_RESOURCE_EXHAUSTED, "the message is larger than this driver takes");
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

/* --- what nghttp2 tells ------------------------------------------------------------------------------------------- */

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct connection *connection = context;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct call *call = calloc(1, sizeof *call);
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
    const struct connection *connection = context;
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
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
    struct call *call = nghttp2_session_get_stream_user_data(session, stream);
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
    struct connection *connection = context;
    const bool is_end = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
                        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    struct call *call = is_end ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;
    return !call || begin(connection->server, call) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int close_stream(nghttp2_session *session, int32_t stream, uint32_t error, void *context)
{
    struct connection *connection = context;
    struct call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)error;
    if (call) {
        (void)nghttp2_session_set_stream_user_data(session, stream, NULL);
        detach(connection->server, call);
    }
    return 0;
}

static ssize_t put(nghttp2_session *session, const uint8_t *data, size_t size, int flags, void *context)
{
    const struct connection *connection = context;
    (void)session, (void)flags;
    const ssize_t sent = send(connection->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* --- connections --------------------------------------------------------------------------------------------------- */

static nghttp2_session *open_session(struct connection *connection)
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

static void accept_one(struct rg_grpc_server *server, int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct connection *connection =
        fd >= 0 && server->n_connections < RG_KUBE_CONNECTIONS_MAX ? calloc(1, sizeof *connection) : NULL;
    if (connection) {
        *connection = (struct connection){.server = server, .fd = fd};
        connection->session = open_session(connection);
    }
    if (connection && connection->session) {
        server->connections[server->n_connections++] = connection;
        return;
    }
    free(connection);
    if (fd >= 0)
        close(fd);
}

/* Its calls are let go of first: deleting a session does not tell of its streams. */
static void close_connection(struct rg_grpc_server *server, unsigned i)
{
    struct connection *connection = server->connections[i];
    while (connection->calls)
        detach(server, connection->calls);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    free(connection);
    server->connections[i] = server->connections[--server->n_connections];
}

/* False: it has ended. */
static bool read_some(const struct connection *connection)
{
    uint8_t data[16384];
    const ssize_t size = recv(connection->fd, data, sizeof data, MSG_DONTWAIT);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    return size > 0 && nghttp2_session_mem_recv(connection->session, data, (size_t)size) == size;
}

static void submit_done(struct rg_grpc_server *server)
{
    pthread_mutex_lock(&server->lock);
    struct call *call = server->done;
    server->done = NULL;
    pthread_mutex_unlock(&server->lock);
    for (struct call *next; call; call = next) {
        next = call->next;
        call->next = NULL;
        if (!submit(call))
            (void)nghttp2_session_terminate_session(call->connection->session, NGHTTP2_INTERNAL_ERROR);
    }
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

static unsigned what_to_poll(const struct rg_grpc_server *server, struct pollfd *polled)
{
    unsigned n = 0;
    polled[n++] = (struct pollfd){.fd = server->wake, .events = POLLIN};
    for (unsigned i = 0; i < server->n_listeners; i++)
        polled[n++] = (struct pollfd){.fd = server->listeners[i], .events = POLLIN};
    for (unsigned i = 0; i < server->n_connections; i++) {
        const bool writes = nghttp2_session_want_write(server->connections[i]->session);
        polled[n++] = (struct pollfd){.fd = server->connections[i]->fd,
                                      .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
    }
    return n;
}

static void serve_connections(struct rg_grpc_server *server, const struct pollfd *polled)
{
    for (unsigned i = server->n_connections; i-- > 0;) {
        const struct connection *connection = server->connections[i];
        nghttp2_session *session = connection->session;
        bool good = !(polled[i].revents & (POLLIN | POLLHUP | POLLERR)) || read_some(connection);
        good = good && nghttp2_session_send(session) == 0 &&
               (nghttp2_session_want_read(session) || nghttp2_session_want_write(session));
        if (!good)
            close_connection(server, i);
    }
}

enum rg_status rg_grpc_serve(struct rg_grpc_server *server)
{
    struct pollfd polled[1 + LISTENERS + RG_KUBE_CONNECTIONS_MAX];
    while (!atomic_load(&server->stopping)) {
        const unsigned n = what_to_poll(server, polled), first = 1 + server->n_listeners;
        uint64_t count;
        if (poll(polled, n, -1) < 0) {
            if (errno == EINTR)
                continue;
            rg_error("cannot wait for the kubelet: %s", strerror(errno));
            return RG_ERR_IO;
        }
        if (polled[0].revents && read(server->wake, &count, sizeof count) < 0)
            continue;
        submit_done(server);
        serve_connections(server, polled + first);
        for (unsigned i = 0; i < server->n_listeners; i++)
            if (polled[1 + i].revents)
                accept_one(server, server->listeners[i]);
    }
    return RG_OK;
}

/* --- the server -------------------------------------------------------------------------------------------------------- */

struct rg_grpc_server *rg_grpc_create(const struct rg_grpc_method *methods, size_t n, void *context)
{
    struct rg_grpc_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->methods = methods;
    server->n_methods = n;
    server->context = context;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->idle, NULL);
    if (server->wake >= 0)
        return server;
    rg_grpc_destroy(server);
    return NULL;
}

enum rg_status rg_grpc_listen(struct rg_grpc_server *server, const char *path, char *why, size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (server->n_listeners == LISTENERS || strlen(path) >= sizeof address.sun_path) {
        rg_explain(why, why_size, "%s: a socket's path has at most %zu bytes", path,
                   sizeof address.sun_path - 1);
        return RG_ERR_INVALID;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    (void)unlink(path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0177);
    const bool good =
        fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0;
    const int error = errno;
    umask(mask);
    char *copy = good ? strdup(path) : NULL;
    if (!copy) {
        if (fd >= 0)
            close(fd);
        rg_explain(why, why_size, "cannot listen on %s: %s", path, strerror(good ? ENOMEM : error));
        return RG_ERR_IO;
    }
    server->paths[server->n_listeners] = copy;
    server->listeners[server->n_listeners++] = fd;
    return RG_OK;
}

void rg_grpc_stop(struct rg_grpc_server *server)
{
    atomic_store(&server->stopping, true);
    wake(server);
}

void rg_grpc_destroy(struct rg_grpc_server *server)
{
    if (!server)
        return;
    for (unsigned i = 0; i < server->n_listeners; i++) {
        (void)unlink(server->paths[i]);
        free(server->paths[i]);
        close(server->listeners[i]);
    }
    while (server->n_connections)
        close_connection(server, 0);
    pthread_mutex_lock(&server->lock);
    while (server->n_running)
        pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
    if (server->wake >= 0)
        close(server->wake);
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
