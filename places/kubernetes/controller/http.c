/* http.c - see http.h. */
#include "places/kubernetes/controller/http.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_SECONDS 300 /* a round may ask every member of a pool that is down */
#define CONNECTIONS   64u
#define OF_ONE        16u /* of one address */

struct rg_kube_http {
    struct MHD_Daemon *daemon;
    const struct rg_kube_figures *figures;
    uint64_t started_ns, interval_ns;
};

static void put_figure(FILE *out, const char *name, const char *type, const char *help,
                       unsigned long long value)
{
    fprintf(out, "# HELP remote_gpu_kube_%s %s\n# TYPE remote_gpu_kube_%s %s\nremote_gpu_kube_%s %llu\n",
            name, help, name, type, name, value);
}

static void put_metrics(FILE *out, const struct rg_kube_figures *f)
{
    put_figure(out, "api_server_up", "gauge", "Whether the API server keeps claims known", f->api_server);
    put_figure(out, "pool_up", "gauge", "Whether the pool answered the last time it was asked", f->pool);
    put_figure(out, "devices", "gauge", "GPUs that are published in ResourceSlices", f->devices);
    put_figure(out, "claims", "gauge", "ResourceClaims that GPUs are allocated to", f->claims);
    put_figure(out, "leases", "gauge", "Leases that claims have", f->leases);
    put_figure(out, "leases_waiting", "gauge", "Leases that are to be taken or given back", f->waiting);
    put_figure(out, "leases_taken_total", "counter", "Leases taken for claims", f->taken);
    put_figure(out, "leases_refused_total", "counter", "Times that the pool did not give a lease",
               f->refused);
    put_figure(out, "leases_given_back_total", "counter", "Leases given back", f->given_back);
    put_figure(out, "failures_total", "counter", "Writes that the API server did not take", f->failures);
}

static bool is_healthy(const struct rg_kube_http *http)
{
    const uint64_t passed = atomic_load(&http->figures->passed_ns);
    return rg_now_ns() - (passed ? passed : http->started_ns) <
           ROUND_SECONDS * 1000000000ull + http->interval_ns;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *text,
                             size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_whether(struct MHD_Connection *connection, bool good, const char *why)
{
    const char *text = good ? "ok\n" : why;
    return reply(connection, good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, text, strlen(text));
}

static enum MHD_Result reply_metrics(struct MHD_Connection *connection, const struct rg_kube_figures *figures)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return MHD_NO;
    put_metrics(out, figures);
    const enum MHD_Result result = fclose(out) == 0 ? reply(connection, MHD_HTTP_OK, text, size) : MHD_NO;
    free(text);
    return result;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data, size_t *size,
                              void **state)
{
    const struct rg_kube_http *http = context;
    const struct rg_kube_figures *f = http->figures;
    (void)version, (void)data, (void)size, (void)state;
    if (strcmp(method, "GET") != 0)
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "", 0);
    if (strcmp(url, "/healthz") == 0)
        return reply_whether(connection, is_healthy(http),
                             "the controller has not got through a round for minutes\n");
    if (strcmp(url, "/readyz") == 0)
        return reply_whether(connection, atomic_load(&f->api_server) && atomic_load(&f->pool),
                             atomic_load(&f->api_server) ? "the pool cannot be asked\n"
                                                         : "the API server cannot be asked\n");
    if (strcmp(url, "/metrics") == 0)
        return reply_metrics(connection, f);
    return reply(connection, MHD_HTTP_NOT_FOUND, "", 0);
}

/* "9402", "127.0.0.1:9402", "[::1]:9402" */
static bool read_place(const char *where, struct sockaddr_storage *out)
{
    char host[64] = "";
    const char *colon = strrchr(where, ':'), *digits = colon ? colon + 1 : where;
    char *end;
    const unsigned long port = strtoul(digits, &end, 10);
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    if (*digits < '0' || *digits > '9' || *end || port > 65535)
        return false;
    if (colon)
        snprintf(host, sizeof host, "%.*s", (int)(colon - where), where);
    memset(out, 0, sizeof *out);
    if (host[0] == '[') {
        host[strcspn(host, "]")] = '\0';
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, *host ? host : "0.0.0.0", &v4->sin_addr) == 1;
}

struct rg_kube_http *rg_kube_http_start(const char *where, const struct rg_kube_figures *figures,
                                        uint64_t interval_ns)
{
    struct sockaddr_storage place;
    struct rg_kube_http *http = calloc(1, sizeof *http);
    if (!http || !read_place(where, &place)) {
        rg_error("--http: '%s' is no port and no address like 127.0.0.1:9402", where);
        free(http);
        return NULL;
    }
    *http = (struct rg_kube_http){.figures = figures, .started_ns = rg_now_ns(), .interval_ns = interval_ns};
    /* any pod may come: none keeps the kubelet's probes out, and what is wrong with its requests is no line of the log */
    http->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | (place.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0), 0, NULL, NULL,
        answer, http, MHD_OPTION_SOCK_ADDR, &place, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, OF_ONE, MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (http->daemon) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
        rg_info("probes and metrics are answered on port %u", info ? (unsigned)info->port : 0u);
        return http;
    }
    rg_error("--http: cannot listen on %s: %s", where,
             errno ? strerror(errno) : "libmicrohttpd does not start");
    free(http);
    return NULL;
}

void rg_kube_http_stop(struct rg_kube_http *http)
{
    if (!http)
        return;
    MHD_stop_daemon(http->daemon);
    free(http);
}
