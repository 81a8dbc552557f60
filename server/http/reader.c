/* reader.c - see reader.h. */
#include "server/http/reader.h"
#include "common/base/hex.h"
#include "common/base/limits.h"

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HOST_SIZE = 256 };

static const char *header(const struct rg_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* --- the host ----------------------------------------------------------------------------------------------- */

/* A Host header without its port, and an address of IPv6 without brackets. False: it is malformed. */
static bool take_host(const char *text, char out[HOST_SIZE])
{
    const bool bracket = *text == '[';
    const char *begin = text + bracket;
    const size_t size = strcspn(begin, bracket ? "]" : ":");
    const char *rest = begin + size;
    if (size == 0 || size >= HOST_SIZE || (bracket && *rest != ']'))
        return false;
    rest += bracket;
    if (*rest && (*rest != ':' || strspn(rest + 1, "0123456789") != strlen(rest + 1)))
        return false;
    memcpy(out, begin, size);
    out[size] = '\0';
    return true;
}

bool rg_reader_is_own_host(const char *text)
{
    char host[HOST_SIZE];
    struct in_addr address;
    return take_host(text, host) &&
           (strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
            (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127));
}

/* No name of somebody's leads to an address that is written as one. */
static bool is_address(const char *host)
{
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

bool rg_reader_names_us(const struct rg_http_request *request)
{
    const char *text = header(request, MHD_HTTP_HEADER_HOST);
    char host[HOST_SIZE];
    if (!text || rg_reader_is_own_host(text))
        return true;
    return !request->local && take_host(text, host) &&
           (is_address(host) || (request->tls && rg_tls_server_is_named(request->tls, host)));
}

/* --- secrets ------------------------------------------------------------------------------------------------ */

void rg_reader_write_secret(const uint8_t secret[RG_PAGE_SECRET], char out[RG_HTTP_SECRET_TEXT])
{
    rg_hex(secret, RG_PAGE_SECRET, out);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool rg_reader_read_secret(const char *text, uint8_t out[RG_PAGE_SECRET])
{
    if (!text || strlen(text) != RG_HTTP_SECRET_TEXT - 1)
        return false;
    for (size_t i = 0; i < RG_PAGE_SECRET; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/*
 * Of a host that is reached by TLS alone nobody else can set a cookie of that name. Without TLS, on this machine, cookies of several servers
 * would overwrite each other but for the port.
 */
static void name_cookie(const struct rg_http_request *request, char out[32])
{
    if (request->tls)
        snprintf(out, 32, "__Host-rgpu");
    else
        snprintf(out, 32, "rgpu-%u", request->port);
}

void rg_reader_set_cookie(const struct rg_http_request *request, const char *value, uint32_t seconds,
                          char *out, size_t size)
{
    char name[32];
    name_cookie(request, name);
    snprintf(out, size, "%s=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Strict%s", name, value, seconds,
             request->tls ? "; Secure" : "");
}

/* --- who ---------------------------------------------------------------------------------------------------- */

static void take_address(const struct rg_http_request *request, struct rg_monitor_peer *peer)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr_in *v4 = info ? (const void *)info->client_addr : NULL;
    const struct sockaddr_in6 *v6 = (const void *)v4;
    char text[INET6_ADDRSTRLEN] = "?";
    if (v4 && v4->sin_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text))
        snprintf(peer->address, sizeof peer->address, "%s:%u", text, ntohs(v4->sin_port));
    else if (v6 && v6->sin6_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text))
        snprintf(peer->address, sizeof peer->address, "[%s]:%u", text, ntohs(v6->sin6_port));
    else
        snprintf(peer->address, sizeof peer->address, "%s", text);
}

/* False: it was shown, and is not good. */
static bool take_certificate(const struct rg_http_request *request, struct rg_monitor_peer *peer,
                             struct rg_http_answer *answer)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    unsigned n = 0;
    const gnutls_datum_t *chain =
        info && info->tls_session ? gnutls_certificate_get_peers(info->tls_session, &n) : NULL;
    struct rg_tls_der given[RG_TLS_CHAIN_MAX];
    struct rg_tls_peer found;
    if (!chain)
        return true;
    n = n < RG_TLS_CHAIN_MAX ? n : RG_TLS_CHAIN_MAX;
    for (unsigned i = 0; i < n; i++)
        given[i] = (struct rg_tls_der){chain[i].data, chain[i].size};
    rg_tls_judge_client(request->tls, given, n, &found);
    if (found.shown && !found.verified) {
        rg_http_say_error(answer, MHD_HTTP_UNAUTHORIZED, found.why);
        return false;
    }
    if (!found.shown)
        return true;
    peer->proof = RG_PROOF_CERTIFICATE;
    snprintf(peer->name, sizeof peer->name, "%s", found.certificate.name);
    memcpy(peer->serial, found.certificate.serial, sizeof peer->serial);
    peer->serial_size = found.certificate.serial_size;
    peer->not_after = found.certificate.not_after;
    return true;
}

/* "Bearer …" */
static bool take_bearer(const struct rg_http_request *request, struct rg_monitor_page *page)
{
    const char *text = header(request, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!text || strncasecmp(text, "Bearer ", 7) != 0)
        return false;
    text += 7 + strspn(text + 7, " ");
    page->proof = RG_READER_BEARER;
    if (strlen(text) < sizeof page->bearer)
        memcpy(page->bearer, text, strlen(text));
    return true;
}

static bool take_cookie(const struct rg_http_request *request, struct rg_monitor_page *page)
{
    char name[32];
    name_cookie(request, name);
    if (!rg_reader_read_secret(MHD_lookup_connection_value(request->connection, MHD_COOKIE_KIND, name),
                               page->secret))
        return false;
    page->proof = RG_READER_COOKIE;
    return true;
}

void rg_reader_nobody(const struct rg_http_request *request, struct rg_monitor_question *out)
{
    memset(out, 0, sizeof *out);
    out->peer.proof = RG_PROOF_NONE;
    out->peer.encrypted = request->tls != NULL;
    out->page.proof = RG_READER_NONE;
    take_address(request, &out->peer);
}

bool rg_reader_read(const struct rg_http_request *request, struct rg_monitor_question *out,
                    struct rg_http_answer *answer)
{
    rg_reader_nobody(request, out);
    if (take_bearer(request, &out->page) || take_cookie(request, &out->page))
        return true;
    return !request->tls || take_certificate(request, &out->peer, answer);
}

/* --- whether it is meant ------------------------------------------------------------------------------------ */

/* An origin is "https://" and what the request names as its host. */
static bool is_own_origin(const struct rg_http_request *request, const char *origin)
{
    const char *host = header(request, MHD_HTTP_HEADER_HOST);
    const char *scheme = request->tls ? "https://" : "http://";
    return host && strncasecmp(origin, scheme, strlen(scheme)) == 0 &&
           strcasecmp(origin + strlen(scheme), host) == 0;
}

bool rg_reader_means_it(const struct rg_http_request *request, struct rg_monitor_question *question,
                        struct rg_http_answer *answer)
{
    const char *origin = header(request, "Origin"), *site = header(request, "Sec-Fetch-Site");
    const char *guard = header(request, RG_HTTP_GUARD);
    if ((origin && !is_own_origin(request, origin)) ||
        (site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0)) {
        rg_http_say_error(answer, MHD_HTTP_FORBIDDEN, "a page of elsewhere has sent this");
        return false;
    }
    if (!guard || !*guard) {
        rg_http_say_error(answer, MHD_HTTP_FORBIDDEN,
                          "what changes something is sent with the header " RG_HTTP_GUARD
                          ": after a login its guard, else 1");
        return false;
    }
    (void)!rg_reader_read_secret(guard, question->page.guard); /* what is none is no guard: zeros are not */
    return true;
}
