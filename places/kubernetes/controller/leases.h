/*
 * leases.h - the leases that the controller has for claims, or the device plugin for containers: taken, renewed and given back in
 * the pool. One thread.
 *
 * Nothing of it is kept over a restart: what a claim's annotation names is asked for again, by the same id, and the pool answers
 * with the lease that there is.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_LEASES_H
#define RG_PLACES_KUBERNETES_CONTROLLER_LEASES_H

#include "places/kubernetes/controller/decide.h"
#include "places/kubernetes/controller/pool.h"

struct rg_kube_lease {
    char id[RG_KUBE_LEASE_ID];
    bool has;  /* the grant */
    bool seen; /* its claim is there: a mark of the caller's */
    struct rg_kube_grant grant;
    uint64_t next_ns, pause_ns; /* when it is tried again, or renewed */
    char why[512];              /* why there is none */
};

struct rg_kube_leases {
    struct rg_kube_pool *pool;
    uint64_t seconds; /* that each lasts from a renewal on */
    struct rg_kube_lease **items;
    size_t n;
};

/** Forgets all of them here; the pool's leases stay. */
void rg_kube_leases_fini(struct rg_kube_leases *leases);
/** The lease of that id; NULL: it is not known. */
struct rg_kube_lease *rg_kube_leases_find(const struct rg_kube_leases *leases, const char *id);
/** The same, but it is made. NULL: no memory. */
struct rg_kube_lease *rg_kube_leases_add(struct rg_kube_leases *leases, const char *id);
/** Takes the claim's lease for `user`, unless it was tried a moment ago. False: `why` of the lease says why there is none. */
bool rg_kube_leases_take(struct rg_kube_leases *leases, struct rg_kube_lease *lease,
                         const struct rg_kube_claim *claim, const char *user);
/** The same of GPUs by their UUIDs; `job`: what it is for, which the pool shows, NULL: it is not known. */
bool rg_kube_leases_take_devices(struct rg_kube_leases *leases, struct rg_kube_lease *lease,
                                 const char *const *devices, unsigned n, const char *user, const char *job);
/** Renews those that are due. */
void rg_kube_leases_renew(struct rg_kube_leases *leases);
/** Gives back the lease of that id, known or not, and forgets it. False: it is to be tried again. */
bool rg_kube_leases_give_back(struct rg_kube_leases *leases, const char *id);

#endif
