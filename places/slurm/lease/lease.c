/*
 * lease.c - see lease.h.
 *
 * slurmctld starts a job when the prolog has ended well, and starts a requeued job again when its epilog has ended, so a job's lease
 * is dealt with by one process at a time. Who is killed in between (slurmctld kills the prolog of a job that is cancelled) may have
 * taken a lease that nobody has heard of: the epilog gives back whatever lease there is. What the epilog could not give back, since
 * the pool could not be reached or slurmctld was down, sweep finds, or the lease's own end.
 */
#include "places/slurm/lease/lease.h"

#include "client/pool/pool.h"
#include "common/base/clock.h"
#include "common/base/json_value.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "places/slurm/ask.h"
#include "places/slurm/job.h"
#include "places/slurm/lease/slurmctld.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND  1000000000ull
#define PAUSE_S 1

/* --- the job --------------------------------------------------------------------------------------------------------- */

struct job {
    uint32_t number;
    char id[RG_SLURM_ID];
    struct rg_slurm_ask ask;
    char user[256], project[256];
};

static const char *get(const char *name)
{
    const char *text = getenv(name);
    return text && strcmp(text, "(null)") != 0 ? text : "";
}

static bool find_job(const struct rg_lease_settings *settings, struct job *job)
{
    const char *number = get("SLURM_JOB_ID");
    *job = (struct job){.number = (uint32_t)strtoul(number, NULL, 10)};
    if (job->number && settings->cluster) {
        rg_slurm_lease_id(settings->cluster, job->number, job->id);
        return true;
    }
    rg_error("SLURM_JOB_ID and SLURM_CLUSTER_NAME are not set: this is for PrologSlurmctld and "
             "EpilogSlurmctld");
    return false;
}

/* --- asking the pool --------------------------------------------------------------------------------------------------- */

/* Whether another server, or the same a moment later, may answer differently. */
static bool is_passing(const struct rg_pool_failure *failure)
{
    return strcmp(failure->code, "pool-unreachable") == 0 || strcmp(failure->code, "lease-busy") == 0;
}

/* Whether asking again later would be refused again: what is wrong is the question, not the moment or what the user has used. */
static bool is_hopeless(const struct rg_pool_failure *failure)
{
    return strncmp(failure->code, "lease-", 6) == 0 && !is_passing(failure) &&
           strcmp(failure->code, "lease-waited") != 0 && strcmp(failure->code, "lease-not-free") != 0;
}

static void pause_for(unsigned seconds)
{
    const struct timespec time = {.tv_sec = seconds};
    nanosleep(&time, NULL);
}

/* Asks each server until one answers, for as long as a job waits. */
static bool request(const struct rg_lease_settings *settings, struct rg_pool_wish *wish,
                    struct rg_pool_lease_of *lease, struct rg_pool_failure *failure)
{
    const uint64_t end = rg_now_ns() + settings->wait_ns;
    for (size_t i = 0;; i++) {
        const uint64_t now = rg_now_ns();
        wish->wait_seconds = end > now ? (end - now) / SECOND : 0;
        if (rg_pool_request(settings->servers.items[i % settings->servers.n], wish, lease, failure))
            return true;
        if (!is_passing(failure) || (rg_now_ns() >= end && i + 1 >= settings->servers.n))
            return false;
        if (i + 1 >= settings->servers.n)
            pause_for(PAUSE_S);
    }
}

/* Gives a lease back; that there is none is well. */
static bool release(const struct rg_lease_settings *settings, const char *id, struct rg_pool_failure *failure)
{
    for (size_t i = 0; i < settings->servers.n; i++) {
        if (rg_pool_release(settings->servers.items[i], id, settings->timeout_ns, failure) ||
            strcmp(failure->code, "lease-gone") == 0)
            return true;
        if (!is_passing(failure))
            break;
    }
    return false;
}

static bool renew(const struct rg_lease_settings *settings, const char *id, uint64_t seconds,
                  struct rg_pool_failure *failure)
{
    int64_t expires;
    for (size_t i = 0; i < settings->servers.n; i++)
        if (rg_pool_renew(settings->servers.items[i], id, seconds, settings->timeout_ns, &expires, failure))
            return true;
        else if (!is_passing(failure))
            break;
    return false;
}

/* --- prolog ----------------------------------------------------------------------------------------------------------- */

/* The conditions, cut at their commas; the texts stay in `filters`. */
static bool split_filters(char *filters, const char *out[RG_POOL_FILTERS_MAX], size_t *n)
{
    char *rest = NULL;
    *n = 0;
    for (char *one = strtok_r(filters, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (*n == RG_POOL_FILTERS_MAX)
            return false;
        out[(*n)++] = one;
    }
    return true;
}

/* The lease for a job, kept for as long as the job may take. False: `failure`. */
static bool take_lease(const struct rg_lease_settings *settings, struct job *job, int64_t limit_s,
                       struct rg_pool_failure *failure)
{
    const char *filters[RG_POOL_FILTERS_MAX];
    struct rg_pool_lease_of lease;
    const int64_t now = (int64_t)time(NULL);
    const int64_t end =
        limit_s == RG_SLURM_NO_END
            ? limit_s
            : now + limit_s + (int64_t)(settings->wait_ns / SECOND); /* the limit begins behind it */
    const uint64_t grace = settings->grace_ns / SECOND;
    char number[16];
    snprintf(number, sizeof number, "%u", job->number);
    struct rg_pool_wish wish = {.gpus = job->ask.gpus,
                                .memory = job->ask.memory,
                                .fraction = job->ask.fraction,
                                .filters = filters,
                                .spread = job->ask.spread,
                                .project = job->project,
                                .user = job->user,
                                .job = number,
                                .id = job->id,
                                .kept = true,
                                .seconds = rg_slurm_seconds(now, end, grace),
                                .waits = settings->wait_ns > 0,
                                .timeout_ns = settings->timeout_ns};
    if (!split_filters(job->ask.filters, filters, &wish.n_filters)) {
        *failure = (struct rg_pool_failure){.status = RG_ERR_INVALID};
        snprintf(failure->why, sizeof failure->why, "there may be %u conditions at most, and there are more",
                 RG_POOL_FILTERS_MAX);
        return false;
    }
    bool good = request(settings, &wish, &lease, failure);
    if (!good && strcmp(failure->code, "lease-taken") == 0 && release(settings, job->id, failure))
        good = request(settings, &wish, &lease, failure); /* it was of a job of the same number, long ago */
    if (!good)
        return false;
    if (rg_slurm_is_short(lease.expires, now, end, grace))
        good = renew(settings, job->id, wish.seconds, failure);
    rg_pool_lease_fini(&lease);
    return good;
}

int rg_lease_prolog(const struct rg_lease_settings *settings)
{
    struct job job;
    struct rg_pool_failure failure = {.status = RG_OK};
    char why[512] = "";
    if (!find_job(settings, &job))
        return 1;
    if (!rg_slurm_ask_read(&job.ask, why, sizeof why) ||
        !rg_slurm_fill(settings->user, get("SLURM_JOB_USER"), get("SLURM_JOB_ACCOUNT"), job.user,
                       sizeof job.user, why, sizeof why) ||
        !rg_slurm_fill(settings->project ? settings->project : "", get("SLURM_JOB_USER"),
                       get("SLURM_JOB_ACCOUNT"), job.project, sizeof job.project, why, sizeof why)) {
        rg_error("job %u: %s", job.number, why);
        rg_slurmctld_explain(job.number, why, true);
        return 1;
    }
    if (!job.ask.gpus)
        return 0;
    const struct rg_slurmctld_job known = rg_slurmctld_look(job.number);
    if (take_lease(settings, &job, known.limit_s, &failure))
        return 0;
    rg_error("job %u of %s: %s", job.number, job.user, failure.why);
    rg_slurmctld_explain(job.number, failure.why, is_hopeless(&failure));
    return 1;
}

/* --- epilog ----------------------------------------------------------------------------------------------------------- */

int rg_lease_epilog(const struct rg_lease_settings *settings)
{
    struct job job;
    struct rg_pool_failure failure;
    char why[512] = "";
    if (!find_job(settings, &job))
        return 1;
    if (rg_slurm_ask_read(&job.ask, why, sizeof why) && !job.ask.gpus)
        return 0;
    if (release(settings, job.id, &failure))
        return 0;
    rg_error("the lease %s of job %u is not given back, which slurm-lease sweep will try again: %s", job.id,
             job.number, failure.why);
    return 1;
}

/* --- sweep ------------------------------------------------------------------------------------------------------------ */

/* One lease of this cluster. False: it was said what could not be done. */
static bool sweep_lease(const struct rg_lease_settings *settings, const json_t *lease, uint32_t number)
{
    const char *id = rg_json_get_text(lease, "lease");
    const struct rg_slurmctld_job job = rg_slurmctld_look(number);
    const int64_t now = (int64_t)time(NULL);
    const uint64_t grace = settings->grace_ns / SECOND;
    struct rg_pool_failure failure = {.status = RG_OK};
    bool good = true;
    switch (job.state) {
    case RG_SLURMCTLD_UNKNOWN:
        rg_error("slurmctld does not say whether job %u runs; its lease %s stays", number, id);
        return false;
    case RG_SLURMCTLD_ENDS:
        break;
    case RG_SLURMCTLD_NO_JOB:
        good = release(settings, id, &failure);
        if (good)
            printf("lease %s of job %u, which does not run, was given back\n", id, number);
        break;
    case RG_SLURMCTLD_RUNS:
        if (!rg_slurm_is_short(json_integer_value(json_object_get(lease, "expires")), now, job.end, grace))
            break;
        good = renew(settings, id, rg_slurm_seconds(now, job.end, grace), &failure);
        if (good)
            printf("lease %s of job %u, which may run for longer, was renewed\n", id, number);
        break;
    }
    if (!good)
        rg_error("lease %s of job %u: %s", id, number, failure.why);
    return good;
}

int rg_lease_sweep(const struct rg_lease_settings *settings)
{
    struct rg_pool_failure failure;
    json_t *pool = NULL, *lease;
    size_t i;
    bool good = true;
    if (!settings->cluster) {
        rg_error("sweep must know ClusterName: put a line 'cluster = NAME' into %s", settings->config);
        return 1;
    }
    for (size_t at = 0; !pool && at < settings->servers.n; at++)
        pool = rg_pool_list(settings->servers.items[at], NULL, settings->timeout_ns, &failure);
    if (!pool) {
        rg_error("%s", failure.why);
        return 1;
    }
    json_array_foreach(json_object_get(pool, "leases"), i, lease)
    {
        uint32_t number;
        if (rg_slurm_lease_job(settings->cluster, rg_json_get_text(lease, "lease"), &number))
            good = sweep_lease(settings, lease, number) && good;
    }
    json_decref(pool);
    return good ? 0 : 1;
}
