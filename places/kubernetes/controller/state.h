/*
 * state.h - internal to the controller: what it has between rounds, and the parts of a round. Its own thread's, but for `wake` and
 * `stopping`.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_STATE_H
#define RG_PLACES_KUBERNETES_CONTROLLER_STATE_H

#include "places/kubernetes/controller/controller.h"

#define RG_KUBE_API    "/apis/resource.k8s.io/v1"
#define RG_KUBE_SLICES RG_KUBE_API "/resourceslices"

struct rg_kube_controller {
    const struct rg_kube_controller_settings *settings;
    struct rg_kube_figures *figures;
    struct rg_kube *kube;
    struct rg_kube_store *claims, *slices;
    struct rg_kube_pool pool;
    struct rg_kube_leases leases;
    json_t *picture;    /* of the pool; NULL: not known yet */
    json_t *given_back; /* leases that the picture still shows, or showed when they were */
    uint64_t look_ns;   /* when the pool is looked at next */
    bool has_told_why;  /* that the pool cannot be looked at */
    bool again;         /* something is to be done at once */
    int wake;
    atomic_bool stopping;
};

/** Each claim gets on by a step, leases that are no claim's any more are given back, and the others renewed. */
void rg_kube_claims_round(struct rg_kube_controller *controller);
/** The leases that are claims': an object whose keys they are. NULL: the claims are not known yet. */
json_t *rg_kube_claims_leases(struct rg_kube_controller *controller);
/** Writes what has changed of the pool into ResourceSlices. */
void rg_kube_slices_publish(struct rg_kube_controller *controller);

#endif
