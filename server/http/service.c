/* service.c - see service.h. */
#include "server/http/service.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/http/key.h"
#include "server/http/paths.h"
#include "server/http/reader.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define THREADS 4 /* some may wait for the monitor, and one for the management library */

/* A connection, from its beginning to its end. */
struct connection {
    bool used;
    int fd;
    uint64_t origin;
    uint64_t since_ns;                   /* since when what it does now is under way */
    struct rg_http_handshake *handshake; /* NULL: none, or it has failed already */
};

/* What answers, with one certificate: another one takes its place when there is a new certificate. */
struct side {
    struct rg_service *service;
    struct MHD_Daemon *daemon;
    struct rg_tls_server *tls; /* NULL: none */
    struct rg_http_key *key;   /* NULL: likewise */
    char *authority;           /* libmicrohttpd asks for clients' certificates while it has this */
};

struct rg_service {
    struct side *side;
    struct rg_service_settings settings;
    uint16_t port;
    pthread_mutex_t lock; /* of `connections` */
    struct connection connections[RG_HTTP_CONNECTIONS_MAX];
};

/* --- connections -------------------------------------------------------------------------------------------- */

static int fd_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* Where somebody comes from: an address, or a network of IPv6 with 64 bits, as one machine may have all of its addresses. 0: unknown. */
static uint64_t origin_of(const struct sockaddr *address)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    uint64_t origin = 0;
    if (address->sa_family == AF_INET)
        memcpy(&origin, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    else if (address->sa_family == AF_INET6)
        memcpy(&origin, IN6_IS_ADDR_V4MAPPED(v6) ? v6->s6_addr + 8 : v6->s6_addr, 8);
    return origin;
}

/* Whether one more may come from there: libmicrohttpd counts by addresses alone. */
static enum MHD_Result may_connect(void *data, const struct sockaddr *address, socklen_t size)
{
    struct rg_service *service = data;
    const uint64_t origin = origin_of(address);
    int n = 0;
    (void)size;
    RG_SCOPED_LOCK(&service->lock);
    for (int i = 0; i < RG_HTTP_CONNECTIONS_MAX; i++)
        n += service->connections[i].used && service->connections[i].origin == origin;
    return !origin || n < RG_HTTP_CONNECTIONS_OF_ONE_MAX ? MHD_YES : MHD_NO;
}

/* A place that is its own until it ends. NULL: there is none. */
static struct connection *take_place(struct rg_service *service, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const uint64_t origin =
        info ? origin_of(info->client_addr) : 0; /* before `info` is about something else */
    const int fd = fd_of(connection);
    RG_SCOPED_LOCK(&service->lock);
    for (int i = 0; i < RG_HTTP_CONNECTIONS_MAX; i++) {
        struct connection *at = &service->connections[i];
        if (at->used)
            continue;
        *at = (struct connection){.used = true, .fd = fd, .origin = origin, .since_ns = rg_now_ns()};
        return at;
    }
    return NULL;
}

static void notice_connection(void *data, struct MHD_Connection *connection, void **own,
                              enum MHD_ConnectionNotificationCode what)
{
    const struct side *side = data;
    struct rg_service *service = side->service;
    struct connection *place = *own;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && place) {
        rg_http_handshake_end(place->handshake);
        RG_SCOPED_LOCK(&service->lock);
        place->used = false;
    } else if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        *own = place = take_place(service, connection);
        if (place && side->key && info)
            place->handshake = rg_http_handshake_begin(side->key, info->tls_session);
    }
}

static void notice_answered(void *data, struct MHD_Connection *connection, void **request,
                            enum MHD_RequestTerminationCode how)
{
    struct rg_service *service = data;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    (void)how;
    free(*request);
    *request = NULL;
    if (!info || !info->socket_context)
        return;
    RG_SCOPED_LOCK(&service->lock);
    ((struct connection *)info->socket_context)->since_ns = rg_now_ns();
}

void rg_service_expire(struct rg_service *service)
{
    const uint64_t now = rg_now_ns();
    RG_SCOPED_LOCK(&service->lock);
    for (int i = 0; i < RG_HTTP_CONNECTIONS_MAX; i++) {
        const struct connection *at = &service->connections[i];
        if (at->used && at->fd >= 0 && now - at->since_ns >= RG_HTTP_REQUEST_S * 2000000000ull)
            (void)shutdown(at->fd, SHUT_RDWR); /* libmicrohttpd, whose it is, finds it closed */
    }
}

/* --- answers ------------------------------------------------------------------------------------------------ */

static enum MHD_Result send_answer(struct MHD_Connection *connection, struct rg_http_answer *answer)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"}, /* as frame-ancestors, for browsers that do not know that */
    };
    if (!answer->text)
        return MHD_NO; /* no memory: the connection is closed */
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->size, answer->text, answer->is_part ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
    if (!response) {
        if (!answer->is_part)
            free(answer->text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (answer->allow)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, answer->allow);
    if (answer->cookie[0])
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_SET_COOKIE, answer->cookie);
    if (answer->status == MHD_HTTP_UNAUTHORIZED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                      "Bearer realm=\"remote-gpu\"");
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    const enum MHD_Result queued = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* A piece of the body, of which only those of actions are kept. */
static void take_body(struct rg_http_request *request, bool keep, const char *body, size_t size)
{
    if (!keep)
        return;
    if (size > RG_HTTP_BODY_MAX - request->body_size) {
        request->body_too_large = true;
        return;
    }
    memcpy(request->body + request->body_size, body, size);
    request->body_size += size;
}

/* What it is answered once all of it is there. */
static void answer_whole(const struct side *side, struct rg_http_request *request, const char *method,
                         struct rg_http_answer *answer)
{
    const struct rg_service_settings *settings = &side->service->settings;
    const struct rg_paths_source source = {.view = &settings->source, .pool = settings->pool};
    if (rg_reader_names_us(request))
        rg_paths_answer(&source, request, method, answer);
    else if (settings->loopback)
        rg_http_say(answer, MHD_HTTP_MISDIRECTED_REQUEST,
                    "this is answered to programs of this machine alone, under a name of its own: localhost, "
                    "127.0.0.1\n");
    else
        rg_http_say(answer, MHD_HTTP_MISDIRECTED_REQUEST,
                    "this server's certificate is for other names: remote-gpud --tls-name adds one\n");
}

static enum MHD_Result answer_request(void *data, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *body,
                                      size_t *body_size, void **own)
{
    const struct side *side = data;
    struct rg_http_request *request = *own;
    struct rg_http_answer answer = {0};
    (void)version;
    if (!request) { /* the headers are there */
        request = *own = calloc(1, sizeof *request);
        if (!request)
            return MHD_NO;
        *request = (struct rg_http_request){.connection = connection,
                                            .tls = side->tls,
                                            .local = side->service->settings.loopback,
                                            .port = side->service->port};
        return MHD_YES;
    }
    if (*body_size) {
        take_body(request, rg_paths_take_body(url, method), body, *body_size);
        *body_size = 0;
        return MHD_YES;
    }
    request->url = url;
    answer_whole(side, request, method, &answer);
    return send_answer(connection, &answer);
}

/* Of libmicrohttpd, about what a peer has done mostly. */
static void log_message(void *data, const char *format, va_list arguments)
{
    char text[512];
    (void)data;
    vsnprintf(text, sizeof text, format, arguments);
    rg_debug("HTTP: %.*s", (int)strcspn(text, "\n"), text);
}

static void free_side(struct side *side)
{
    if (!side)
        return;
    if (side->daemon)
        MHD_stop_daemon(side->daemon);
    rg_tls_server_release(side->tls);
    rg_http_key_destroy(side->key);
    free(side->authority);
    free(side);
}

/* Groups that cost strangers as much as us: some of finite fields would have us compute for a tenth of a second. */
#define PRIORITIES                                                                                           \
    "SECURE128:-VERS-ALL:+VERS-TLS1.3:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1"

static struct MHD_Daemon *start_daemon(struct side *side)
{
    struct rg_service *service = side->service;
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)rg_http_key_choose},
        {MHD_OPTION_HTTPS_MEM_TRUST, 0, side->authority},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG | (side->tls ? MHD_USE_TLS : 0),
        0, may_connect, service, answer_request, side, MHD_OPTION_EXTERNAL_LOGGER, log_message, NULL,
        MHD_OPTION_LISTEN_SOCKET, service->settings.listener, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)RG_HTTP_CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)RG_HTTP_CONNECTIONS_OF_ONE_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)RG_HTTP_MEMORY_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)RG_HTTP_REQUEST_S,
        MHD_OPTION_NOTIFY_CONNECTION, notice_connection, side, MHD_OPTION_NOTIFY_COMPLETED, notice_answered,
        service, MHD_OPTION_ARRAY, side->tls ? tls : none, MHD_OPTION_END);
}

/* NULL: it was said why not. */
static struct side *start_side(struct rg_service *service, const struct rg_tls_pem *pem)
{
    char why[512] = "libmicrohttpd does not start";
    struct side *side = calloc(1, sizeof *side);
    if (side) {
        side->service = service;
        side->authority = pem ? strndup(pem->ca, pem->ca_size) : NULL;
        if (!pem || (side->authority && rg_tls_server_create(pem, &side->tls, why, sizeof why) == RG_OK &&
                     (side->key = rg_http_key_create(pem, why, sizeof why)) != NULL))
            side->daemon = start_daemon(side);
    }
    if (side && side->daemon)
        return side;
    rg_error("HTTP cannot be answered: %s", why);
    free_side(side);
    return NULL;
}

enum rg_status rg_service_start(const struct rg_service_settings *settings, const struct rg_tls_pem *pem,
                                struct rg_service **out)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    struct rg_service *service = calloc(1, sizeof *service);
    if (!service)
        return RG_ERR_NO_MEMORY;
    service->settings = *settings;
    if (getsockname(settings->listener, (struct sockaddr *)&own, &size) ==
        0) /* in the same place for both kinds */
        service->port = ntohs(((const struct sockaddr_in *)&own)->sin_port);
    pthread_mutex_init(&service->lock, NULL);
    service->side = start_side(service, pem);
    if (service->side) {
        *out = service;
        return RG_OK;
    }
    pthread_mutex_destroy(&service->lock);
    free(service);
    return RG_ERR_IO;
}

/* It waits for threads, which may wait for the caller's. */
static void *stop_side(void *side)
{
    free_side(side);
    return NULL;
}

void rg_service_set_tls(struct rg_service *service, const struct rg_tls_pem *pem)
{
    pthread_t thread;
    struct side *before = service->side, *after = start_side(service, pem);
    if (!after) {
        rg_warn("the certificate before it stays in use for HTTP");
        return;
    }
    service->side = after;
    (void)MHD_quiesce_daemon(before->daemon); /* so that the socket stays open */
    if (pthread_create(&thread, NULL, stop_side, before) == 0)
        pthread_detach(thread);
}
