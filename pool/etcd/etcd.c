/* etcd.c - endpoints and calls (requests over HTTP: transfer.c); see etcd.h. */
#include "pool/etcd/internal.h"

#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPT_MS                                                                                           \
    2000L /* a member that answers does so in milliseconds; one that lost its leader gives up later */
#define UNAVAILABLE 14 /* gRPC's code */

/* A call that is under way. */
struct rg_etcd_call {
    struct rg_etcd_call *next;
    struct rg_etcd *etcd;
    struct rg_etcd_transfer transfer;
    char path[64];
    char *body; /* NULL: GET */
    struct rg_etcd_text reply;
    uint32_t attempts;
    bool waits, ready; /* for a token; it has come, or does not */
    bool logged_in;    /* a token was got for it since it was begun */
    int64_t before;    /* the newest revision when it was begun; 0: it is not about keys */
    rg_etcd_done *done;
    void *data;
};

/* --- calls -------------------------------------------------------------------------------------------------- */

static void end_call(struct rg_etcd_call *call, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_etcd *etcd = call->etcd;
    struct rg_etcd_call **link = &etcd->calls;
    while (*link && *link != call)
        link = &(*link)->next;
    if (*link)
        *link = call->next;
    rg_etcd_transfer_cancel(etcd, &call->transfer);
    call->done(call->data, status, reply, why);
    free(call->body);
    free(call->reply.data);
    free(call);
}

static void attempt(struct rg_etcd_call *call)
{
    free(call->reply.data);
    call->reply = (struct rg_etcd_text){0};
    if (rg_etcd_login_is_missing(call->etcd) && strcmp(call->path, RG_ETCD_LOGIN) != 0) {
        call->waits = call->logged_in = true;
        rg_etcd_login_begin(call->etcd);
        return;
    }
    call->attempts++;
    if (!rg_etcd_transfer_begin(call->etcd, &call->transfer, call->path, call->body, ATTEMPT_MS))
        end_call(call, RG_ERR_NO_MEMORY, NULL, "no memory");
}

void rg_etcd_calls_go_on(struct rg_etcd *etcd, enum rg_status status, const char *why)
{
    for (struct rg_etcd_call *call = etcd->calls; call; call = call->next) {
        call->ready = call->waits;
        call->waits = false;
    }
    for (struct rg_etcd_call *call = etcd->calls; call;) {
        if (!call->ready) {
            call = call->next;
            continue;
        }
        call->ready = false;
        if (status == RG_OK)
            attempt(call);
        else
            end_call(call, status, NULL, why);
        call = etcd->calls; /* what is called back may begin and end others */
    }
}

/* The next endpoint, until all have been tried; a single one gets a second chance. */
static void fail(struct rg_etcd_call *call, const char *why)
{
    struct rg_etcd *etcd = call->etcd;
    rg_etcd_give_up(etcd, call->transfer.endpoint);
    rg_etcd_transfer_cancel(etcd, &call->transfer);
    if (call->attempts < (etcd->n_endpoints > 2 ? etcd->n_endpoints : 2))
        attempt(call);
    else
        end_call(call, RG_ERR_UNREACHABLE, NULL, why);
}

/* What the gateway says when the member that it is part of does not take its connection, in various versions. */
static bool is_own_connection(const char *said)
{
    return strstr(said, "connection closed") || strstr(said, "SubConns") || strstr(said, "is closing");
}

static const char *words_of(const json_t *reply)
{
    const char *said = json_string_value(json_object_get(reply, "message"));
    return said ? said : json_string_value(json_object_get(reply, "error"));
}

/* etcd's own words for a failure. True: another member may do better. */
static bool read_failure(const struct rg_etcd_call *call, long http, const json_t *reply,
                         enum rg_status *status, char *why, size_t why_size)
{
    const char *endpoint = call->etcd->endpoints[call->transfer.endpoint];
    const char *said = words_of(reply);
    const json_int_t code = json_integer_value(json_object_get(reply, "code")); /* of gRPC */
    *status = code == 5 && said ? RG_ERR_NOT_FOUND : RG_ERR_REFUSED;
    if (!said)
        rg_explain(
            why, why_size,
            "what answers at %s is not etcd's v3 interface (HTTP status %ld); etcd 3.4 or later is needed",
            endpoint, http);
    else if (code == UNAVAILABLE && strncmp(endpoint, "https:", 6) == 0 && is_own_connection(said))
        rg_explain(
            why, why_size,
            "etcd at %s is not reached by its own gateway (%s): with --client-cert-auth its --cert-file "
            "must be for clients as well (extendedKeyUsage serverAuth and clientAuth)",
            endpoint, said);
    else if (strstr(said, "user name is empty"))
        rg_explain(why, why_size,
                   "etcd at %s wants to know who asks (%s): --etcd-user names a user of it, and "
                   "--etcd-password-file the file with the password",
                   endpoint, said);
    else
        rg_explain(why, why_size, "etcd at %s: %s", endpoint, said);
    return said && (code == UNAVAILABLE || code == 4 || code == 2 ||
                    http >= 500); /* unavailable, too late, unknown */
}

static void call_ended(struct rg_etcd_transfer *transfer, CURLcode code)
{
    struct rg_etcd_call *call = transfer->data;
    char why[RG_ETCD_WHY] = "";
    long http = 0;
    if (code != CURLE_OK) {
        rg_etcd_explain(call->etcd->endpoints[transfer->endpoint],
                        transfer->error[0] ? transfer->error : curl_easy_strerror(code), code, why,
                        sizeof why);
        fail(call, why);
        return;
    }
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &http);
    json_t *reply = call->reply.data ? json_loads(call->reply.data, 0, NULL) : NULL;
    enum rg_status status = RG_OK;
    if (http == 200 && reply) {
        rg_etcd_past_answered(call->etcd, reply, call->before);
        end_call(call, RG_OK, reply, "");
    } else if (!call->logged_in && strcmp(call->path, RG_ETCD_LOGIN) != 0 &&
               rg_etcd_login_is_refused(call->etcd, json_integer_value(json_object_get(reply, "code")),
                                        words_of(reply))) {
        rg_etcd_transfer_cancel(call->etcd, &call->transfer);
        attempt(call);
    } else if (read_failure(call, http, reply, &status, why, sizeof why)) {
        fail(call, why);
    } else {
        end_call(call, status, NULL, why);
    }
    json_decref(reply);
}

static size_t call_received(struct rg_etcd_transfer *transfer, const char *data, size_t size)
{
    struct rg_etcd_call *call = transfer->data;
    return rg_etcd_append(&call->reply, data, size) ? size : 0;
}

void rg_etcd_forget_revisions(struct rg_etcd *etcd)
{
    for (struct rg_etcd_call *call = etcd->calls; call; call = call->next)
        call->before = 0;
}

void rg_etcd_call(struct rg_etcd *etcd, const char *path, json_t *body, rg_etcd_done *done, void *data)
{
    struct rg_etcd_call *call = calloc(1, sizeof *call);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    const bool good = call && (text || !body);
    json_decref(body);
    if (!good) {
        free(call);
        free(text);
        done(data, RG_ERR_NO_MEMORY, NULL, "no memory");
        return;
    }
    *call =
        (struct rg_etcd_call){.next = etcd->calls, .etcd = etcd, .body = text, .done = done, .data = data};
    if (strncmp(path, "/v3/kv/", 7) == 0)
        call->before = etcd->past.revision ? etcd->past.revision : 1;
    call->transfer.ended = call_ended;
    call->transfer.received = call_received;
    call->transfer.data = call;
    snprintf(call->path, sizeof call->path, "%s", path);
    etcd->calls = call;
    attempt(call);
}

/* --- the whole ---------------------------------------------------------------------------------------------- */

static bool copy_text(struct rg_etcd_text *out, const char *text)
{
    return !text || rg_etcd_append(out, text, strlen(text));
}

static void free_files(struct rg_etcd_files *files)
{
    if (files->key.data)
        explicit_bzero(files->key.data, files->key.size);
    free(files->ca.data);
    free(files->certificate.data);
    free(files->key.data);
}

bool rg_etcd_identify(struct rg_etcd *etcd, const struct rg_etcd_settings *settings)
{
    struct rg_etcd_files files = {0};
    const bool good =
        copy_text(&files.ca, settings->ca) && copy_text(&files.certificate, settings->certificate) &&
        copy_text(&files.key, settings->key) && rg_etcd_login_set(etcd, settings->user, settings->password);
    free_files(good ? &etcd->files : &files);
    if (good)
        etcd->files = files;
    return good;
}

struct rg_etcd *rg_etcd_create(const struct rg_etcd_settings *settings, char *why, size_t why_size)
{
    struct rg_etcd *etcd = calloc(1, sizeof *etcd);
    bool good = etcd && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK &&
                (etcd->multi = curl_multi_init()) != NULL && rg_etcd_identify(etcd, settings) &&
                settings->n_endpoints <= RG_ETCD_ENDPOINTS_MAX;
    for (uint32_t i = 0; good && i < settings->n_endpoints; i++) {
        const char *url = settings->endpoints[i];
        good = (etcd->endpoints[etcd->n_endpoints] = strdup(url)) != NULL;
        etcd->n_endpoints += good;
    }
    if (good && etcd->n_endpoints)
        return etcd;
    rg_explain(why, why_size, "no memory, or no endpoint of etcd");
    rg_etcd_destroy(etcd);
    return NULL;
}

void rg_etcd_destroy(struct rg_etcd *etcd)
{
    if (!etcd)
        return;
    rg_etcd_watch_end(etcd);
    rg_etcd_past_fini(etcd);
    while (etcd->calls) {
        struct rg_etcd_call *call = etcd->calls;
        etcd->calls = call->next;
        rg_etcd_transfer_cancel(etcd, &call->transfer);
        free(call->body);
        free(call->reply.data);
        free(call);
    }
    for (uint32_t i = 0; i < etcd->n_endpoints; i++)
        free(etcd->endpoints[i]);
    if (etcd->multi)
        curl_multi_cleanup(etcd->multi);
    free_files(&etcd->files);
    rg_etcd_login_fini(etcd);
    free(etcd);
    curl_global_cleanup();
}

static void take_ended(struct rg_etcd *etcd)
{
    int left;
    for (const CURLMsg *message; (message = curl_multi_info_read(etcd->multi, &left)) != NULL;) {
        struct rg_etcd_transfer *transfer = NULL;
        const CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        (void)curl_multi_remove_handle(etcd->multi, message->easy_handle);
        etcd->told = true;
        transfer->ended(transfer, code);
    }
}

void rg_etcd_poll(struct rg_etcd *etcd, struct pollfd *fds, uint32_t n, int timeout_ms)
{
    RG_CLEANUP_FREE struct curl_waitfd *extra = calloc(n ? n : 1, sizeof *extra);
    int running = 0;
    const int due = rg_etcd_watch_look(etcd);
    etcd->told = false;
    (void)curl_multi_perform(etcd->multi, &running); /* what was begun since */
    take_ended(etcd);
    if (!extra)
        return;
    for (uint32_t i = 0; i < n; i++) {
        extra[i] = (struct curl_waitfd){.fd = fds[i].fd, .events = CURL_WAIT_POLLIN};
        fds[i].revents = 0;
    }
    if (timeout_ms < 0 || (due >= 0 && due < timeout_ms))
        timeout_ms = due >= 0 ? due : INT_MAX;
    if (etcd->told)
        timeout_ms = 0;
    if (curl_multi_poll(etcd->multi, extra, n, timeout_ms, NULL) != CURLM_OK)
        return;
    for (uint32_t i = 0; i < n; i++)
        fds[i].revents = extra[i].revents;
    (void)curl_multi_perform(etcd->multi, &running);
    take_ended(etcd);
}

const char *rg_etcd_endpoint(const struct rg_etcd *etcd)
{
    return etcd->endpoints[etcd->current];
}

int64_t rg_etcd_clock_ahead(const struct rg_etcd *etcd)
{
    return etcd->clock_ahead;
}
