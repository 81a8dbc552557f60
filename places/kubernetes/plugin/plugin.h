/*
 * plugin.h - a device plugin: a pool's GPUs as an extended resource of a node, for clusters without dynamic resource allocation.
 *
 * The kubelet is told the pool's GPUs (devices.h) and says which of them it has given to a container (Allocate). For these a lease of
 * the pool is taken, which the container gets with the client tree. Nobody tells when a container has ended: what the kubelet lists no
 * more (kubelet.h) is given back, and what it gives to another container as well. A GPU that somebody else has, on another node or
 * outside of the cluster, is unhealthy meanwhile.
 *
 * Happy path: rg_kube_plugin_create; rg_kube_plugin_round again and again, of which the answer to ListAndWatch follows; the methods
 * answer the kubelet meanwhile, on threads of the server's. What both look at is under `lock`, also while the pool is asked.
 */
#ifndef RG_PLACES_KUBERNETES_PLUGIN_PLUGIN_H
#define RG_PLACES_KUBERNETES_PLUGIN_PLUGIN_H

#include "places/kubernetes/controller/leases.h"
#include "places/kubernetes/grpc/server.h"
#include "places/kubernetes/node/prepared.h"
#include "places/kubernetes/plugin/kept.h"
#include "places/kubernetes/plugin/kubelet.h"

#include <pthread.h>

struct rg_kube_plugin {
    struct rg_kube_places places; /* the client tree, and more variables */
    struct rg_kube_kubelet kubelet;
    const char *user;   /* whose leases are */
    uint64_t settle_ns; /* how long the kubelet may take to list a container that was given GPUs */
    pthread_mutex_t lock;
    struct rg_kube_pool pool;
    struct rg_kube_leases leases;
    struct rg_kube_kept kept;
    json_t *devices;               /* as the kubelet was told; NULL: the pool has not answered yet */
    bool pool_failed, list_failed; /* which was said */
};

/** `plugin` with what is above `lock` filled in, and `leases.seconds`. False: `why`. */
bool rg_kube_plugin_create(struct rg_kube_plugin *plugin, const struct rg_text_list *servers,
                           uint64_t timeout_ns, const char *file, char *why, size_t why_size);
void rg_kube_plugin_destroy(struct rg_kube_plugin *plugin);

/** Looks at pool and kubelet once: gives back, renews, takes again what a server has lost. Whether devices have changed. */
bool rg_kube_plugin_round(struct rg_kube_plugin *plugin);
/** Publishes the devices; nothing before there was an answer of the pool. */
void rg_kube_plugin_publish(struct rg_kube_plugin *plugin, struct rg_grpc_server *server);

/**
 * A container is given these GPUs: the lease of them. NULL: `why`. Under the lock.
 */
const struct rg_kube_grant *rg_kube_plugin_take(struct rg_kube_plugin *plugin, char *const *devices, size_t n,
                                                char *why, size_t why_size);

/** The methods that the kubelet calls (methods.c); their context is a struct rg_kube_plugin. */
extern const struct rg_grpc_method rg_kube_plugin_methods[];
extern const size_t rg_kube_plugin_n_methods;

#endif
