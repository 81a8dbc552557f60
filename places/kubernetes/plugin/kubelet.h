/*
 * kubelet.h - what the device plugin asks of the kubelet on its node: to be called for a resource, and which devices containers
 * have. One thread.
 */
#ifndef RG_PLACES_KUBERNETES_PLUGIN_KUBELET_H
#define RG_PLACES_KUBERNETES_PLUGIN_KUBELET_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define RG_KUBE_PLUGIN_SOCKET "remote-gpu.sock" /* ours, in the kubelet's folder for device plugins */

struct rg_kube_kubelet {
    const char *folder;   /* of device plugins */
    const char *pods;     /* the socket that tells of containers' devices */
    const char *resource; /* "remote-gpu.io/gpu" */
    ino_t inode;          /* of the kubelet's socket when we registered */
};

/** Says that our socket answers for the resource. Not RG_OK: `why`. */
RG_MUST_CHECK enum rg_status rg_kube_kubelet_register(struct rg_kube_kubelet *kubelet, char *why,
                                                      size_t why_size);
/** Whether the kubelet that we registered with is still there: one that starts removes our socket, and knows nothing of us. */
bool rg_kube_kubelet_knows_us(const struct rg_kube_kubelet *kubelet);
/** Devices of the resource that containers have: an object whose keys are their ids. NULL: `why` it is not known. */
json_t *rg_kube_kubelet_devices(const struct rg_kube_kubelet *kubelet, char *why, size_t why_size);

#endif
