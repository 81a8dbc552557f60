/*
 * http.h - /healthz, /readyz and /metrics of the controller, by libmicrohttpd on a thread of its own.
 *
 * Healthy: its rounds go on. Ready: API server and pool are known as they are now.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_HTTP_H
#define RG_PLACES_KUBERNETES_CONTROLLER_HTTP_H

#include "places/kubernetes/controller/controller.h"

struct rg_kube_http;

/** On "PORT" or "ADDRESS:PORT". `figures` must remain. NULL: it cannot, which was said. */
struct rg_kube_http *rg_kube_http_start(const char *where, const struct rg_kube_figures *figures,
                                        uint64_t interval_ns);
void rg_kube_http_stop(struct rg_kube_http *http);

#endif
