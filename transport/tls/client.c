/*
 * client.c - see client.h: a client believes the server, by its certificate and its name, or ends the handshake with an
 * alert. Its own certificate and key are read of files each time, as they may have been renewed.
 *
 * Threads: any.
 */
#include "transport/tls/client.h"

#include "transport/address.h"
#include "transport/tls/handshake.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

/* A file of certificates; the sentence names it. */
static enum rg_status read_certificates(const char *path, const char *what, STACK_OF(X509) * *out, char *why,
                                        size_t why_size)
{
    char *data = NULL;
    size_t size = 0;
    RG_TRY(rg_tls_read_file(path, what, false, &data, &size, why, why_size));
    *out = rg_tls_read_certificates(data, size);
    rg_tls_free_file(data, size);
    if (*out)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "%s %s holds no certificates in PEM: restore it, or join the server again", what, path);
}

static enum rg_status use_client_files(SSL_CTX *context, const struct rg_tls_client *client, char *why,
                                       size_t why_size)
{
    if (!client->certificate_file || !client->key_file)
        return RG_OK;
    STACK_OF(X509) *chain = NULL;
    char *data = NULL, from[300], key_from[300];
    size_t size = 0;
    enum rg_status status =
        read_certificates(client->certificate_file, "the certificate", &chain, why, why_size);
    if (status == RG_OK)
        status = rg_tls_read_file(client->key_file, "the key", true, &data, &size, why, why_size);
    if (status == RG_OK) {
        EVP_PKEY *key = rg_tls_read_key(data, size);
        snprintf(from, sizeof from, " (%s)", client->certificate_file);
        snprintf(key_from, sizeof key_from, " (%s)", client->key_file);
        status = rg_tls_handshake_set_certificate(context, chain, key, RG_TLS_ROLE_CLIENT, from, key_from,
                                                  why, why_size);
        EVP_PKEY_free(key);
    }
    rg_tls_free_file(data, size);
    sk_X509_pop_free(chain, X509_free);
    return status == RG_OK ? RG_OK : RG_ERR_INVALID;
}

static void explain_failure(const struct rg_tls_handshake *h, enum rg_status status, char *why,
                            size_t why_size)
{
    const unsigned long error = ERR_peek_error();
    const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (h->shown && h->verdict != RG_OK)
        rg_explain(why, why_size, "%s", h->verdict_why);
    else if (status == RG_ERR_TIMEOUT)
        rg_explain(why, why_size, "no answer to the handshake of TLS in time");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || (status == RG_ERR_CLOSED && h->received == 0))
        rg_explain(why, why_size,
                   "the server does not speak TLS on this port: it is not remote-gpud, an older one, or one "
                   "without certificates");
    else if (status == RG_ERR_CLOSED)
        rg_explain(why, why_size, "the server ended the connection during the handshake of TLS");
    else
        rg_explain(why, why_size, "the handshake of TLS failed: %s",
                   error ? ERR_reason_error_string(error) : "unknown");
}

enum rg_status rg_tls_connect(int fd, const struct rg_tls_client *client, const char *host, int timeout_ms,
                              struct rg_tls_session *out, char *why, size_t why_size)
{
    char name[sizeof((struct rg_address *)0)->host];
    snprintf(name, sizeof name, "%s", client->server_name ? client->server_name : host);
    rg_address_cut_zone(name); /* no certificate has it */
    struct rg_tls_handshake h = {.fd = fd,
                                 .verdict = RG_ERR_REFUSED,
                                 .judgement = {.role = RG_TLS_ROLE_SERVER,
                                               .root_hash = client->ca_hash,
                                               .name = name,
                                               .owner = "the server's certificate"}};
    SSL_CTX *context = rg_tls_handshake_context(false);
    STACK_OF(X509) *roots = NULL;
    SSL *ssl = NULL;
    enum rg_status status = context ? RG_OK : RG_ERR_NO_MEMORY;
    if (status != RG_OK)
        rg_explain(why, why_size, "out of memory");
    else if (!client->ca_hash && !client->ca_file) {
        rg_explain(why, why_size, "no authority is known whose servers are believed");
        status = RG_ERR_INVALID;
    } else if (!client->ca_hash)
        status =
            read_certificates(client->ca_file, "the authority's certificate", &roots, why, why_size) == RG_OK
                ? RG_OK
                : RG_ERR_INVALID;
    h.judgement.roots = roots;
    if (status == RG_OK)
        status = use_client_files(context, client, why, why_size);
    if (status == RG_OK) {
        ssl = rg_tls_handshake_make(context, &h);
        status = ssl ? RG_OK : RG_ERR_NO_MEMORY;
    }
    if (status == RG_OK) {
        unsigned char address[16];
        if (inet_pton(AF_INET, name, address) != 1 && inet_pton(AF_INET6, name, address) != 1 &&
            strncmp(name, "spiffe://", 9) != 0)
            (void)SSL_set_tlsext_host_name(ssl, name);
        status = rg_tls_handshake_run(&h, ssl, timeout_ms);
        if (status == RG_OK && h.verdict != RG_OK) /* it could not have ended well */
            status = RG_ERR_PROTOCOL;
        if (status == RG_OK && !rg_tls_handshake_take_keys(&h, ssl, &out->keys, out->exporter))
            status = RG_ERR_PROTOCOL;
        if (status == RG_OK)
            memcpy(out->peer, h.certificate.name, sizeof out->peer);
        else
            explain_failure(&h, status, why, why_size);
        if (status != RG_OK)
            status = h.shown && h.verdict != RG_OK ? RG_ERR_REFUSED : RG_ERR_UNREACHABLE;
    }
    rg_tls_handshake_end(&h, ssl);
    SSL_CTX_free(context);
    sk_X509_pop_free(roots, X509_free);
    return status;
}
