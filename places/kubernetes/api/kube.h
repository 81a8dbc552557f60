/*
 * kube.h - the API server of a Kubernetes cluster: one request, and a copy of objects that a watch keeps true.
 *
 * Happy path: rg_kube_find_cluster (from a pod, or as told), rg_kube_open for each thread that asks, rg_kube_call. For objects
 * that are to be known all the time: rg_kube_store_start, whose thread lists them and then watches; rg_kube_store_read locks it.
 *
 * Failures: the API server cannot be reached, or answers 5xx or 429: RG_ERR_UNREACHABLE, to be tried again. 404:
 * RG_ERR_NOT_FOUND. 409: RG_ERR_INVALID with `conflict`, the object has changed or is there already. Others: RG_ERR_REFUSED.
 * A store whose watch breaks lists anew, at once where its place in the history is gone (410), else after a pause, which grows only
 * where watches break at once; what it has stays meanwhile, and rg_kube_store_is_true says that it may be old.
 *
 * The formats are documented under "Kubernetes API Concepts" (kubernetes.io/docs/reference/using-api/api-concepts).
 */
#ifndef RG_PLACES_KUBERNETES_API_KUBE_H
#define RG_PLACES_KUBERNETES_API_KUBE_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** Where the API server is and who asks. Texts are the caller's, NULL where there is none. */
struct rg_kube_cluster {
    const char *url;                  /* https://10.96.0.1:443 */
    const char *ca_file;              /* of who has signed the API server's certificate */
    const char *token_file;           /* read anew for each request: the kubelet renews it */
    const char *cert_file, *key_file; /* instead of a token */
};

/** Completes what was not told from the environment and the folder of a pod. False: it is no pod, `why` says so. */
bool rg_kube_find_cluster(struct rg_kube_cluster *cluster, char *why, size_t why_size);

struct rg_kube;

/** For one thread. NULL: no memory. `cluster` stays the caller's and must remain. */
struct rg_kube *rg_kube_open(const struct rg_kube_cluster *cluster);
void rg_kube_close(struct rg_kube *kube);

/** What came of a call that failed. */
struct rg_kube_failure {
    bool conflict;
    char why[512];
};

/**
 * One request: GET, POST, PUT, PATCH (a merge patch) or DELETE of `path`, with `body` (borrowed) or NULL. `out` may be NULL; else
 * it is the answer's object, for the caller to release.
 */
RG_MUST_CHECK enum rg_status rg_kube_call(struct rg_kube *kube, const char *method, const char *path,
                                          const json_t *body, json_t **out, struct rg_kube_failure *failure);

/** Objects of one kind. */
struct rg_kube_store;

/**
 * Starts the thread that lists and watches `path` (with a query, "…?fieldSelector=…", or without). `changed` is called on that
 * thread, without locks, when something has. NULL: no memory.
 */
struct rg_kube_store *rg_kube_store_start(const struct rg_kube_cluster *cluster, const char *path,
                                          void (*changed)(void *context), void *context);
/** Waits for the thread, which a watch lets go within a second. */
void rg_kube_store_stop(struct rg_kube_store *store);
/**
 * The objects as they are now, by namespace and name, for the caller to release: objects do not change, they are replaced. NULL:
 * they were never listed.
 */
json_t *rg_kube_store_read(struct rg_kube_store *store);
/** Puts what a call has answered in the place of what is known of the object, if that is older; one that is not known is not added. */
void rg_kube_store_put(struct rg_kube_store *store, json_t *object);
/** Whether the API server keeps it true at this moment, as far as is known. */
bool rg_kube_store_is_true(struct rg_kube_store *store);

#endif
