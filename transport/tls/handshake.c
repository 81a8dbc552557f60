/*
 * handshake.c - see handshake.h: TLS 1.3 alone, without tickets and early data.
 *
 * OpenSSL reads and writes the socket through functions of ours, which raise no signal, never wait, and count what the
 * peer sends. It reads record by record, so nothing behind the handshake is taken. The secrets come by the callback
 * that is meant for logs of keys: TLS 1.3 has no other way to them.
 *
 * Threads: one for each handshake.
 */
#include "transport/tls/handshake.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/poll.h"
#include "transport/tls/keys.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define EXPORTER_LABEL "EXPORTER-remote-gpu-join"

/* --- the socket, for OpenSSL --- */

/* What a call that failed means: to be tried again, or the end. */
static bool is_for_later(struct rg_tls_handshake *h)
{
    if (errno == EAGAIN || errno == EINTR)
        return true;
    h->failed = errno;
    return false;
}

static int bio_read(BIO *bio, char *data, int size)
{
    struct rg_tls_handshake *h = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (h->received + (size_t)size > RG_TLS_HANDSHAKE_MAX) {
        h->failed = EMSGSIZE;
        return -1;
    }
    const ssize_t n = recv(h->fd, data, (size_t)size, MSG_DONTWAIT);
    if (n > 0)
        h->received += (size_t)n;
    else if (n == 0)
        h->ended = true;
    else if (is_for_later(h))
        BIO_set_retry_read(bio);
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct rg_tls_handshake *h = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t n = send(h->fd, data, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && is_for_later(h))
        BIO_set_retry_write(bio);
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;
static int handshake_index = -1; /* where an SSL has its struct rg_tls_handshake */

static void make_shared(void)
{
    rg_tls_start();
    handshake_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "remote-gpu");
    if (bio_method) {
        BIO_meth_set_read(bio_method, bio_read);
        BIO_meth_set_write(bio_method, bio_write);
        BIO_meth_set_ctrl(bio_method, bio_control);
    }
}

static bool have_shared(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_shared);
    return bio_method && handshake_index >= 0;
}

/* --- secrets --- */

static int from_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "SERVER_TRAFFIC_SECRET_0 RANDOM SECRET", both in hexadecimal. */
static void take_secret(const SSL *ssl, const char *line)
{
    struct rg_tls_handshake *h = SSL_get_ex_data(ssl, handshake_index);
    const bool client = strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0;
    const char *cur = strrchr(line, ' ');
    if (!h || !cur || (!client && strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) != 0))
        return;
    uint8_t *out = client ? h->client_secret : h->server_secret;
    size_t n = 0;
    for (cur++; n < RG_TLS_SECRET_SIZE && from_hex(cur[0]) >= 0 && from_hex(cur[1]) >= 0; cur += 2)
        out[n++] = (uint8_t)(from_hex(cur[0]) << 4 | from_hex(cur[1]));
    *(client ? &h->client_secret_size : &h->server_secret_size) = n;
}

bool rg_tls_handshake_take_keys(struct rg_tls_handshake *h, SSL *ssl, struct rg_tls_keys *keys,
                                uint8_t exporter[RG_TLS_EXPORTER_SIZE])
{
    const SSL_CIPHER *cipher = SSL_get_current_cipher(ssl);
    const struct rg_tls_suite *suite = cipher ? rg_tls_suite_find(SSL_CIPHER_get_protocol_id(cipher)) : NULL;
    if (!suite || h->client_secret_size != suite->secret_size ||
        h->server_secret_size != suite->secret_size || SSL_pending(ssl) != 0)
        return false;
    memset(keys, 0, sizeof *keys);
    keys->cipher = suite->number;
    keys->is_server = h->is_server;
    keys->secret_size = suite->secret_size;
    memcpy(keys->send, h->is_server ? h->server_secret : h->client_secret, suite->secret_size);
    memcpy(keys->receive, h->is_server ? h->client_secret : h->server_secret, suite->secret_size);
    if (SSL_export_keying_material(ssl, exporter, RG_TLS_EXPORTER_SIZE, EXPORTER_LABEL,
                                   strlen(EXPORTER_LABEL), NULL, 0, 0) == 1)
        return true;
    OPENSSL_cleanse(keys, sizeof *keys);
    return false;
}

/* --- judging the peer --- */

static int judge(X509_STORE_CTX *given, void *user)
{
    (void)user;
    SSL *ssl = X509_STORE_CTX_get_ex_data(given, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct rg_tls_handshake *h = ssl ? SSL_get_ex_data(ssl, handshake_index) : NULL;
    X509 *leaf = X509_STORE_CTX_get0_cert(given);
    int error = X509_V_ERR_UNSPECIFIED;
    if (!h || !leaf)
        return 0;
    h->shown = true;
    rg_tls_describe(leaf, &h->certificate);
    h->verdict = rg_tls_judge(&h->judgement, leaf, X509_STORE_CTX_get0_untrusted(given), &error,
                              h->verdict_why, sizeof h->verdict_why);
    const bool go_on = h->is_server || h->verdict == RG_OK;
    X509_STORE_CTX_set_error(given, go_on ? X509_V_OK : error);
    return go_on;
}

/* --- both sides --- */

/* Whether this processor encrypts AES by itself. */
static bool has_aes(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes");
#else
    return true;
#endif
}

SSL_CTX *rg_tls_handshake_context(bool is_server)
{
    SSL_CTX *context =
        have_shared() ? SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()) : NULL;
    if (!context)
        return NULL;
    const char *suites = has_aes()
                             ? "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                             : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_security_level(context, 2);
    SSL_CTX_set_max_cert_list(context, RG_TLS_HANDSHAKE_MAX / 2);
    SSL_CTX_set_keylog_callback(context, take_secret);
    SSL_CTX_set_cert_verify_callback(context, judge, NULL);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL); /* of a client: asked for, not demanded */
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_ciphersuites(context, suites) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

enum rg_status rg_tls_handshake_set_certificate(SSL_CTX *context, STACK_OF(X509) * chain, EVP_PKEY *key,
                                                enum rg_tls_role role, const char *from, const char *key_from,
                                                char *why, size_t why_size)
{
    enum rg_status status = RG_ERR_INVALID;
    X509 *leaf = chain ? sk_X509_value(chain, 0) : NULL;
    if (!leaf) {
        rg_explain(why, why_size, "the certificate%s is not PEM: restore it, or have a new one made", from);
    } else if (!key) {
        rg_explain(why, why_size, "the key%s is not PEM, or has a pass phrase, which it must not", key_from);
    } else if (X509_check_private_key(leaf, key) != 1) {
        rg_explain(why, why_size,
                   "the key%s does not fit the certificate%s: both must come from the same request", key_from,
                   from);
    } else if (!rg_tls_serves_as(leaf, role)) {
        rg_explain(why, why_size, "the certificate%s is not for %s: its extended key usage lacks %s", from,
                   role == RG_TLS_ROLE_SERVER ? "servers" : "clients",
                   role == RG_TLS_ROLE_SERVER ? "serverAuth" : "clientAuth");
    } else if (SSL_CTX_use_certificate(context, leaf) != 1 || SSL_CTX_use_PrivateKey(context, key) != 1) {
        rg_explain(why, why_size, "the certificate%s is not accepted: %s", from,
                   ERR_reason_error_string(ERR_get_error()));
    } else {
        status = RG_OK;
    }
    for (int i = 1; status == RG_OK && i < sk_X509_num(chain); i++)
        if (SSL_CTX_add1_chain_cert(context, sk_X509_value(chain, i)) != 1)
            status = RG_ERR_NO_MEMORY;
    ERR_clear_error();
    return status;
}

enum rg_status rg_tls_handshake_run(struct rg_tls_handshake *h, SSL *ssl, int timeout_ms)
{
    const uint64_t until = rg_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        ERR_clear_error();
        const int n = h->is_server ? SSL_accept(ssl) : SSL_connect(ssl);
        if (n == 1)
            return RG_OK;
        const int error = SSL_get_error(ssl, n);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            return h->ended || (h->failed && h->failed != EMSGSIZE) ? RG_ERR_CLOSED : RG_ERR_PROTOCOL;
        const uint64_t now = rg_now_ns();
        if (now >= until)
            return RG_ERR_TIMEOUT;
        struct pollfd p = {.fd = h->fd, .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
        if (rg_poll(&p, 1, (int)((until - now + 999999u) / 1000000u)) < 0 && rg_poll_is_refused())
            return RG_ERR_LOST;
    }
}

SSL *rg_tls_handshake_make(SSL_CTX *context, struct rg_tls_handshake *h)
{
    SSL *ssl = context ? SSL_new(context) : NULL;
    BIO *bio = ssl ? BIO_new(bio_method) : NULL;
    if (bio && SSL_set_ex_data(ssl, handshake_index, h) == 1) {
        BIO_set_data(bio, h);
        BIO_set_init(bio, 1);
        SSL_set_bio(ssl, bio, bio);
        return ssl;
    }
    BIO_free(bio);
    SSL_free(ssl);
    return NULL;
}

void rg_tls_handshake_end(struct rg_tls_handshake *h, SSL *ssl)
{
    SSL_free(ssl);
    ERR_clear_error();
    OPENSSL_cleanse(h->client_secret, sizeof h->client_secret);
    OPENSSL_cleanse(h->server_secret, sizeof h->server_secret);
}
