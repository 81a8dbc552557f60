/*
 * claim.h - what controller and node part read of a ResourceClaim (resource.k8s.io/v1), and what they tell each other on it.
 *
 * The controller writes annotations: first for which devices it is about to take a lease (so that a restart finds it again), then
 * what a container needs to use it. A lease's id follows from the claim's UID and those devices: who asks again gets the same lease,
 * and a claim that was given other devices gets another one. It does not stand on the claim, since whoever may edit a claim could
 * have the controller give back leases of others. Pure; any thread.
 */
#ifndef RG_PLACES_KUBERNETES_CLAIM_CLAIM_H
#define RG_PLACES_KUBERNETES_CLAIM_CLAIM_H

#include "common/base/json_value.h"
#include "common/base/limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The driver's name: of DeviceClasses, ResourceSlices, the kubelet's folders. */
#define RG_KUBE_DRIVER "gpu.remote-gpu.io"
/* On a claim that may have a lease: it stays until the lease is given back. */
#define RG_KUBE_FINALIZER RG_KUBE_DRIVER "/lease"
/* Annotations: for which devices, before it is taken; REMOTE_GPU_LEASE and REMOTE_GPU_SERVER of containers; why there is none yet. */
#define RG_KUBE_NOTE_DEVICES RG_KUBE_DRIVER "/devices"
#define RG_KUBE_NOTE_LEASE   RG_KUBE_DRIVER "/lease"
#define RG_KUBE_NOTE_SERVERS RG_KUBE_DRIVER "/servers"
#define RG_KUBE_NOTE_WAITING RG_KUBE_DRIVER "/waiting"

#define RG_KUBE_LEASE_ID    17 /* bytes of an id with its end: 16 hexadecimal digits */
#define RG_KUBE_DEVICE_NAME 64 /* bytes of a device's name with its end: a DNS label */

/** A device that was allocated; texts within the claim. */
struct rg_kube_device {
    const char *request, *pool, *name;
};

/** A claim as far as it is of interest; texts within the JSON that was read, "" where there is none. */
struct rg_kube_claim {
    const char *uid, *space, *name, *version;
    const char *noted_devices, *noted_lease, *noted_servers, *noted_waiting;
    bool deleting, has_finalizer, in_use /* by pods */, for_admin /* it looks at devices of others */;
    unsigned n_devices; /* of this driver */
    struct rg_kube_device devices[RG_POOL_GPUS_MAX];
};

/** False: it is no claim with a name, a namespace and a UID, or it has more devices than a lease can have. */
bool rg_kube_claim_read(const json_t *json, struct rg_kube_claim *out);
/** The devices allocated to it, as the annotation has them: "POOL/DEVICE,…" in order; "" where there are none. NULL: no memory. */
char *rg_kube_claim_devices(const struct rg_kube_claim *claim);
/** The lease of the claim of that UID for these devices. */
void rg_kube_lease_id(const char *uid, const char *devices, char out[RG_KUBE_LEASE_ID]);

/** The name of a GPU in ResourceSlices: "gpu-1b4e28ba-…" of "GPU-1b4e28ba-…"; "mig-…" of "MIG-…". False: a name cannot be made of that. */
bool rg_kube_device_name(const char *uuid, char out[RG_KUBE_DEVICE_NAME]);
/** And back. False: it is no such name. */
bool rg_kube_device_uuid(const char *name, char out[RG_KUBE_DEVICE_NAME]);

#endif
