/*
 * runs.h - which runs of this server have died: their places in the pool are not to last until etcd notices.
 *
 * Each run that is to come into a pool has a file in the state folder, pool/ID by its number in the pool, and a lock on it (flock) for as
 * long as the monitor lives: the kernel gives that back, however the process ends. So whose lock can be had is dead for sure, and whose
 * process lives (an older version that waits for its sessions, another server of the same folder) is left alone. A file says its own inode, so that
 * the files of a copy of the folder speak for nobody; that a run had this server's GPUs is seen in etcd (server/pool/predecessors.c).
 *
 * Without a folder, or where it cannot be written, nothing is known of any run. Main thread.
 */
#ifndef RG_SERVER_DAEMON_POOL_RUNS_H
#define RG_SERVER_DAEMON_POOL_RUNS_H

#include <stdint.h>

struct rg_pool_runs {
    int folder; /* of the files; -1: there is none */
    int file;   /* this run's, locked; -1: likewise */
};

/**
 * Notes this run, by its number in the pool, and finds up to `max` others that have died, the latest ones. `state`: the folder; NULL: there is
 * none. Returns how many were found. What fails was said.
 */
uint32_t rg_runs_begin(struct rg_pool_runs *runs, const char *state, uint64_t id, uint64_t *dead,
                       uint32_t max);
/** Those have left the pool: their files go. */
void rg_runs_forget(const struct rg_pool_runs *runs, const uint64_t *dead, uint32_t n);
/** Lets go of the file, which stays: whether this run has left the pool, the next one sees. */
void rg_runs_end(struct rg_pool_runs *runs);

#endif
