/* service.c - see service.h. */
#include "server/http/service.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/sync/scoped_lock.h"
#include "server/http/json.h"
#include "server/http/metrics.h"
#include "server/http/page.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define THREADS 4 /* some may wait for the monitor, and one for the management library */

/* A connection: since when what it does now is under way. */
struct connection {
    bool used;
    int fd;
    uint64_t since_ns;
};

struct rg_service {
    struct MHD_Daemon *daemon;
    struct rg_service_settings settings;
    pthread_mutex_t lock; /* of `connections` */
    struct connection connections[RG_HTTP_CONNECTIONS_MAX];
};

/* What is answered. */
struct answer {
    unsigned status;
    const char *type;
    char *text; /* from malloc, unless it is a part of this program */
    size_t size;
    bool is_part;
};

#define TEXT "text/plain; charset=utf-8"

/* --- slow ones --------------------------------------------------------------------------------------------- */

static int fd_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

/* The place of a connection is its own from its beginning to its end. */
static void notice_connection(void *data, struct MHD_Connection *connection, void **own,
                              enum MHD_ConnectionNotificationCode what)
{
    struct rg_service *service = data;
    RG_SCOPED_LOCK(&service->lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*own)
            ((struct connection *)*own)->used = false;
        return;
    }
    for (int i = 0; i < RG_HTTP_CONNECTIONS_MAX; i++) {
        struct connection *at = &service->connections[i];
        if (at->used)
            continue;
        *at = (struct connection){.used = true, .fd = fd_of(connection), .since_ns = rg_now_ns()};
        *own = at;
        return;
    }
}

static void notice_answered(void *data, struct MHD_Connection *connection, void **request,
                            enum MHD_RequestTerminationCode how)
{
    struct rg_service *service = data;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    (void)request;
    (void)how;
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

static void say(struct answer *answer, unsigned status, const char *text)
{
    answer->status = status;
    answer->type = TEXT;
    answer->text = strdup(text);
    answer->size = strlen(text);
}

static bool take_view(const struct rg_service *service, bool with_gpus, struct rg_view **view,
                      struct answer *answer)
{
    const enum rg_status status = rg_view_take(&service->settings.source, with_gpus, view);
    if (status == RG_OK)
        return true;
    say(answer, MHD_HTTP_SERVICE_UNAVAILABLE,
        status == RG_ERR_NO_MEMORY ? "the server is out of memory\n" : "remote-gpud does not answer\n");
    return false;
}

static void answer_health(const struct rg_service *service, struct MHD_Connection *connection,
                          struct answer *answer)
{
    struct rg_view *view = NULL;
    (void)connection;
    if (take_view(service, false, &view, answer))
        say(answer, MHD_HTTP_OK, "ok\n");
    rg_view_release(view);
}

static void answer_ready(const struct rg_service *service, struct MHD_Connection *connection,
                         struct answer *answer)
{
    struct rg_view *view = NULL;
    char why[600];
    (void)connection;
    if (take_view(service, false, &view, answer)) {
        const bool ready = !rg_view_why_not_ready(view, why, sizeof why - 1);
        strcat(ready ? strcpy(why, "ready") : why, "\n");
        say(answer, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, why);
    }
    rg_view_release(view);
}

static bool wants_openmetrics(struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    return accept && strstr(accept, "application/openmetrics-text");
}

static void answer_metrics(const struct rg_service *service, struct MHD_Connection *connection,
                           struct answer *answer)
{
    struct rg_view *view = NULL;
    struct rg_exposition out = {.openmetrics = wants_openmetrics(connection)};
    if (take_view(service, true, &view, answer)) {
        rg_metrics_write(view, &out);
        if (rg_exposition_end(&out) == RG_OK)
            *answer = (struct answer){
                .status = MHD_HTTP_OK,
                .type = out.openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                        : "text/plain; version=0.0.4; charset=utf-8",
                .text = out.text,
                .size = out.size};
        else
            free(out.text);
    }
    rg_view_release(view);
}

/* --- the API, and the page ---------------------------------------------------------------------------------- */

#define JSON "application/json"

static void say_json(struct answer *answer, unsigned status, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    *answer = (struct answer){.status = status, .type = JSON, .text = text, .size = text ? strlen(text) : 0};
}

static void say_error(struct answer *answer, unsigned status, const char *why)
{
    say_json(answer, status, json_pack("{s:s}", "error", why));
}

static void answer_view(const struct rg_service *service, struct answer *answer, bool with_gpus,
                        json_t *(*make)(const struct rg_view *view))
{
    struct rg_view *view = NULL;
    if (rg_view_take(&service->settings.source, with_gpus, &view) == RG_OK)
        say_json(answer, MHD_HTTP_OK, make(view));
    else
        say_error(answer, MHD_HTTP_SERVICE_UNAVAILABLE, "remote-gpud does not answer");
    rg_view_release(view);
}

static void answer_server(const struct rg_service *service, struct MHD_Connection *connection,
                          struct answer *answer)
{
    (void)connection;
    answer_view(service, answer, false, rg_json_server);
}

static void answer_gpus(const struct rg_service *service, struct MHD_Connection *connection,
                        struct answer *answer)
{
    (void)connection;
    answer_view(service, answer, true, rg_json_gpus);
}

static void answer_sessions(const struct rg_service *service, struct MHD_Connection *connection,
                            struct answer *answer)
{
    (void)connection;
    answer_view(service, answer, false, rg_json_sessions);
}

static void answer_pool(const struct rg_service *service, struct MHD_Connection *connection,
                        struct answer *answer)
{
    json_t *pool = NULL;
    (void)connection;
    if (!service->settings.pool[0])
        say_error(answer, MHD_HTTP_NOT_FOUND, "this server is in no pool");
    else if (rg_json_pool(&service->settings.source, &pool) == RG_OK)
        say_json(answer, MHD_HTTP_OK, pool);
    else
        say_error(answer, MHD_HTTP_SERVICE_UNAVAILABLE, "the server cannot ask its pool now");
}

static const struct rg_page_part *part_of(const char *path)
{
    for (size_t i = 0; i < rg_page_n_parts; i++)
        if (strcmp(rg_page_parts[i].path, path) == 0)
            return &rg_page_parts[i];
    return NULL;
}

static void answer_part(const struct rg_page_part *part, struct answer *answer)
{
    *answer = (struct answer){.status = MHD_HTTP_OK,
                              .type = part->type,
                              .text = (char *)(uintptr_t)part->data,
                              .size = part->size,
                              .is_part = true};
}

static const struct path {
    const char *path;
    void (*answer)(const struct rg_service *service, struct MHD_Connection *connection,
                   struct answer *answer);
} paths[] = {
    {"/healthz", answer_health},       {"/readyz", answer_ready},     {"/metrics", answer_metrics},
    {"/api/v1/server", answer_server}, {"/api/v1/gpus", answer_gpus}, {"/api/v1/sessions", answer_sessions},
    {"/api/v1/pool", answer_pool},
};

static enum MHD_Result send_answer(struct MHD_Connection *connection, struct answer *answer)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
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
    if (answer->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    const enum MHD_Result queued = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return queued;
}

bool rg_service_is_own_host(const char *host)
{
    char name[64];
    struct in_addr address;
    size_t size = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (size >= sizeof name || size > strlen(host) ||
        (host[size] &&
         (host[size] != ':' || strspn(host + size + 1, "0123456789") != strlen(host + size + 1))))
        return false;
    memcpy(name, host, size);
    name[size] = 0;
    return strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
           (inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static const struct path *find_path(const char *url)
{
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(url, paths[i].path) == 0)
            return &paths[i];
    return NULL;
}

static char answered_later; /* what marks a request that has been seen */

static enum MHD_Result answer_request(void *data, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *body,
                                      size_t *body_size, void **request)
{
    const struct rg_service *service = data;
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const struct path *path = find_path(url);
    const struct rg_page_part *part = part_of(url);
    const bool reads = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    struct answer answer = {0};
    (void)version;
    (void)body;
    if (reads &&
        (!*request || *body_size)) { /* the headers are there; a body, which nobody needs, is left out */
        *request = &answered_later;
        *body_size = 0;
        return MHD_YES;
    }
    if (service->settings.loopback && host && !rg_service_is_own_host(host))
        say(&answer, MHD_HTTP_MISDIRECTED_REQUEST,
            "this is answered to programs of this machine alone, under a name of its own: localhost, "
            "127.0.0.1\n");
    else if (!reads)
        say(&answer, MHD_HTTP_METHOD_NOT_ALLOWED, "there is nothing to be changed here: GET or HEAD\n");
    else if (part)
        answer_part(part, &answer);
    else if (!path)
        say(&answer, MHD_HTTP_NOT_FOUND,
            "there is nothing here; see /, /metrics, /healthz, /readyz and /api/v1/openapi.json\n");
    else
        path->answer(service, connection, &answer);
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

enum rg_status rg_service_start(const struct rg_service_settings *settings, struct rg_service **out)
{
    struct rg_service *service = calloc(1, sizeof *service);
    if (!service)
        return RG_ERR_NO_MEMORY;
    service->settings = *settings;
    pthread_mutex_init(&service->lock, NULL);
    service->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, answer_request,
        service, MHD_OPTION_EXTERNAL_LOGGER, log_message, NULL, MHD_OPTION_LISTEN_SOCKET, settings->listener,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)RG_HTTP_CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)RG_HTTP_CONNECTIONS_OF_ONE_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)RG_HTTP_MEMORY_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)RG_HTTP_REQUEST_S,
        MHD_OPTION_NOTIFY_CONNECTION, notice_connection, service, MHD_OPTION_NOTIFY_COMPLETED,
        notice_answered, service, MHD_OPTION_END);
    if (service->daemon) {
        *out = service;
        return RG_OK;
    }
    rg_error("HTTP cannot be answered: libmicrohttpd does not start");
    free(service);
    return RG_ERR_IO;
}

void rg_service_stop(struct rg_service *service)
{
    if (!service)
        return;
    MHD_stop_daemon(service->daemon);
    pthread_mutex_destroy(&service->lock);
    free(service);
}
