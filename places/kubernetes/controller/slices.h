/*
 * slices.h - what the pool is to the scheduler: ResourceSlices made of the pool's picture, and what has to be changed so that the
 * cluster has them. Pure.
 *
 * A GPU is a device that every node can reach, named after its UUID. It is published while its server takes work and nobody
 * outside of the cluster has a part of it: a GPU that a claim has stays, since the scheduler knows that itself. Whenever something
 * changes, every slice of the pool gets a new generation, as consumers of several slices need it.
 *
 * The format is resource.k8s.io/v1's (kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1).
 */
#ifndef RG_PLACES_KUBERNETES_CONTROLLER_SLICES_H
#define RG_PLACES_KUBERNETES_CONTROLLER_SLICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** The pool's name as slices have it: lower case, '-' for what a name cannot have. */
void rg_kube_slices_pool_name(const char *pool, char *out, size_t size);

/**
 * Whether nobody has a part of that GPU but by the leases that are keys of `claimed`. A part without a lease is about to be free: its
 * lease is over.
 */
bool rg_kube_slices_is_ours(const json_t *gpu, const json_t *claimed);

/**
 * The specifications of all slices, without generation and count. `picture` as rg_kube_pool_look gives it; `claimed`: an object
 * whose keys are the leases of claims; `nodes`: a node selector, NULL: all nodes. NULL: no memory.
 */
json_t *rg_kube_slices_make(const json_t *picture, const char *pool_name, const json_t *claimed,
                            const json_t *nodes);

/** One request to the API server; `name` of what exists, NULL for a new one. */
struct rg_kube_slice_change {
    const char *method; /* POST, PUT or DELETE */
    char name[300];
    json_t *body; /* NULL: none */
};

/**
 * What leads from the slices that are there (`existing`: an array of objects of this driver) to `specs`. Returns how many changes
 * are in *out, which rg_kube_slices_free releases; none where nothing is to do. Slices of other pools' names are removed.
 */
size_t rg_kube_slices_compare(const json_t *existing, const json_t *specs, const char *pool_name,
                              struct rg_kube_slice_change **out);
void rg_kube_slices_free(struct rg_kube_slice_change *changes, size_t n);

#endif
