/*
 * proximity.h - how near devices of this machine are to each other, from sysfs: PCI functions and NUMA nodes.
 *
 * `root` is what stands before /sys: "" is this machine. PCI functions are named as there: "0000:65:00.0".
 */
#ifndef RG_TRANSPORT_TOPOLOGY_PROXIMITY_H
#define RG_TRANSPORT_TOPOLOGY_PROXIMITY_H

#include <stddef.h>

enum rg_proximity {
    RG_PROXIMITY_SWITCH,  /* behind one switch, or the same device */
    RG_PROXIMITY_BRIDGES, /* behind several, below one root port */
    RG_PROXIMITY_COMPLEX, /* below one host bridge */
    RG_PROXIMITY_NODE,    /* on one NUMA node; or on which is not known */
    RG_PROXIMITY_FAR,     /* on another node */
    RG_PROXIMITY_UNKNOWN, /* one of them is no PCI function that is there */
};

/** How near two PCI functions are. */
enum rg_proximity rg_proximity_pci(const char *root, const char *one, const char *other);
/** In a few words: "behind the same switch". */
const char *rg_proximity_words(enum rg_proximity near);
/** The NUMA node of a PCI function; -1: not known, or there is only one. */
int rg_proximity_node(const char *root, const char *pci);
/** The PCI function behind /sys/class/infiniband/DEVICE; "" if there is none. */
void rg_proximity_pci_of_rdma(const char *root, const char *device, char *out, size_t size);
/**
 * Memory that this thread, and threads that it creates, touch first comes from `node`, as long as there is
 * some. REMOTE_GPU_NUMA=off leaves that to the kernel, a number is the node to take instead. Nothing happens
 * for -1.
 */
void rg_proximity_prefer_node(int node);

#endif
