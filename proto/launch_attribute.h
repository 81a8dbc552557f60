/*
 * launch_attribute.h - which attributes of a launch mean the same at both ends of the wire: one list for the client, which
 * refuses the others before anything is sent, and for the worker, which believes nothing.
 */
#ifndef RG_PROTO_LAUNCH_ATTRIBUTE_H
#define RG_PROTO_LAUNCH_ATTRIBUTE_H

#include <cuda.h>

enum rg_launch_attribute_kind {
    RG_LAUNCH_ATTRIBUTE_UNKNOWN, /* no driver takes it */
    RG_LAUNCH_ATTRIBUTE_REFUSED, /* names a graph node */
    RG_LAUNCH_ATTRIBUTE_PLAIN,   /* plain data, or device addresses */
    RG_LAUNCH_ATTRIBUTE_EVENT,   /* names an event, whose handle the worker translates */
};

/** Of any number, also one that no version of CUDA has. */
static inline enum rg_launch_attribute_kind rg_launch_attribute_kind(CUlaunchAttributeID id)
{
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: /* its base is a device address */
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return RG_LAUNCH_ATTRIBUTE_PLAIN;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return RG_LAUNCH_ATTRIBUTE_EVENT;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return RG_LAUNCH_ATTRIBUTE_REFUSED;
    default:
        return RG_LAUNCH_ATTRIBUTE_UNKNOWN;
    }
}

#endif
