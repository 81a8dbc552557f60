/*
 * driver.h - which CUDA driver the sessions of this server run on, and what devices it has.
 *
 * The daemon never loads a driver: a process that has may not be forked or trusted with other people's
 * sessions any more. The program lib/remote-gpu/probe loads it, looks, and reports (struct rg_probe_report).
 *
 * Happy path: rg_driver_find once, at the start; later rg_probe_begin now and then, for free memory as it is
 * then, while the monitor goes on with other things. Main thread.
 */
#ifndef RG_SERVER_DAEMON_DRIVER_DRIVER_H
#define RG_SERVER_DAEMON_DRIVER_DRIVER_H

#include "proto/control/control.h"
#include "server/sandbox/identities.h"

#include <sys/types.h>

struct rg_driver {
    struct rg_driver_info info;
    uint32_t n_devices;
    struct rg_device_info devices[RG_DEVICES_MAX];
    struct rg_machine_info machine; /* without its clock */
};

/** What sessions can get of a machine on which MIG has divided a GPU: an instance, or a GPU that is whole. */
struct rg_probe_part {
    uint8_t uuid[16], whole[16]; /* of an instance its GPU's as well */
    bool mig;                    /* it is an instance, with these numbers */
    uint32_t gpu_instance, compute_instance;
    uint64_t memory_total, memory_free;
    bool memory_free_known;
};

/** What the probe writes: one of these, whole. It ran a driver's code: nothing in it is believed that is not checked. */
struct rg_probe_report {
    uint32_t size; /* of this */
    bool works;
    char why[RG_CONTROL_REASON]; /* where it does not */
    struct rg_driver driver;     /* as one process sees it */
    bool divided;                /* by MIG: what there is are these */
    uint32_t n_parts;
    struct rg_probe_part parts[RG_DEVICES_MAX];
};

/** A probe that runs. Starts zeroed. */
struct rg_driver_probe {
    pid_t pid; /* 0: none */
    int fd;
    uint64_t deadline_ns;
    size_t used;
    struct rg_probe_report *report;
    struct rg_sandbox_lease *lease;
    bool hangs; /* it is over, but its process cannot be ended: pid and lease stay until it has */
};

/**
 * Finds a driver that works. `wanted`: "auto", "soft" or a path. Says at info which one it is, and for "auto"
 * at warn why it is not NVIDIA's. RG_ERR_NOT_FOUND or RG_ERR_UNSUPPORTED: there is none; `why` says why.
 */
RG_MUST_CHECK enum rg_status rg_driver_find(const char *wanted, struct rg_sandboxes *sandboxes,
                                            struct rg_driver *out, char *why, size_t why_size);

/**
 * Whether it is the software device of this installation, which sandboxes know the needs of. A copy from elsewhere is of kind
 * "soft" as well, so its kernels are confined, but its process is as that of any other driver.
 */
bool rg_driver_is_own(const struct rg_driver *driver);

/** Starts a look at a driver that was found. False: it was said why not. */
RG_MUST_CHECK bool rg_probe_begin(struct rg_driver_probe *probe, struct rg_sandboxes *sandboxes,
                                  const struct rg_driver *driver);
/** Whether one is under way. */
bool rg_probe_runs(const struct rg_driver_probe *probe);
/**
 * After probe->fd polls readable, or its deadline: RG_ERR_TIMEOUT if it goes on. Otherwise it is over: RG_OK with the devices'
 * free memory and the machine's state taken over into `driver`; anything else: it was said why not.
 */
RG_MUST_CHECK enum rg_status rg_probe_continue(struct rg_driver_probe *probe, struct rg_driver *driver);
/** Ends one that runs. */
void rg_probe_cancel(struct rg_driver_probe *probe);

#endif
