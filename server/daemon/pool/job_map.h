/*
 * job_map.h - files that say which jobs have each GPU, for dcgm-exporter's --hpc-job-mapping-dir.
 *
 * That reads, with each scrape, the files of a folder whose names are numbers of GPUs, and labels the GPU's metrics with each of their lines
 * (hpc_job). A line is, of a session by a lease of the pool, what the lease is for (Slurm's number of the job, Kubernetes' claim as
 * NAMESPACE/NAME), else "lease-" and its id; of another session "session-" and its number. GPUs are numbered as the management library
 * does it, by their places on the PCI bus. Each file is replaced as a whole, and removed when nobody has the GPU.
 *
 * What cannot be written is said once, and again when it has been well. Main thread.
 */
#ifndef RG_SERVER_DAEMON_POOL_JOB_MAP_H
#define RG_SERVER_DAEMON_POOL_JOB_MAP_H

#include "server/daemon/pool/pool_process.h"
#include "server/daemon/sessions/sessions.h"

struct rg_job_map {
    int folder; /* -1: none is wanted */
    bool failing;
    uint32_t n_devices;
    uint32_t numbers[RG_DEVICES_MAX]; /* of each device, its file's name */
    uint64_t hashes[RG_DEVICES_MAX];  /* of what the files have; 0: there is none */
};

/** Opens the folder, and removes what a server before has left of these GPUs. `path` NULL: none is wanted. False: it was said what is wrong. */
RG_MUST_CHECK bool rg_job_map_open(struct rg_job_map *map, const char *path, const struct rg_driver *driver);
/** Brings the files up to date. */
void rg_job_map_update(struct rg_job_map *map, const struct rg_sessions *sessions,
                       const struct rg_pool_process *pool);
/** Removes them. */
void rg_job_map_close(struct rg_job_map *map);

#endif
