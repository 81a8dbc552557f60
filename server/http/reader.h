/*
 * reader.h - by what a request shows whose it is, and whether a browser may have been made to send it.
 *
 * In the order in which they count: a bearer token, the cookie of a login, the certificate of the connection, nothing. The monitor
 * decides what that is worth (server/daemon/monitor/readers.h); here TLS's part alone is decided, that a certificate is of the server's authority.
 *
 * Against pages of elsewhere: the host of a request is one of the server's own names, so that no name of somebody else's leads here (DNS
 * rebinding); what changes something is sent with a header that no other page's script may send, from no other origin; and the cookie,
 * which browsers send to all ports of a host, changes nothing without the guard, which the page alone has. Any thread.
 */
#ifndef RG_SERVER_HTTP_READER_H
#define RG_SERVER_HTTP_READER_H

#include "server/http/request.h"

/** The header by which requests that change something say that they are meant; after a login its value is the guard. */
#define RG_HTTP_GUARD "X-Remote-Gpu"

/** Whether the host that the request names, if it names one, is this server. */
bool rg_reader_names_us(const struct rg_http_request *request);
/** Whether a Host header names this machine by itself: localhost, or an address of a loopback network. */
bool rg_reader_is_own_host(const char *host);

/** Fills in nobody, and where the request is from. */
void rg_reader_nobody(const struct rg_http_request *request, struct rg_monitor_question *out);
/** Fills in who asks. False: TLS has found the certificate to be bad, and `answer` says so. */
RG_MUST_CHECK bool rg_reader_read(const struct rg_http_request *request, struct rg_monitor_question *out,
                                  struct rg_http_answer *answer);
/** Whether no page of elsewhere has sent it; fills in the guard. False: `answer` says why not. */
RG_MUST_CHECK bool rg_reader_means_it(const struct rg_http_request *request,
                                      struct rg_monitor_question *question, struct rg_http_answer *answer);

/** A secret as 64 hexadecimal digits, and back. */
enum { RG_HTTP_SECRET_TEXT = 2 * RG_PAGE_SECRET + 1 };
void rg_reader_write_secret(const uint8_t secret[RG_PAGE_SECRET], char out[RG_HTTP_SECRET_TEXT]);
RG_MUST_CHECK bool rg_reader_read_secret(const char *text, uint8_t out[RG_PAGE_SECRET]);

/** What a browser is to keep; `value` "": to forget. */
void rg_reader_set_cookie(const struct rg_http_request *request, const char *value, uint32_t seconds,
                          char *out, size_t size);

#endif
