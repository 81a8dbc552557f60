/*
 * manager_process.h - the process that asks the driver's management library (manager/manager.c), on behalf of the frontend: the
 * monitor starts it and ends it, the frontend talks to it.
 *
 * There is one at a time, started when the frontend first needs it, and not more often than each RG_MANAGER_PAUSE_NS. Main
 * thread.
 */
#ifndef RG_SERVER_DAEMON_DRIVER_MANAGER_PROCESS_H
#define RG_SERVER_DAEMON_DRIVER_MANAGER_PROCESS_H

#include "common/base/status.h"
#include "server/daemon/driver/driver.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RG_MANAGER_PAUSE_NS 1000000000ull

struct rg_manager_process {
    struct rg_sandbox_lease *lease;
    pid_t pid;  /* 0: there is none */
    bool hangs; /* it was killed, and is still there */
    uint64_t not_before_ns;
};

/**
 * Starts one for the library beside the driver, in place of one that may be there. *socket: for who asks it; the
 * caller's. RG_ERR_TIMEOUT: not so soon again; anything else was said.
 */
RG_MUST_CHECK enum rg_status rg_manager_start(struct rg_manager_process *manager,
                                              struct rg_sandboxes *sandboxes, const struct rg_driver *driver,
                                              int *socket);
/** Ends it; one that hangs in the kernel stays where it is, and none is started before it has ended. */
void rg_manager_stop(struct rg_manager_process *manager);

#endif
