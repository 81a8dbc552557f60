/*
 * devices.h - what the pool is to a kubelet: its GPUs, by their UUIDs, and which of them are best given to one container. Pure.
 */
#ifndef RG_PLACES_KUBERNETES_PLUGIN_DEVICES_H
#define RG_PLACES_KUBERNETES_PLUGIN_DEVICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/**
 * {"GPU-…": {"server": address, "healthy": bool}} of the pool's picture (rg_kube_pool_look). Healthy: its server takes work, and
 * nobody has a part of it but by a lease that is a key of `ours`. NULL: no memory.
 */
json_t *rg_kube_plugin_devices(const json_t *picture, const json_t *ours);

/** UUIDs, of which some must be chosen. */
struct rg_kube_choice {
    char *const *available; /* n of them, those that must be chosen among them */
    size_t n;
    char *const *must;
    size_t n_must;
    size_t wanted;
};

/**
 * Chooses `wanted` of them into `out`, which has room for that many: of as few servers as possible, and of a server that then has
 * little left. Returns how many there are, which is fewer if there are not enough.
 */
size_t rg_kube_plugin_choose(const json_t *devices, const struct rg_kube_choice *choice, const char **out);

#endif
