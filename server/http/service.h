/*
 * service.h - answers HTTP: which paths there are, and what a connection may cost.
 *
 * Happy path: rg_service_start with a listening socket; libmicrohttpd's threads answer until the process ends, and rg_service_expire
 * is called each second. Limits: connections at once, of one address, memory of each (so the size of a request), time from the
 * beginning of a request to the end of its answer: whoever is slower is cut off. Any path but those listed is "not found", any method
 * that the path has not is refused; of bodies, which actions alone have, a kilobyte is read.
 *
 * Where other machines reach the port it is spoken to by TLS 1.3 alone, and clients are asked for a certificate that they need not have.
 * Only requests that name this server as their host are answered (reader.h).
 */
#ifndef RG_SERVER_HTTP_SERVICE_H
#define RG_SERVER_HTTP_SERVICE_H

#include "server/http/view.h"
#include "transport/tls/tls.h"

struct rg_service;

struct rg_service_settings {
    int listener;
    bool loopback;    /* only this machine reaches it */
    const char *pool; /* that the server is in; "": none */
    struct rg_view_source source;
};

/** `pem`: for TLS, with a signer instead of a key; the caller's again; NULL: without. RG_ERR_NO_MEMORY, RG_ERR_IO: it was said. */
RG_MUST_CHECK enum rg_status rg_service_start(const struct rg_service_settings *settings,
                                              const struct rg_tls_pem *pem, struct rg_service **out);
/** Another certificate, for new connections: those that there are end. Not from a thread of the service's. */
void rg_service_set_tls(struct rg_service *service, const struct rg_tls_pem *pem);
/** Cuts off those who are too slow. */
void rg_service_expire(struct rg_service *service);

#endif
