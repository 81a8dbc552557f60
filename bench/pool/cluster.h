/* cluster.h - the simulated pool: the scheduler's snapshot as time goes by, and what becomes of each request. */
#ifndef BENCH_POOL_CLUSTER_H
#define BENCH_POOL_CLUSTER_H

#include "bench/pool/shape.h"
#include "pool/schedule.h"

#define SECOND 1000000000ull

/** A request, from its submission to its end. */
struct job {
    const struct kind *kind;
    uint64_t submitted, started, run_time; /* nanoseconds; started: RG_POOL_UNKNOWN before */
    uint64_t limit;                        /* that its user said; RG_POOL_UNKNOWN */
    uint32_t user;                         /* of all */
    char id[12];
    struct rg_pool_part parts[8];
    uint32_t lease; /* index while it runs */
};

struct owner {
    char name[24];
    uint64_t held;    /* millionths of GPUs, now */
    uint32_t waiting; /* requests, now */
};

struct cluster {
    struct rg_pool_snapshot snapshot; /* of the arrays below */
    struct rg_pool_server *servers;
    struct rg_pool_device *devices;
    struct rg_pool_lease *leases;
    struct rg_pool_request *requests;
    struct rg_pool_account *accounts; /* users, then projects */
    uint64_t *taken;                  /* of each device */
    uint32_t *job_of_lease, *job_of_request;
    struct job *jobs;
    uint32_t n_jobs, n_users, n_projects;
    struct owner *users, *projects;
    uint64_t charged_at; /* when those who hold GPUs were charged for them last */
};

/** Servers and users of a shape, without requests. Ends the program where there is no memory. */
void cluster_init(struct cluster *cluster, const struct shape *shape, uint32_t n_servers, uint32_t n_jobs,
                  uint32_t users_of_project);
void cluster_fini(struct cluster *cluster);

/** The job's request comes into the pool's queue; `job` counts from 0. */
void cluster_submit(struct cluster *cluster, uint32_t job);
/** Makes leases of all grants; checks that nothing is given away twice. */
void cluster_start(struct cluster *cluster, const struct rg_pool_outcome *outcome, uint64_t now);
void cluster_end(struct cluster *cluster, uint32_t job);
/** Charges all who hold GPUs since the last time. */
void cluster_charge(struct cluster *cluster, uint64_t now, uint64_t half_life);

/** Millionths of GPUs that are held, and that there are. */
uint64_t cluster_held(const struct cluster *cluster);
uint64_t cluster_size(const struct cluster *cluster);
/**
 * What of the GPUs that are free a request of the shape could not have, taken over all kinds by their weight (the measure
 * of "Beware of Fragmentation"); 0 to 1.
 */
double cluster_fragmentation(const struct cluster *cluster, const struct shape *shape);

#endif
