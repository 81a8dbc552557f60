/*
 * kept.h - the leases that this node's containers have: known before they are taken, and kept in a file over restarts of this
 * program and the node, so that each is given back when its container is no more.
 *
 * One thread at a time.
 */
#ifndef RG_PLACES_KUBERNETES_PLUGIN_KEPT_H
#define RG_PLACES_KUBERNETES_PLUGIN_KEPT_H

#include "places/kubernetes/claim/claim.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** A lease, of GPUs that the kubelet has given to one container. */
struct rg_kube_kept_lease {
    char id[RG_KUBE_LEASE_ID];
    json_t *devices;   /* an array of their UUIDs */
    uint64_t since_ns; /* when it was taken, or this program was started */
    bool seen;         /* the kubelet has named its container */
    bool over;         /* it is to be given back */
};

struct rg_kube_kept {
    const char *path; /* the file */
    struct rg_kube_kept_lease *items;
    size_t n;
};

/** Reads the file; none is as good as an empty one. False: `why`. */
bool rg_kube_kept_load(struct rg_kube_kept *kept, const char *path, char *why, size_t why_size);
void rg_kube_kept_fini(struct rg_kube_kept *kept);
/** A new lease of these GPUs, with an id of its own, which is in the file when this returns. NULL: `why`. */
struct rg_kube_kept_lease *rg_kube_kept_add(struct rg_kube_kept *kept, char *const *devices, size_t n,
                                            char *why, size_t why_size);
/** Removes number `i`, and writes the file. False: `why`, it is still there. */
bool rg_kube_kept_remove(struct rg_kube_kept *kept, size_t i, char *why, size_t why_size);
/** Whether the lease is of that GPU. */
bool rg_kube_kept_has(const struct rg_kube_kept_lease *lease, const char *device);
/** An object whose keys are the ids of all. NULL: no memory. */
json_t *rg_kube_kept_ids(const struct rg_kube_kept *kept);

#endif
