/*
 * gpus.h - what the GPUs' management library says of them: clocks, temperatures, power, utilisation.
 *
 * Each figure is asked for by itself, and what the library does not know is not there: nothing is made up. A library that hangs is left
 * alone for a while, and meanwhile nothing of it is told. Any thread; one at a time asks, others get what there is.
 */
#ifndef RG_SERVER_HTTP_GPUS_H
#define RG_SERVER_HTTP_GPUS_H

#include "server/daemon/driver/driver.h"
#include "server/frontend/management.h"

#include <pthread.h>

/** The figures, in the order in which they are shown. */
enum rg_gpu_figure {
    RG_GPU_SM_CLOCK,
    RG_GPU_MEM_CLOCK,
    RG_GPU_TEMP,
    RG_GPU_MEMORY_TEMP,
    RG_GPU_POWER_USAGE,
    RG_GPU_ENERGY,
    RG_GPU_PCIE_REPLAYS,
    RG_GPU_UTIL,
    RG_GPU_MEM_COPY_UTIL,
    RG_GPU_ENC_UTIL,
    RG_GPU_DEC_UTIL,
    RG_GPU_FB_USED, /* bytes, as are the next two */
    RG_GPU_FB_FREE,
    RG_GPU_FB_RESERVED,
    RG_GPU_FIGURES
};

struct rg_gpu_figures {
    uint32_t known; /* a bit each */
    double values[RG_GPU_FIGURES];
};

#define RG_GPUS_FRESH_NS 1000000000ull
#define RG_GPUS_PAUSE_NS 60000000000ull /* after the library has hung */

struct rg_gpus {
    struct rg_management *management;
    pthread_mutex_t asking; /* before `lock` */
    pthread_mutex_t lock;   /* of all below */
    uint64_t asked_ns, not_before_ns;
    struct rg_gpu_figures figures[RG_DEVICES_MAX];
};

/** Asks nothing yet. `management` must outlive it. */
void rg_gpus_init(struct rg_gpus *gpus, struct rg_management *management);
/** The figures of the driver's devices, no older than RG_GPUS_FRESH_NS unless somebody is asking for them just now. */
void rg_gpus_look(struct rg_gpus *gpus, const struct rg_driver *driver,
                  struct rg_gpu_figures out[RG_DEVICES_MAX]);

#endif
