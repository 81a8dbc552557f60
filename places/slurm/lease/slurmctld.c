/* slurmctld.c - see slurmctld.h. */
#include "places/slurm/lease/slurmctld.h"

#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "places/slurm/job.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rg_slurmctld_init(void)
{
    slurm_init(NULL);
}

void rg_slurmctld_fini(void)
{
    slurm_fini();
}

static enum rg_slurmctld_state state_of(uint32_t state)
{
    const uint32_t base = state & JOB_STATE_BASE;
    if (base == JOB_RUNNING || base == JOB_SUSPENDED)
        return RG_SLURMCTLD_RUNS;
    return state & JOB_COMPLETING ? RG_SLURMCTLD_ENDS : RG_SLURMCTLD_NO_JOB;
}

struct rg_slurmctld_job rg_slurmctld_look(uint32_t job)
{
    struct rg_slurmctld_job out = {RG_SLURMCTLD_NO_JOB, RG_SLURM_NO_END, RG_SLURM_NO_END};
    job_info_msg_t *answer = NULL;
    if (slurm_load_job(&answer, job, SHOW_ALL) != SLURM_SUCCESS) {
        if (slurm_get_errno() != ESLURM_INVALID_JOB_ID)
            out.state = RG_SLURMCTLD_UNKNOWN;
        return out;
    }
    for (uint32_t i = 0; i < answer->record_count; i++) { /* asked for an array, it answers with all of it */
        const job_info_t *one = &answer->job_array[i];
        if (one->job_id != job)
            continue;
        out.state = state_of(one->job_state);
        if (one->time_limit != INFINITE && one->time_limit != NO_VAL) {
            out.limit_s = (int64_t)one->time_limit * 60;
            out.end = (int64_t)one->end_time;
        }
    }
    slurm_free_job_info_msg(answer);
    return out;
}

void rg_slurmctld_explain(uint32_t job, const char *why, bool hold)
{
    RG_CLEANUP_FREE char *text = NULL;
    job_desc_msg_t change;
    if (asprintf(&text, "remote-gpu: %s", why) < 0) {
        text = NULL;
        return;
    }
    slurm_init_job_desc_msg(&change);
    change.job_id = job;
    change.admin_comment = text;
    if (slurm_update_job(&change) != SLURM_SUCCESS)
        rg_warn("job %u: its comment cannot be set: %s", job, slurm_strerror(slurm_get_errno()));
    (void)slurm_notify_job(job, text); /* nobody may wait for it */
    if (hold)
        (void)slurm_requeue(job,
                            JOB_REQUEUE_HOLD); /* where that cannot be, the job ends by our exit status */
}
