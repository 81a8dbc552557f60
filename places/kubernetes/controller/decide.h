/*
 * decide.h - what is to be done next about a claim. Pure.
 *
 *   no lease wanted, none noted            nothing (or the finalizer is taken off)
 *   wanted, none noted                     NOTE: finalizer and devices go onto the claim, before anything is taken
 *   wanted and noted, not known to be had  TAKE: the pool is asked; by the same id it gives the same lease
 *   had, and the claim does not tell so    TELL
 *   noted, not wanted any more             GIVE_BACK, then CLEAR
 *
 * Every step is done again after a restart, wherever the one before ended, and each may be done twice.
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_DECIDE_H
#define RG_PLACES_KUBERNETES_CONTROLLER_DECIDE_H

#include "places/kubernetes/claim/claim.h"

enum rg_kube_step {
    RG_KUBE_NOTHING,
    RG_KUBE_NOTE,
    RG_KUBE_TAKE,
    RG_KUBE_TELL,
    RG_KUBE_GIVE_BACK, /* the lease for the noted devices */
    RG_KUBE_CLEAR,
};

/** A lease that is had: as REMOTE_GPU_LEASE and REMOTE_GPU_SERVER have it. */
struct rg_kube_grant {
    char *lease, *servers;
};

/** `wanted`: rg_kube_claim_devices of it; `grant`: of the lease for those, NULL: it is not known to be had. */
enum rg_kube_step rg_kube_decide(const struct rg_kube_claim *claim, const char *wanted,
                                 const struct rg_kube_grant *grant);

#endif
