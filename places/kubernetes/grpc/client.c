/* client.c - see client.h. */
#include "places/kubernetes/grpc/client.h"

#include "common/base/limits.h"
#include "common/base/printable.h"
#include "places/kubernetes/grpc/frame.h"
#include "places/kubernetes/grpc/header.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct call {
    int fd;
    nghttp2_session *session;
    uint8_t head[RG_GRPC_FRAME];
    const uint8_t *message;
    size_t size, sent; /* of head and message */
    uint8_t *data;     /* what has come */
    size_t data_size;
    bool ended, too_large;
    char code[16], said[256]; /* grpc-status and grpc-message */
};

/* --- what nghttp2 asks and tells ----------------------------------------------------------------------------------- */

static ssize_t put_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    struct call *call = source->ptr;
    size_t put = 0;
    (void)session, (void)stream, (void)context;
    while (put < room && call->sent < sizeof call->head + call->size) {
        out[put++] = call->sent < sizeof call->head ? call->head[call->sent]
                                                    : call->message[call->sent - sizeof call->head];
        call->sent++;
    }
    if (call->sent == sizeof call->head + call->size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)put;
}

static bool is_named(const uint8_t *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(name, wanted, size) == 0;
}

static int take_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_size, const uint8_t *value, size_t size, uint8_t flags, void *context)
{
    struct call *call = context;
    (void)session, (void)frame, (void)flags;
    if (is_named(name, name_size, "grpc-status"))
        snprintf(call->code, sizeof call->code, "%.*s", (int)size, (const char *)value);
    if (is_named(name, name_size, "grpc-message"))
        snprintf(call->said, sizeof call->said, "%.*s", (int)size, (const char *)value);
    return 0;
}

static int take_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                     size_t size, void *context)
{
    struct call *call = context;
    (void)session, (void)flags, (void)stream;
    if (call->too_large || !size)
        return 0;
    uint8_t *grown =
        size <= RG_KUBE_ANSWER_MAX - call->data_size ? realloc(call->data, call->data_size + size) : NULL;
    if (!grown) {
        call->too_large = true;
        return 0;
    }
    memcpy(grown + call->data_size, data, size);
    call->data = grown;
    call->data_size += size;
    return 0;
}

static int close_stream(nghttp2_session *session, int32_t stream, uint32_t error, void *context)
{
    struct call *call = context;
    (void)session, (void)stream, (void)error;
    call->ended = true;
    return 0;
}

static ssize_t put(nghttp2_session *session, const uint8_t *data, size_t size, int flags, void *context)
{
    const struct call *call = context;
    (void)session, (void)flags;
    const ssize_t sent = send(call->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* --- one call ------------------------------------------------------------------------------------------------------- */

static bool open_session(struct call *call)
{
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return false;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, take_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, take_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, close_stream);
    nghttp2_session_callbacks_set_send_callback(callbacks, put);
    const bool good = nghttp2_session_client_new(&call->session, callbacks, call) == 0;
    nghttp2_session_callbacks_del(callbacks);
    return good;
}

static bool submit(struct call *call, const char *method)
{
    const nghttp2_nv headers[] = {
        RG_GRPC_HEADER(":method", "POST"),
        RG_GRPC_HEADER(":scheme", "http"),
        RG_GRPC_HEADER(":path", method),
        RG_GRPC_HEADER(":authority", "localhost"),
        RG_GRPC_HEADER("te", "trailers"),
        RG_GRPC_HEADER("content-type", "application/grpc"),
        RG_GRPC_HEADER("user-agent", "remote-gpu"),
    };
    const nghttp2_data_provider body = {.source.ptr = call, .read_callback = put_body};
    rg_grpc_frame(call->head, call->size);
    return nghttp2_submit_settings(call->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0 &&
           nghttp2_submit_request(call->session, NULL, headers, sizeof headers / sizeof headers[0], &body,
                                  call) > 0;
}

/* Until the stream has ended. False: the connection has failed, or nothing came in time. */
static bool talk(struct call *call, uint64_t timeout_ns, char *why, size_t why_size)
{
    uint8_t data[16384];
    while (nghttp2_session_send(call->session) == 0 && !call->ended) {
        struct pollfd polled = {.fd = call->fd, .events = POLLIN};
        if (nghttp2_session_want_write(call->session))
            polled.events |= POLLOUT;
        const int ready = poll(&polled, 1, (int)(timeout_ns / 1000000));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            rg_explain(why, why_size, "it does not answer");
            return false;
        }
        const ssize_t size = recv(call->fd, data, sizeof data, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (size <= 0 || nghttp2_session_mem_recv(call->session, data, (size_t)size) != size)
            break;
    }
    if (!call->ended)
        rg_explain(why, why_size, "the connection ended before the answer had come");
    return call->ended;
}

static enum rg_status judge(struct call *call, struct rg_grpc_reply *reply, char *why, size_t why_size)
{
    const uint8_t *message;
    size_t size;
    rg_printable_clean(call->said);
    if (strcmp(call->code, "0") != 0)
        return RG_FAILED(RG_ERR_REFUSED, why, why_size, "it answered with status %s: %s",
                         *call->code ? call->code : "none", *call->said ? call->said : "no reason was given");
    if (call->too_large || rg_grpc_unframe(call->data, call->data_size, &message, &size) != RG_GRPC_OK)
        return RG_FAILED(RG_ERR_PROTOCOL, why, why_size, "its answer is not one whole message");
    memmove(call->data, message, size);
    *reply = (struct rg_grpc_reply){call->data, size};
    call->data = NULL;
    return RG_OK;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

enum rg_status rg_grpc_call(const char *socket, const char *method, const uint8_t *message, size_t size,
                            uint64_t timeout_ns, struct rg_grpc_reply *reply, char *why, size_t why_size)
{
    struct call call = {.message = message, .size = size};
    enum rg_status status = RG_ERR_IO;
    *reply = (struct rg_grpc_reply){0};
    call.fd = connect_to(socket);
    if (call.fd < 0)
        return RG_FAILED(RG_ERR_UNREACHABLE, why, why_size, "cannot connect to %s: %s", socket,
                         strerror(errno));
    if (!open_session(&call) || !submit(&call, method))
        rg_explain(why, why_size, "out of memory");
    else if (talk(&call, timeout_ns, why, why_size))
        status = judge(&call, reply, why, why_size);
    nghttp2_session_del(call.session);
    close(call.fd);
    free(call.data);
    return status;
}
