/* kube.c - one request to the API server; see kube.h. */
#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/base/printable.h"
#include "places/kubernetes/api/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POD_FOLDER   "/var/run/secrets/kubernetes.io/serviceaccount"
#define CALL_SECONDS 20L
#define TOKEN_ROOM   16384

bool rg_kube_find_cluster(struct rg_kube_cluster *cluster, char *why, size_t why_size)
{
    static char url[300];
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (cluster->url)
        return true;
    if (!host || !*host || !port || !*port) {
        rg_explain(why, why_size, "this is no pod, so name the API server with --kube-api URL");
        return false;
    }
    snprintf(url, sizeof url, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
    cluster->url = url;
    cluster->ca_file = cluster->ca_file ? cluster->ca_file : POD_FOLDER "/ca.crt";
    if (!cluster->cert_file && !cluster->token_file)
        cluster->token_file = POD_FOLDER "/token";
    return true;
}

struct rg_kube *rg_kube_open(const struct rg_kube_cluster *cluster)
{
    struct rg_kube *kube = calloc(1, sizeof *kube);
    if (!kube)
        return NULL;
    kube->cluster = cluster;
    kube->curl = curl_easy_init();
    if (kube->curl)
        return kube;
    free(kube);
    return NULL;
}

void rg_kube_close(struct rg_kube *kube)
{
    if (!kube)
        return;
    curl_easy_cleanup(kube->curl);
    curl_slist_free_all(kube->headers);
    free(kube);
}

/* --- a request ------------------------------------------------------------------------------------------------ */

static bool add_header(struct rg_kube *kube, const char *header)
{
    struct curl_slist *grown = curl_slist_append(kube->headers, header);
    if (grown)
        kube->headers = grown;
    return grown != NULL;
}

static enum rg_status add_token(struct rg_kube *kube, char *why, size_t why_size)
{
    static const char name[] = "Authorization: Bearer ";
    char header[sizeof name + TOKEN_ROOM];
    RG_CLEANUP_FD int fd = open(kube->cluster->token_file, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, header + sizeof name - 1, TOKEN_ROOM) : -1;
    if (size <= 0 || size == TOKEN_ROOM)
        return RG_FAILED(RG_ERR_IO, why, why_size, "cannot read the token in %s: %s",
                         kube->cluster->token_file,
                         size < 0 ? strerror(errno)
                         : size   ? "it is too long"
                                  : "it is empty");
    memcpy(header, name, sizeof name - 1);
    header[sizeof name - 1 + (size_t)size] = '\0';
    header[strcspn(header, "\r\n")] = '\0';
    const bool good = add_header(kube, header);
    explicit_bzero(header, sizeof header);
    return good ? RG_OK : RG_ERR_NO_MEMORY;
}

enum rg_status rg_kube_prepare(struct rg_kube *kube, const char *path, const char *content_type, char *why,
                               size_t why_size)
{
    const struct rg_kube_cluster *cluster = kube->cluster;
    RG_CLEANUP_FREE char *url = NULL;
    char type[80];
    curl_easy_reset(kube->curl);
    curl_slist_free_all(kube->headers);
    kube->headers = NULL;
    kube->error[0] = '\0';
    snprintf(type, sizeof type, "Content-Type: %s", content_type);
    if (!add_header(kube, "Accept: application/json") || (*content_type && !add_header(kube, type)))
        return RG_ERR_NO_MEMORY;
    if (cluster->token_file)
        RG_TRY(add_token(kube, why, why_size));
    if (asprintf(&url, "%s%s", cluster->url, path) < 0)
        return RG_ERR_NO_MEMORY;
    CURL *curl = kube->curl;
    bool good = curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
                curl_easy_setopt(curl, CURLOPT_HTTPHEADER, kube->headers) == CURLE_OK;
    good =
        good && (!cluster->ca_file || curl_easy_setopt(curl, CURLOPT_CAINFO, cluster->ca_file) == CURLE_OK);
    good = good &&
           (!cluster->cert_file || (curl_easy_setopt(curl, CURLOPT_SSLCERT, cluster->cert_file) == CURLE_OK &&
                                    curl_easy_setopt(curl, CURLOPT_SSLKEY, cluster->key_file) == CURLE_OK));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, kube->error);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, CALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "remote-gpu/" RG_VERSION);
    if (!good)
        rg_explain(why, why_size, "the TLS library cannot do what is asked of it");
    return good ? RG_OK : RG_ERR_UNSUPPORTED;
}

enum rg_status rg_kube_status_of(long code)
{
    if (code >= 200 && code < 300)
        return RG_OK;
    if (code == 404)
        return RG_ERR_NOT_FOUND;
    if (code == 409)
        return RG_ERR_INVALID;
    return code == 429 || code >= 500 ? RG_ERR_UNREACHABLE : RG_ERR_REFUSED;
}

struct text {
    char *data;
    size_t size;
};

static size_t take(char *data, size_t one, size_t n, void *context)
{
    struct text *text = context;
    const size_t more = one * n;
    if (more > RG_KUBE_ANSWER_MAX - text->size)
        return 0;
    char *grown = realloc(text->data, text->size + more + 1);
    if (!grown)
        return 0;
    memcpy(grown + text->size, data, more);
    text->data = grown;
    text->size += more;
    return more;
}

/* The API server's own words, which are an object of kind Status. */
static void explain(struct rg_kube_failure *failure, long code, const json_t *answer)
{
    const char *message = json_string_value(json_object_get(answer, "message"));
    failure->conflict = code == 409;
    rg_explain(failure->why, sizeof failure->why, "the API server says %ld%s%s", code, message ? ": " : "",
               message ? message : "");
    rg_printable_clean(failure->why);
}

enum rg_status rg_kube_call(struct rg_kube *kube, const char *method, const char *path, const json_t *body,
                            json_t **out, struct rg_kube_failure *failure)
{
    const bool patch = strcmp(method, "PATCH") == 0;
    RG_CLEANUP_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct text answer = {0};
    long code = 0;
    *failure = (struct rg_kube_failure){0};
    if (out)
        *out = NULL;
    if (body && !text)
        return RG_ERR_NO_MEMORY;
    RG_TRY(rg_kube_prepare(kube, path,
                           !body   ? ""
                           : patch ? "application/merge-patch+json"
                                   : "application/json",
                           failure->why, sizeof failure->why));
    curl_easy_setopt(kube->curl, CURLOPT_CUSTOMREQUEST, method);
    if (text) {
        curl_easy_setopt(kube->curl, CURLOPT_POSTFIELDS, text);
        curl_easy_setopt(kube->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(text));
    }
    curl_easy_setopt(kube->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(kube->curl, CURLOPT_WRITEDATA, &answer);
    const CURLcode went = curl_easy_perform(kube->curl);
    curl_easy_getinfo(kube->curl, CURLINFO_RESPONSE_CODE, &code);
    json_t *json = answer.size ? json_loadb(answer.data, answer.size, 0, NULL) : NULL;
    free(answer.data);
    if (went != CURLE_OK) {
        json_decref(json);
        return RG_FAILED(RG_ERR_UNREACHABLE, failure->why, sizeof failure->why,
                         "cannot ask the API server at %s: %s", kube->cluster->url,
                         kube->error[0] ? kube->error : curl_easy_strerror(went));
    }
    const enum rg_status status = rg_kube_status_of(code);
    if (status != RG_OK)
        explain(failure, code, json);
    if (status == RG_OK && out && json_is_object(json))
        *out = json_incref(json);
    json_decref(json);
    if (status == RG_OK && out && !*out)
        return RG_FAILED(RG_ERR_PROTOCOL, failure->why, sizeof failure->why,
                         "what answers at %s is not an API server", kube->cluster->url);
    return status;
}
