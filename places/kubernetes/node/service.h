/*
 * service.h - what the kubelet asks of the driver on its node: who it is, that claims are prepared, that they are done with.
 *
 * A claim is prepared when the controller has taken its lease and said so on the claim, which is waited for a while. The kubelet
 * repeats its questions until they succeed, also after restarts; each answer is the same as before. Where the API server cannot be
 * asked, a claim that was prepared once is prepared again from what was kept of it.
 */
#ifndef RG_PLACES_KUBERNETES_NODE_SERVICE_H
#define RG_PLACES_KUBERNETES_NODE_SERVICE_H

#include "places/kubernetes/api/kube.h"
#include "places/kubernetes/grpc/server.h"
#include "places/kubernetes/node/prepared.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_kube_node {
    const struct rg_kube_cluster *cluster;
    struct rg_kube_places places;
    const char *endpoint; /* the driver's socket */
    uint64_t wait_ns;     /* for a lease */
    atomic_bool stopping;
    pthread_mutex_t files; /* one claim at a time is written or removed */
};

/** The methods that the kubelet calls; their context is a struct rg_kube_node. */
extern const struct rg_grpc_method rg_kube_node_methods[];
extern const size_t rg_kube_node_n_methods;

#endif
