/*
 * slurmctld.h - what is asked of Slurm's controller and told to it, by libslurm. One thread.
 */
#ifndef RG_PLACES_SLURM_LEASE_SLURMCTLD_H
#define RG_PLACES_SLURM_LEASE_SLURMCTLD_H

#include <stdbool.h>
#include <stdint.h>

enum rg_slurmctld_state {
    RG_SLURMCTLD_UNKNOWN, /* it does not answer */
    RG_SLURMCTLD_NO_JOB,  /* it knows no such job, or one that has ended or waits again */
    RG_SLURMCTLD_ENDS,    /* EpilogSlurmctld is still to come */
    RG_SLURMCTLD_RUNS,
};

struct rg_slurmctld_job {
    enum rg_slurmctld_state state;
    int64_t limit_s; /* RG_SLURM_NO_END: none */
    int64_t end;     /* seconds since 1970, likewise */
};

/** libslurm reads slurm.conf, and forgets it: before and after the other functions. */
void rg_slurmctld_init(void);
void rg_slurmctld_fini(void);
/** Asks slurmctld, once. RG_SLURMCTLD_UNKNOWN: it could not be asked, which says nothing of the job. */
struct rg_slurmctld_job rg_slurmctld_look(uint32_t job);
/**
 * Tells the job's user why it does not start: who waits for it sees that, and `scontrol show job` shows it as AdminComment. `hold`: a
 * batch job is to wait until somebody releases it, since starting it again would fail again.
 */
void rg_slurmctld_explain(uint32_t job, const char *why, bool hold);

#endif
