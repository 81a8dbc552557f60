/*
 * service.h - answers HTTP: which paths there are, and what a connection may cost.
 *
 * Happy path: rg_service_start with a listening socket; libmicrohttpd's threads answer until rg_service_stop, and rg_service_expire
 * is called each second. Limits: connections at once, of one address, memory of each (so the size of a request), time from the
 * beginning of a request to the end of its answer: whoever is slower is cut off. Any path but those listed is "not found", any method
 * but GET and HEAD refused; bodies are never read.
 *
 * On a loopback address only requests that name this machine as their host are answered: else a page of anywhere could look here from a
 * browser of this machine, by a name that leads to its own server first and to this one then (DNS rebinding).
 */
#ifndef RG_SERVER_HTTP_SERVICE_H
#define RG_SERVER_HTTP_SERVICE_H

#include "server/http/view.h"

struct rg_service;

struct rg_service_settings {
    int listener;
    bool loopback;    /* only this machine reaches it */
    const char *pool; /* that the server is in; "": none */
    struct rg_view_source source;
};

/** RG_ERR_NO_MEMORY, RG_ERR_IO: it was said. */
RG_MUST_CHECK enum rg_status rg_service_start(const struct rg_service_settings *settings,
                                              struct rg_service **out);
/** Cuts off those who are too slow. */
void rg_service_expire(struct rg_service *service);
void rg_service_stop(struct rg_service *service); /* NULL is fine */

/** Whether a Host header names this machine: localhost, or an address of a loopback network. */
bool rg_service_is_own_host(const char *host);

#endif
