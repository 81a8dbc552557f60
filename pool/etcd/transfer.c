/*
 * transfer.c - requests over HTTP, a call's or the watch's: begun at the endpoint that is in use, with the certificates and the token that there
 * are, by libcurl. Who has begun one is told of what is received and of its end (etcd.c). Without memory none begins. One thread.
 */
#include "common/base/log.h"
#include "pool/etcd/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define CONNECT_MS 1000L

bool rg_etcd_append(struct rg_etcd_text *text, const char *data, size_t size)
{
    char *grown = text->size + size < RG_ETCD_REPLY_MAX ? realloc(text->data, text->size + size + 1) : NULL;
    if (!grown)
        return false;
    memcpy(grown + text->size, data, size);
    text->data = grown;
    text->size += size;
    grown[text->size] = '\0';
    return true;
}

static size_t on_data(char *data, size_t size, size_t n, void *user)
{
    struct rg_etcd_transfer *transfer = user;
    return transfer->received(transfer, data, size * n);
}

/* etcd's own clock, to the second, is in each answer. */
static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    struct rg_etcd *etcd = user;
    char text[64];
    if (size * n > 6 && size * n < sizeof text && strncasecmp(line, "date: ", 6) == 0) {
        memcpy(text, line + 6, size * n - 6);
        text[size * n - 6] = '\0';
        const time_t theirs = curl_getdate(text, NULL);
        if (theirs != (time_t)-1)
            etcd->clock_ahead = (int64_t)theirs - (int64_t)time(NULL);
    }
    return size * n;
}

static void set_blob(CURL *easy, CURLoption option, const struct rg_etcd_text *text)
{
    struct curl_blob blob = {.data = text->data, .len = text->size, .flags = CURL_BLOB_COPY};
    if (text->data)
        curl_easy_setopt(easy, option, &blob);
}

static void set_options(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer, const char *body,
                        long timeout_ms)
{
    CURL *easy = transfer->easy;
    curl_easy_setopt(easy, CURLOPT_URL, transfer->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, etcd);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* etcd is near; the environment's proxies are for elsewhere */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 5L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 2L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    if (body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    }
    set_blob(easy, CURLOPT_CAINFO_BLOB, &etcd->files.ca);
    set_blob(easy, CURLOPT_SSLCERT_BLOB, &etcd->files.certificate);
    set_blob(easy, CURLOPT_SSLKEY_BLOB, &etcd->files.key);
}

/* False: no memory. */
static bool add_header(struct rg_etcd_transfer *transfer, const char *line)
{
    struct curl_slist *more = curl_slist_append(transfer->headers, line);
    transfer->headers = more ? more : transfer->headers;
    return more;
}

static bool add_headers(const struct rg_etcd *etcd, struct rg_etcd_transfer *transfer, bool lasts)
{
    char line[1024];
    if (!add_header(transfer, "Content-Type: application/json"))
        return false;
    /* the gateway reads a body of several requests while it answers the first: without this its HTTP server, which wants to use the
       connection again, throws away what is left of the body then */
    if (lasts && !add_header(transfer, "Connection: close"))
        return false;
    if (!etcd->login.token || !*etcd->login.token)
        return true;
    snprintf(line, sizeof line, "Authorization: %s", etcd->login.token);
    return add_header(transfer, line);
}

bool rg_etcd_transfer_begin(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer, const char *path,
                            const char *body, long timeout_ms)
{
    const char *endpoint = etcd->endpoints[etcd->current];
    const size_t size = strlen(endpoint) + strlen(path) + 1;
    transfer->endpoint = etcd->current;
    transfer->error[0] = '\0';
    transfer->easy = curl_easy_init();
    transfer->url = malloc(size);
    if (add_headers(etcd, transfer, timeout_ms == 0) && transfer->easy && transfer->url) {
        snprintf(transfer->url, size, "%s%s", endpoint, path);
        set_options(etcd, transfer, body, timeout_ms);
        if (curl_multi_add_handle(etcd->multi, transfer->easy) == CURLM_OK)
            return true;
    }
    rg_etcd_transfer_cancel(etcd, transfer);
    return false;
}

void rg_etcd_transfer_cancel(struct rg_etcd *etcd, struct rg_etcd_transfer *transfer)
{
    if (transfer->easy) {
        (void)curl_multi_remove_handle(etcd->multi, transfer->easy);
        curl_easy_cleanup(transfer->easy);
    }
    curl_slist_free_all(transfer->headers);
    free(transfer->url);
    transfer->easy = NULL;
    transfer->headers = NULL;
    transfer->url = NULL;
}

void rg_etcd_give_up(struct rg_etcd *etcd, uint32_t endpoint)
{
    if (endpoint != etcd->current)
        return;
    etcd->current = (endpoint + 1) % etcd->n_endpoints;
    if (etcd->n_endpoints > 1)
        rg_debug("etcd %s does not answer; trying %s", etcd->endpoints[endpoint],
                 etcd->endpoints[etcd->current]);
}
