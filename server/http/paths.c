/* paths.c - see paths.h. */
#include "server/http/paths.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/http/actions.h"
#include "server/http/json.h"
#include "server/http/metrics.h"
#include "server/http/page.h"
#include "server/http/pool.h"
#include "server/http/reader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT      "text/plain; charset=utf-8"
#define JSON      "application/json"
#define NO_ANSWER "remote-gpud does not answer"
#define ACT_MS    2000 /* that somebody waits for what is to be done; then it goes on without */
#define API       "/api/v1/"
#define SESSIONS  API "sessions/"
#define POST      "POST"
#define GET       "GET, HEAD"

/* --- showing ------------------------------------------------------------------------------------------------ */

/* As a line of text where it is not of the API. */
static bool take_view(const struct rg_paths_source *source, const struct rg_http_request *request,
                      unsigned parts, bool as_text, struct rg_view **view, struct rg_http_answer *answer)
{
    struct rg_monitor_question reader;
    char why[RG_CONTROL_REASON + 2] = "";
    *view = NULL;
    if (!rg_reader_read(request, &reader, answer))
        return false;
    const enum rg_status status = rg_view_take(source->view, &reader, parts, view, why, sizeof why - 1);
    if (status == RG_OK)
        return true;
    if (status != RG_ERR_REFUSED)
        snprintf(why, sizeof why, "%s",
                 status == RG_ERR_NO_MEMORY ? "the server is out of memory" : NO_ANSWER);
    if (as_text)
        rg_http_say(answer, rg_http_status(status), strcat(why, "\n"));
    else
        rg_http_say_error(answer, rg_http_status(status), why);
    return false;
}

/* How well the server is. */
struct health {
    bool alive, ready;
    char why[600]; /* it is not ready */
};

static void look_at_health(const struct rg_paths_source *source, const struct rg_http_request *request,
                           struct health *out)
{
    struct rg_monitor_question reader;
    struct rg_view *view = NULL;
    char why[8];
    *out = (struct health){.why = NO_ANSWER};
    rg_reader_nobody(request, &reader);
    reader.page.health = 1;
    out->alive = rg_view_take(source->view, &reader, 0, &view, why, sizeof why) == RG_OK;
    out->ready = out->alive && !rg_view_why_not_ready(view, out->why, sizeof out->why - 1);
    rg_view_release(view);
}

/*
 * For programs that watch the server: they need not be known, and are told nothing but this. Each look costs the monitor, so who asks
 * more often than so many looks a second is told what the last one saw.
 */
static void take_health(const struct rg_paths_source *source, const struct rg_http_request *request,
                        struct health *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
    static struct health last;
    static uint64_t since_ns;
    static unsigned looks;
    const uint64_t now = rg_now_ns();
    pthread_mutex_lock(&lock);
    if (now - since_ns >= 1000000000u) {
        since_ns = now;
        looks = 0;
    }
    const bool looks_again = looks++ < RG_HTTP_LOOKS_OF_STRANGERS;
    *out = last;
    pthread_mutex_unlock(&lock);
    if (!looks_again)
        return;
    look_at_health(source, request, out);
    pthread_mutex_lock(&lock);
    last = *out;
    pthread_mutex_unlock(&lock);
}

static void answer_health(const struct rg_paths_source *source, const struct rg_http_request *request,
                          struct rg_http_answer *answer)
{
    struct health health;
    take_health(source, request, &health);
    if (health.alive)
        rg_http_say(answer, MHD_HTTP_OK, "ok\n");
    else
        rg_http_say(answer, MHD_HTTP_SERVICE_UNAVAILABLE, NO_ANSWER "\n");
}

static void answer_ready(const struct rg_paths_source *source, const struct rg_http_request *request,
                         struct rg_http_answer *answer)
{
    struct health health;
    take_health(source, request, &health);
    if (!health.ready && !request->local) /* it may name other machines */
        strcpy(health.why, "not ready; the page says why, to those who may see it");
    strcat(health.ready ? strcpy(health.why, "ready") : health.why, "\n");
    rg_http_say(answer, health.ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, health.why);
}

static bool wants_openmetrics(const struct rg_http_request *request)
{
    const char *accept =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    return accept && strstr(accept, "application/openmetrics-text");
}

static void answer_metrics(const struct rg_paths_source *source, const struct rg_http_request *request,
                           struct rg_http_answer *answer)
{
    struct rg_view *view;
    struct rg_exposition out = {.openmetrics = wants_openmetrics(request)};
    if (take_view(source, request, RG_VIEW_GPUS, true, &view, answer)) {
        rg_metrics_write(view, &out);
        if (rg_exposition_end(&out) == RG_OK)
            *answer = (struct rg_http_answer){
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

static void answer_view(const struct rg_paths_source *source, const struct rg_http_request *request,
                        unsigned parts, json_t *(*make)(const struct rg_view *view),
                        struct rg_http_answer *answer)
{
    struct rg_view *view;
    if (take_view(source, request, parts, false, &view, answer))
        rg_http_say_json(answer, MHD_HTTP_OK, make(view));
    rg_view_release(view);
}

/* All but the metrics is for people: a scraper's token is not enough. */
static void answer_server(const struct rg_paths_source *source, const struct rg_http_request *request,
                          struct rg_http_answer *answer)
{
    answer_view(source, request, RG_VIEW_NAMES, rg_json_server, answer);
}

static void answer_reader(const struct rg_paths_source *source, const struct rg_http_request *request,
                          struct rg_http_answer *answer)
{
    answer_view(source, request, RG_VIEW_NAMES, rg_json_reader, answer);
}

static void answer_gpus(const struct rg_paths_source *source, const struct rg_http_request *request,
                        struct rg_http_answer *answer)
{
    struct rg_view *view;
    if (take_view(source, request, RG_VIEW_GPUS, false, &view, answer)) {
        if (view->reader.scope == RG_READER_FIGURES)
            rg_http_say_error(answer, MHD_HTTP_UNAUTHORIZED, "the bearer token is good for /metrics alone");
        else
            rg_http_say_json(answer, MHD_HTTP_OK, rg_json_gpus(view));
    }
    rg_view_release(view);
}

static void answer_sessions(const struct rg_paths_source *source, const struct rg_http_request *request,
                            struct rg_http_answer *answer)
{
    answer_view(source, request, RG_VIEW_NAMES, rg_json_sessions, answer);
}

/* What the pool's agent tells. */
static void answer_by_agent(const struct rg_paths_source *source, const struct rg_http_request *request,
                            enum rg_status (*ask)(const struct rg_view_source *, struct rg_monitor_question *,
                                                  json_t **, char *, size_t),
                            struct rg_http_answer *answer)
{
    struct rg_monitor_question reader;
    json_t *told = NULL;
    char why[RG_CONTROL_REASON] = "";
    if (!rg_reader_read(request, &reader, answer))
        return;
    if (!source->pool[0]) {
        rg_http_say_error(answer, MHD_HTTP_NOT_FOUND, "this server is in no pool");
        return;
    }
    const enum rg_status status = ask(source->view, &reader, &told, why, sizeof why);
    if (status == RG_OK)
        rg_http_say_json(answer, MHD_HTTP_OK, told);
    else
        rg_http_say_error(answer, rg_http_status(status),
                          status == RG_ERR_REFUSED ? why : "the server cannot ask its pool now");
}

static void answer_pool(const struct rg_paths_source *source, const struct rg_http_request *request,
                        struct rg_http_answer *answer)
{
    answer_by_agent(source, request, rg_json_pool, answer);
}

static void answer_links(const struct rg_paths_source *source, const struct rg_http_request *request,
                         struct rg_http_answer *answer)
{
    answer_by_agent(source, request, rg_json_links, answer);
}

static void answer_drain(const struct rg_paths_source *source, const struct rg_http_request *request,
                         struct rg_http_answer *answer)
{
    rg_http_act(source, request, RG_PAGE_DRAIN, 0, answer);
}

static void answer_undrain(const struct rg_paths_source *source, const struct rg_http_request *request,
                           struct rg_http_answer *answer)
{
    rg_http_act(source, request, RG_PAGE_UNDRAIN, 0, answer);
}

enum { DIGITS_MAX = 18 };

/* SESSIONS id "/suspend", "/resume" or "/end". False: it is none of these. */
static bool read_action(const char *url, enum rg_page_action *action, uint64_t *session)
{
    static const struct {
        const char *name;
        enum rg_page_action action;
    } actions[] = {{"/suspend", RG_PAGE_SUSPEND}, {"/resume", RG_PAGE_RESUME}, {"/end", RG_PAGE_END}};
    if (strncmp(url, SESSIONS, strlen(SESSIONS)) != 0)
        return false;
    url += strlen(SESSIONS);
    const size_t size = strcspn(url, "/");
    if (size == 0 || strspn(url, "0123456789") != size)
        return false;
    *session = size <= DIGITS_MAX ? strtoull(url, NULL, 10) : 0; /* which no session has */
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(url + size, actions[i].name) == 0) {
            *action = actions[i].action;
            return true;
        }
    return false;
}

/* --- which there are ---------------------------------------------------------------------------------------- */

static const struct path {
    const char *path, *method;
    void (*answer)(const struct rg_paths_source *source, const struct rg_http_request *request,
                   struct rg_http_answer *answer);
} paths[] = {
    {"/healthz", GET, answer_health},
    {"/readyz", GET, answer_ready},
    {"/metrics", GET, answer_metrics},
    {API "server", GET, answer_server},
    {API "gpus", GET, answer_gpus},
    {API "sessions", GET, answer_sessions},
    {API "pool", GET, answer_pool},
    {API "pool/links", GET, answer_links},
    {API "reader", GET, answer_reader},
    {API "login", POST, rg_http_login},
    {API "logout", POST, rg_http_logout},
    {API "server/drain", POST, answer_drain},
    {API "server/undrain", POST, answer_undrain},
};

static const struct path *find_path(const char *url)
{
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strcmp(url, paths[i].path) == 0)
            return &paths[i];
    return NULL;
}

static const struct rg_page_part *find_part(const char *url)
{
    for (size_t i = 0; i < rg_page_n_parts; i++)
        if (strcmp(rg_page_parts[i].path, url) == 0)
            return &rg_page_parts[i];
    return NULL;
}

/* "" : there is no such path. */
static const char *methods_of(const char *url)
{
    enum rg_page_action action;
    uint64_t session;
    const struct path *path = find_path(url);
    return path ? path->method : find_part(url) ? GET : read_action(url, &action, &session) ? POST : "";
}

static bool is_reading(const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

bool rg_paths_take_body(const char *url, const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_POST) == 0 && strcmp(methods_of(url), POST) == 0;
}

void rg_paths_answer(const struct rg_paths_source *source, const struct rg_http_request *request,
                     const char *method, struct rg_http_answer *answer)
{
    const char *methods = methods_of(request->url);
    const struct path *path = find_path(request->url);
    const struct rg_page_part *part = find_part(request->url);
    enum rg_page_action action;
    uint64_t session;
    const bool allowed =
        strcmp(methods, POST) == 0 ? strcmp(method, MHD_HTTP_METHOD_POST) == 0 : is_reading(method);
    if (!*methods) {
        rg_http_say(answer, MHD_HTTP_NOT_FOUND,
                    "there is nothing here; see /, /metrics, /healthz, /readyz and /api/v1/openapi.json\n");
    } else if (!allowed) {
        answer->allow = methods;
        rg_http_say(answer, MHD_HTTP_METHOD_NOT_ALLOWED, "this is not done so; Allow says how\n");
    } else if (request->body_too_large) {
        rg_http_say_error(answer, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large");
    } else if (path) {
        path->answer(source, request, answer);
    } else if (part) {
        *answer = (struct rg_http_answer){.status = MHD_HTTP_OK,
                                          .type = part->type,
                                          .text = (char *)(uintptr_t)part->data,
                                          .size = part->size,
                                          .is_part = true};
    } else if (read_action(request->url, &action, &session)) {
        rg_http_act(source, request, action, session, answer);
    }
}
