/*
 * controller.h - the controller: keeps the cluster's ResourceSlices as the pool is, and the pool's leases as the cluster's claims
 * are.
 *
 * One thread (rg_kube_controller_run) does both, again and again: when a claim or slice has changed, and every few seconds, since
 * the pool tells of no changes. It remembers nothing that matters: everything follows from the claims and the pool. Leases are
 * taken and given back only while the API server keeps the claims true; those that are had are renewed in any case, since pods run
 * while there is no API server.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_CONTROLLER_H
#define RG_PLACES_KUBERNETES_CONTROLLER_CONTROLLER_H

#include "places/kubernetes/api/kube.h"
#include "places/kubernetes/controller/leases.h"

#include <stdatomic.h>

/** As told; texts remain the caller's. */
struct rg_kube_controller_settings {
    struct rg_kube_cluster cluster;
    struct rg_text_list servers;
    const char *user; /* of leases; "{namespace}" in it is the claim's namespace */
    json_t *nodes;    /* node selector; NULL: all nodes */
    uint64_t timeout_ns, lease_ns, interval_ns;
};

/** Figures for metrics and probes, which other threads read. */
struct rg_kube_figures {
    atomic_bool api_server, pool; /* is known as it is now */
    _Atomic uint64_t passed_ns;   /* when the last round ended; 0: none has */
    atomic_uint devices, claims, leases, waiting;
    atomic_ullong taken, refused, given_back, failures;
};

struct rg_kube_controller;

/** NULL: no memory. */
struct rg_kube_controller *rg_kube_controller_create(const struct rg_kube_controller_settings *settings,
                                                     struct rg_kube_figures *figures);
/** Runs until rg_kube_controller_stop. */
void rg_kube_controller_run(struct rg_kube_controller *controller);
/** Any thread, also a signal handler. */
void rg_kube_controller_stop(struct rg_kube_controller *controller);
void rg_kube_controller_destroy(struct rg_kube_controller *controller);

#endif
