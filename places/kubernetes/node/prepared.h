/*
 * prepared.h - claims that were prepared on this node: one file each in the driver's folder, which survives a restart of this
 * program and of the node, and a CDI specification, which is what container runtimes read and may vanish with a reboot.
 *
 * Each is written beside its place and moved there, so a reader sees it whole or not at all. Any thread, one claim at a time.
 */
#ifndef RG_PLACES_KUBERNETES_NODE_PREPARED_H
#define RG_PLACES_KUBERNETES_NODE_PREPARED_H

#include "client/cli/cdi/spec.h"
#include "common/base/options.h"
#include "places/kubernetes/claim/claim.h"

#include <jansson.h>
#include <stdbool.h>

#define RG_KUBE_CDI_KIND "k8s." RG_KUBE_DRIVER "/claim"

/** Where things are. */
struct rg_kube_places {
    const char *state_folder, *cdi_folder;
    const char *client_root;         /* the client tree as the node has it, which containers mount */
    const char *client_here;         /* the same as this program sees it */
    struct rg_text_list environment; /* NAME=VALUE, more for containers */
};

/** Adds the client tree to what a container gets. False: it is not whole, and `why` says so. */
bool rg_kube_places_add_tree(const struct rg_kube_places *places, struct rg_cdi_spec *spec, char *why,
                             size_t why_size);
/** Whether a UID is one that may be part of a file's name. */
bool rg_kube_uid_is_good(const char *uid);
/** What the file says that is kept of a claim. NULL: memory. */
json_t *rg_kube_prepared_make(const struct rg_kube_claim *claim);
/** What was kept of the claim of that UID; NULL: nothing. */
json_t *rg_kube_prepared_load(const struct rg_kube_places *places, const char *uid);
/** Keeps it, and writes the CDI specification of it. False: `why` says what cannot be done. */
bool rg_kube_prepared_save(const struct rg_kube_places *places, const json_t *prepared, char *why,
                           size_t why_size);
/** Removes both; it is no failure where there is nothing. False: `why`. */
bool rg_kube_prepared_remove(const struct rg_kube_places *places, const char *uid, char *why,
                             size_t why_size);

#endif
