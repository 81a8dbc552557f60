/* parts.h - GPUs that MIG has divided, as NVML tells of them; for the probe, on its one thread. */
#ifndef RG_SERVER_DAEMON_PROBE_PARTS_H
#define RG_SERVER_DAEMON_PROBE_PARTS_H

#include "server/daemon/driver/driver.h"

/**
 * Whether a GPU is divided. Then *n are all that a session can get, which no one process's CUDA shows: whole GPUs and instances of the
 * divided ones. `nvml`: the library, initialised; NULL: there is none, and nothing is known.
 */
bool rg_probe_parts(void *nvml, struct rg_probe_part out[RG_DEVICES_MAX], uint32_t *n);

#endif
