/*
 * lease.h - what slurm-lease does with leases. Each function returns the program's exit status, and has said what went wrong.
 */
#ifndef RG_PLACES_SLURM_LEASE_LEASE_H
#define RG_PLACES_SLURM_LEASE_LEASE_H

#include "places/slurm/lease/settings.h"

/** Before a job starts: takes its lease, if it asks for GPUs. Not 0: the job must not start; its user has been told why. */
int rg_lease_prolog(const struct rg_lease_settings *settings);
/** When it has ended: gives it back. */
int rg_lease_epilog(const struct rg_lease_settings *settings);
/** At any time: gives back the leases of jobs that run no more, and renews those of jobs that were prolonged. */
int rg_lease_sweep(const struct rg_lease_settings *settings);

#endif
