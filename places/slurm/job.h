/*
 * job.h - what follows from a job: its lease's id, whose the lease is, for how long it is kept.
 *
 * The id is made of the cluster's name and the job's number, so that nothing about leases has to be stored or sent: whoever knows the
 * job knows its lease. That the id can be guessed does no harm where users prove who they are, as a lease is its user's alone.
 */
#ifndef RG_PLACES_SLURM_JOB_H
#define RG_PLACES_SLURM_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_SLURM_ID 17 /* bytes, with the 0 */

/** The id of a job's lease: 8 hexadecimal digits of the cluster, 8 of the job. */
void rg_slurm_lease_id(const char *cluster, uint32_t job, char id[RG_SLURM_ID]);
/** Whether a lease is one of this cluster's jobs, and of which. */
bool rg_slurm_lease_job(const char *cluster, const char *id, uint32_t *job);
/**
 * A name by its pattern: %u is the user's name, %a the account, %% a percent sign. False: there is something else behind a percent
 * sign, or it does not fit; `why` is a phrase.
 */
bool rg_slurm_fill(const char *pattern, const char *user, const char *account, char *out, size_t size,
                   char *why, size_t why_size);

#define RG_SLURM_NO_END INT64_MAX

/** Seconds from `now` on that a lease is to be kept for a job that ends at `end` (RG_SLURM_NO_END: at no time). */
uint64_t rg_slurm_seconds(int64_t now, int64_t end, uint64_t grace);
/** Whether a lease that ends at `expires` is to be renewed for such a job. */
bool rg_slurm_is_short(int64_t expires, int64_t now, int64_t end, uint64_t grace);

#endif
