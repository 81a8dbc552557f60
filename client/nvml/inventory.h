/*
 * inventory.h - the servers' devices as NVML shows them: one list of those of all servers, chosen where the
 * user sees less.
 *
 * Two locks, in this order: `question` is held while a server is asked, `lock` only while the state is read
 * or changed, so a server that does not answer holds up nobody who asks for a name.
 */
#ifndef RG_CLIENT_NVML_INVENTORY_H
#define RG_CLIENT_NVML_INVENTORY_H

#include "client/nvml/nvml.h"
#include "common/base/limits.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_NVML_TIMEOUT_NS 10000000000ull /* for one question */

extern struct rg_nvml_state {
    pthread_mutex_t question, lock;
    unsigned users; /* nvmlInit less nvmlShutdown */
    unsigned n_servers;
    struct {
        char name[256];
        struct rg_driver_info driver;
        bool lost; /* the newest question failed */
    } servers[RG_SERVERS_MAX];
    unsigned n_devices;
    struct rg_device_info devices[RG_DEVICES_MAX];
    unsigned server_of[RG_DEVICES_MAX];
    bool chosen;               /* they are not all that the servers have */
    bool gone[RG_DEVICES_MAX]; /* not in the newest inventory */
    struct {
        unsigned pid, server;
        uint32_t devices[RG_DEVICES_MAX]; /* ordinals */
        uint32_t n_devices;
        struct rg_share_info shares[RG_DEVICES_MAX];
        bool knows_shares;
    } processes[RG_NVML_PROCESSES_MAX]; /* of this machine, with their sessions */
    unsigned n_processes;
    bool asked; /* for what changes, since nvmlInit */
    uint64_t asked_ns;
    uint64_t own_calls; /* records of this process's sessions when it last asked; under question */
} rg_nvml_state;

/**
 * Asks the servers that were chosen before, or those the user names; with one session its server is the one
 * whose devices the application uses. DRIVER_NOT_LOADED: one will not do, which is said the first time. The
 * question lock is held.
 */
enum rg_nvml_return rg_nvml_inventory_ask(void);

#endif
