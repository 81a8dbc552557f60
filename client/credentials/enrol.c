/* enrol.c - see enrol.h. */
#include "client/credentials/enrol.h"

#include "client/credentials/draft.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "transport/connect/connect.h"
#include "transport/control.h"
#include "transport/tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPT "renewal" /* in a folder of join's: locked during an attempt, as old as the last one */

#define BEGINS "-----BEGIN " /* of each certificate in a PEM text */

enum { AGAIN_S = 3600 };

static_assert(RG_JOIN_PUBLIC_KEY == RG_TLS_POINT_SIZE && RG_JOIN_PROOF == RG_TLS_SIGNATURE_SIZE,
              "a message carries what the tools make");

/* --- the exchange ------------------------------------------------------------------------------------------ */

/* One question for a certificate over a connection that is not used for anything else. */
static enum rg_status exchange(struct rg_conn *conn, enum rg_purpose purpose, const uint8_t *secret,
                               const char *key, const struct rg_tls_tools *tools, int timeout_ms,
                               struct rg_control *out, char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct rg_control *hello = calloc(1, sizeof *hello);
    uint8_t exporter[RG_TLS_EXPORTER_SIZE];
    size_t proof_size = 0;
    if (!hello)
        return RG_ERR_NO_MEMORY;
    rg_client_hello_init(hello, purpose);
    struct rg_client_hello *fields = &hello->client_hello;
    enum rg_status status = rg_conn_tls_exporter(conn, exporter);
    if (status == RG_OK)
        status = tools->public_key(key, strlen(key), fields->join_public_key);
    if (status == RG_OK)
        status = tools->prove(key, strlen(key), exporter, fields->join_proof, &proof_size);
    if (status != RG_OK) {
        rg_explain(why, why_size, "the key cannot be used (%s)", rg_status_string(status));
        return status;
    }
    fields->join_proof_size = (uint32_t)proof_size;
    if (secret)
        memcpy(fields->join_secret, secret, RG_JOIN_SECRET);
    status = rg_control_ask(conn, hello, timeout_ms, out);
    explicit_bzero(fields->join_secret, sizeof fields->join_secret);
    if (status != RG_OK) {
        rg_explain(why, why_size, "it gave no answer that this release understands (%s)",
                   rg_status_string(status));
        return status;
    }
    if (out->kind == RG_CONTROL_JOINED)
        return RG_OK;
    if (out->kind == RG_CONTROL_REFUSAL)
        rg_explain(why, why_size, "%s", out->refusal.reason);
    else
        rg_explain(why, why_size, "its answer was something else");
    rg_control_fini(out);
    return RG_ERR_REFUSED;
}

static enum rg_status ask(const char *server, const struct rg_tls_client *tls, enum rg_purpose purpose,
                          const uint8_t *secret, const char *key, const struct rg_tls_tools *tools,
                          int timeout_ms, struct rg_control *out, char *why, size_t why_size)
{
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = timeout_ms, .tls = tls};
    char reason[RG_CONTROL_REASON] = "";
    struct rg_conn *conn;
    enum rg_status status = rg_transport_connect(server, &options, reason, sizeof reason, &conn);
    if (status != RG_OK) {
        rg_explain(why, why_size,
                   status == RG_ERR_REFUSED || purpose == RG_PURPOSE_RENEW
                       ? "cannot use the server %s: %s"
                       : "cannot reach the server %s: %s; check that remote-gpud runs there and that this "
                         "machine can reach it: the token is good as before",
                   server, reason);
        return status;
    }
    status = exchange(conn, purpose, secret, key, tools, timeout_ms, out, reason, sizeof reason);
    rg_conn_destroy(conn);
    if (status != RG_OK)
        rg_explain(why, why_size, "the server %s gave no certificate: %s", server, reason);
    return status;
}

/* Whether what came is a certificate for our key, and signed by `authority`. */
static enum rg_status inspect(const struct rg_tls_tools *tools, const char *authority,
                              const char *certificate, const char *key, struct rg_tls_certificate *said,
                              char *why, size_t why_size)
{
    const struct rg_tls_pem pem = {.ca = authority,
                                   .ca_size = strlen(authority),
                                   .certificate = certificate,
                                   .certificate_size = strlen(certificate),
                                   .key = key,
                                   .key_size = strlen(key)};
    char reason[512] = "";
    enum rg_status status = tools->check(&pem, reason, sizeof reason);
    if (status == RG_OK)
        status = tools->describe(certificate, strlen(certificate), said);
    if (status != RG_OK)
        rg_explain(why, why_size, "the server's answer is not a certificate for this key: %s", reason);
    return status;
}

/* --- joining ----------------------------------------------------------------------------------------------- */

static enum rg_status fill(struct rg_draft *draft, const struct rg_join_token *token, int timeout_ms,
                           struct rg_enrolled *out, char *why, size_t why_size)
{
    uint8_t public_key[RG_TLS_POINT_SIZE], hash[RG_TLS_FINGERPRINT_SIZE];
    char key[RG_TLS_KEY_PEM_SIZE];
    RG_CLEANUP_FREE struct rg_control *answer = calloc(1, sizeof *answer);
    const struct rg_tls_tools *tools = rg_transport_tls_tools(why, why_size);
    if (!answer || !tools)
        return RG_ERR_NO_MEMORY;
    enum rg_status status = tools->make_key(key, public_key);
    if (status != RG_OK) {
        rg_explain(why, why_size, "no key could be made (%s)", rg_status_string(status));
        return status;
    }
    status = rg_draft_write(draft, RG_CREDENTIALS_KEY, key, why, why_size);
    if (status == RG_OK)
        status = rg_draft_reserve(draft, RG_CREDENTIALS_CERTIFICATE, RG_CONTROL_PEM, why, why_size);
    if (status == RG_OK)
        status = rg_draft_reserve(draft, RG_CREDENTIALS_AUTHORITY, RG_CONTROL_PEM, why, why_size);
    if (status == RG_OK)
        status = rg_draft_reserve(draft, RG_CREDENTIALS_SERVER, sizeof token->server, why, why_size);
    const struct rg_tls_client tls = {.ca_hash = token->authority, .server_name = token->address.host};
    if (status == RG_OK)
        status = ask(token->server, &tls, RG_PURPOSE_JOIN, token->secret, key, tools, timeout_ms, answer, why,
                     why_size);
    if (status != RG_OK) {
        explicit_bzero(key, sizeof key);
        return status;
    }
    const struct rg_joined *joined = &answer->joined;
    struct rg_tls_certificate said;
    const char *first = strstr(joined->authority, BEGINS);
    if (tools->key_hash(joined->authority, strlen(joined->authority), hash) != RG_OK ||
        memcmp(hash, token->authority, sizeof hash) != 0 || !first ||
        strstr(first + 1, BEGINS)) { /* all that is kept would be believed from now on */
        rg_explain(why, why_size, "the server's answer names another authority than the token");
        status = RG_ERR_REFUSED;
    }
    if (status == RG_OK)
        status = inspect(tools, joined->authority, joined->certificate, key, &said, why, why_size);
    explicit_bzero(key, sizeof key);
    if (status == RG_OK)
        status = rg_draft_write(draft, RG_CREDENTIALS_AUTHORITY, joined->authority, why, why_size);
    if (status == RG_OK)
        status = rg_draft_write(draft, RG_CREDENTIALS_CERTIFICATE, joined->certificate, why, why_size);
    if (status == RG_OK) {
        rg_control_text(out->user, sizeof out->user, said.name, strlen(said.name));
        out->not_after = said.not_after;
    }
    rg_control_fini(answer);
    return status;
}

enum rg_status rg_enrol_join(const struct rg_join_token *token, bool force, int timeout_ms,
                             struct rg_enrolled *out, char *why, size_t why_size)
{
    struct rg_draft draft;
    RG_TRY(rg_draft_begin(&draft, &token->address, force, why, why_size));
    enum rg_status status = fill(&draft, token, timeout_ms, out, why, why_size);
    if (status == RG_OK)
        status = rg_draft_commit(&draft, why, why_size);
    if (status == RG_OK)
        snprintf(out->folder, sizeof out->folder, "%s", draft.final);
    rg_draft_abandon(&draft);
    return status;
}

/* --- renewing ---------------------------------------------------------------------------------------------- */

/* A small text file; false: it cannot be read, or is larger. */
static bool read_text(const char *path, char *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    const ssize_t got = read(fd, out, size);
    close(fd);
    if (got < 0 || (size_t)got >= size)
        return false;
    out[got] = 0;
    return true;
}

/* The descriptor that keeps others from trying meanwhile; -1: another process does, or has done so lately. */
static int begin_attempt(const struct rg_credentials *credentials)
{
    char path[PATH_MAX + 16];
    struct stat folder, info;
    if (stat(credentials->folder, &folder) != 0 || folder.st_uid != geteuid())
        return -1; /* what we would write there might not be readable for its owner */
    snprintf(path, sizeof path, "%s/" ATTEMPT, credentials->folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    const bool first = fd < 0 && errno == ENOENT;
    if (first)
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    const time_t now = time(NULL);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &info) != 0 ||
        (!first && info.st_mtime <= now && now - info.st_mtime < AGAIN_S)) {
        close(fd);
        return -1;
    }
    futimens(fd, NULL);
    return fd;
}

static enum rg_status renew(const char *server, struct rg_credentials *credentials,
                            const struct rg_tls_tools *tools, int timeout_ms, char *why, size_t why_size)
{
    char key[2048], authority[RG_CONTROL_PEM];
    RG_CLEANUP_FREE struct rg_control *answer = calloc(1, sizeof *answer);
    if (!answer || !read_text(credentials->key, key, sizeof key) ||
        !read_text(credentials->authority, authority, sizeof authority))
        return RG_FAILED(RG_ERR_IO, why, why_size, "the files in %s cannot be read", credentials->folder);
    struct rg_tls_client tls;
    rg_credentials_tls(credentials, &tls);
    enum rg_status status =
        ask(server, &tls, RG_PURPOSE_RENEW, NULL, key, tools, timeout_ms, answer, why, why_size);
    if (status == RG_OK) {
        struct rg_tls_certificate said;
        status = inspect(tools, authority, answer->joined.certificate, key, &said, why, why_size);
        if (status == RG_OK && said.not_after <= credentials->not_after) {
            rg_explain(why, why_size, "the server gave a certificate that is valid no longer than this one");
            status = RG_ERR_REFUSED;
        }
        if (status == RG_OK)
            status = rg_draft_replace(credentials->folder, RG_CREDENTIALS_CERTIFICATE,
                                      answer->joined.certificate, why, why_size);
        if (status == RG_OK)
            credentials->not_after = said.not_after;
        rg_control_fini(answer);
    }
    explicit_bzero(key, sizeof key);
    return status;
}

void rg_enrol_renew(const char *server, struct rg_credentials *credentials, int timeout_ms)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char pem[RG_CONTROL_PEM], why[RG_CONTROL_REASON] = "another process tries, or has tried within the hour";
    struct rg_tls_certificate said;
    const struct rg_tls_tools *tools = credentials->found ? rg_transport_tls_tools(NULL, 0) : NULL;
    if (!tools || !read_text(credentials->certificate, pem, sizeof pem) ||
        tools->describe(pem, strlen(pem), &said) != RG_OK)
        return; /* connecting will say what is wrong */
    rg_control_text(credentials->name, sizeof credentials->name, said.name, strlen(said.name));
    credentials->not_after = said.not_after;
    const int64_t now = (int64_t)time(NULL), life = said.not_after - said.not_before;
    if (!credentials->joined || now < said.not_before + life / 3 * 2 || now >= said.not_after)
        return;
    const int attempt = begin_attempt(credentials);
    enum rg_status status = RG_ERR_IO;
    if (attempt >= 0) {
        status = renew(server, credentials, tools, timeout_ms, why, sizeof why);
        close(attempt);
    }
    if (status == RG_OK)
        rg_info("%s has renewed the certificate of %s", server, credentials->name);
    else if (now >= said.not_after - life / 10 && !atomic_flag_test_and_set(&told))
        rg_warn("the certificate %s expires in %.1f days and could not be renewed: %s; if that goes on, ask "
                "for a new token and join again with --force",
                credentials->certificate, (double)(said.not_after - now) / 86400, why);
    else
        rg_debug("the certificate was not renewed: %s", why);
}
