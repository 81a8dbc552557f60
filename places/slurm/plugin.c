/*
 * plugin.c - the SPANK plugin: options of srun, sbatch and salloc, and the environment of tasks.
 *
 * Where a job is submitted (slurm_spank_init, _init_post_opt): options are checked, and put into the job's control environment, from
 * which the controller takes the job's lease before the job starts (lease/main.c). On the job's nodes, in slurmstepd, once a step
 * (slurm_spank_user_init): the lease is found as the job's user, and the tasks' environment is what `remote-gpu run --lease` gives a
 * command. Nothing is taken or given back here, so a node that dies leaves nothing behind.
 *
 * Fails: a step whose lease is not there does not begin. That is said by each task, which then ends (slurm_spank_task_init): a failure
 * of slurm_spank_user_init would take the node out of service, which is not at fault.
 *
 * One thread. What is kept between the calls is a process's: of srun, sbatch, salloc, or of one step's slurmstepd.
 */
#include "common/base/cleanup.h"
#include "common/base/path.h"
#include "places/slurm/ask.h"
#include "places/slurm/environment.h"
#include "places/slurm/job.h"

#include <limits.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default) /* what Slurm looks for in plugins */
#include <slurm/spank.h>
SPANK_PLUGIN(remote_gpu, 1)
#pragma GCC visibility pop

#define PATIENCE_MS 60000
#define COUNT       "REMOTE_GPU_GPUS=" /* as `remote-gpu run` sets it */

static struct rg_slurm_ask asked;
static char texts[RG_SLURM_OPTIONS][RG_SLURM_FILTERS_SIZE]; /* as they were given */
static char failure[2048];                                  /* why there are no GPUs; "": there are */

/* --- options ------------------------------------------------------------------------------------------------------- */

static int take_option(int option, const char *text, int remote)
{
    char why[512] = "";
    if (option == RG_SLURM_FILTER && remote) /* it comes more than once there, and means nothing */
        return 0;
    if (!rg_slurm_ask_take(&asked, (enum rg_slurm_option)option, text, why, sizeof why)) {
        slurm_error("remote-gpu: --%s: %s", rg_slurm_options[option].name, why);
        return -1;
    }
    snprintf(texts[option], sizeof texts[option], "%s",
             option == RG_SLURM_FILTER ? asked.filters
             : text                    ? text
                                       : "");
    return 0;
}

static int register_options(spank_t spank)
{
    for (int i = 0; i < RG_SLURM_OPTIONS; i++) {
        const struct rg_slurm_option_row *row = &rg_slurm_options[i];
        struct spank_option option = {.name = (char *)row->name,
                                      .arginfo = (char *)row->argument,
                                      .usage = (char *)row->help,
                                      .has_arg = row->argument != NULL,
                                      .val = i,
                                      .cb = take_option};
        if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
            return -1;
    }
    return 0;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
        return register_options(spank);
    default:
        return 0;
    }
}

/*
 * One option as the controller is to have it; what another component of the job had given is taken back. False: it cannot be. Slurm's own
 * copy of the option, which sbatch and salloc would give the next component as if by its environment, goes: steps have another.
 */
static bool pass_on(spank_t spank, int option)
{
    const char *variable = rg_slurm_options[option].variable;
    char copy[128];
    snprintf(copy, sizeof copy, "_SLURM_SPANK_OPTION_remote_gpu_%s", rg_slurm_options[option].name);
    for (char *at = copy; *at; at++)
        *at = *at == '-' ? '_' : *at;
    (void)spank_job_control_unsetenv(spank, copy); /* neither need be there */
    if (asked.gpus && asked.given[option])
        return spank_job_control_setenv(spank, variable, texts[option], 1) == ESPANK_SUCCESS;
    (void)spank_job_control_unsetenv(spank, variable);
    return true;
}

/* Called for each component of a heterogeneous job, behind its options: those of the next one begin anew. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    char why[512] = "";
    (void)argc;
    (void)argv;
    if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR)
        return 0;
    if (!rg_slurm_ask_check(&asked, why, sizeof why)) {
        slurm_error("remote-gpu: %s", why);
        return -1;
    }
    for (int i = 0; i < RG_SLURM_OPTIONS; i++)
        if (!pass_on(spank, i)) {
            slurm_error("remote-gpu: --%s cannot be passed on with the job", rg_slurm_options[i].name);
            return -1;
        }
    memset(&asked, 0, sizeof asked);
    return 0;
}

/* --- tasks ----------------------------------------------------------------------------------------------------------- */

/* What plugstack.conf says of the plugin. */
struct arguments {
    char command[PATH_MAX];
    const char *server; /* NULL: the user's own choice */
};

static bool read_arguments(int argc, char *argv[], struct arguments *out)
{
    *out = (struct arguments){0};
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "server=", 7) == 0)
            out->server = argv[i] + 7;
        else if (strncmp(argv[i], "command=", 8) == 0)
            snprintf(out->command, sizeof out->command, "%s", argv[i] + 8);
        else {
            snprintf(failure, sizeof failure,
                     "plugstack.conf: there is no '%s'; there are server=, command=", argv[i]);
            return false;
        }
    }
    if (out->command[0] || rg_path_program("remote-gpu", out->command, sizeof out->command) == RG_OK)
        return true;
    snprintf(failure, sizeof failure,
             "the plugin is not in its installed place, lib/remote-gpu/slurm; "
             "plugstack.conf may say where the command is, by command=PATH");
    return false;
}

static bool set_variable(void *context, const char *name, const char *value)
{
    spank_t spank = context;
    const spank_err_t status = value ? spank_setenv(spank, name, value, 1) : spank_unsetenv(spank, name);
    return status == ESPANK_SUCCESS;
}

static bool is_set(spank_t spank, const char *name)
{
    char value[8];
    const spank_err_t status = spank_getenv(spank, name, value, sizeof value);
    return status == ESPANK_SUCCESS || status == ESPANK_NOSPACE;
}

/* A heterogeneous job's steps are told the options of all of its components together: what one has, its lease says. */
static bool is_component(spank_t spank)
{
    return is_set(spank, "SLURM_HET_SIZE");
}

/* Whether the step's tasks may have GPUs: by its options, or by what it was started with. */
static bool wants_gpus(spank_t spank)
{
    return asked.gpus || (is_component(spank) && is_set(spank, "REMOTE_GPU_LEASE"));
}

/* Whether that there is no lease is as it should be: a component may ask for no GPUs. Its tasks have not those of another one. */
static bool is_without(spank_t spank, const char *why)
{
    static const char none[] = "[lease-gone]";
    const size_t size = strlen(why);
    if (!is_component(spank) || size < sizeof none - 1 || strcmp(why + size - (sizeof none - 1), none) != 0)
        return false;
    (void)spank_unsetenv(spank, "REMOTE_GPU_LEASE"); /* it may not be there */
    return true;
}

/* How many GPUs the tasks have; 0: that is not said. */
static unsigned count_gpus(const struct rg_slurm_environment *environment)
{
    for (size_t at = 0; at < environment->size; at += strlen(environment->text + at) + 1)
        if (strncmp(environment->text + at, COUNT, sizeof COUNT - 1) == 0)
            return (unsigned)strtoul(environment->text + at + sizeof COUNT - 1, NULL, 10);
    return 0;
}

/* The list without how many GPUs somebody else has; its texts are the list's. NULL: there is no memory. */
static char **without_count(char *const list[])
{
    size_t n = 0, kept = 0;
    while (list[n])
        n++;
    char **out = calloc(n + 1, sizeof *out);
    for (size_t i = 0; out && i < n; i++)
        if (strncmp(list[i], COUNT, sizeof COUNT - 1) != 0)
            out[kept++] = list[i];
    return out;
}

/* Gives the tasks all GPUs of the lease. Sets `failure` if there is one. */
static void set_environment(spank_t spank, const struct arguments *arguments, uint32_t job, const char *id,
                            char **before)
{
    struct rg_slurm_environment environment;
    char why[1024] = "out of memory";
    RG_CLEANUP_FREE char **asking = without_count(before);
    const char *argv[12] = {arguments->command, "run", "--lease", id};
    size_t n = 4;
    if (arguments->server) {
        argv[n++] = "--server";
        argv[n++] = arguments->server;
    }
    argv[n++] = "--";
    argv[n++] = "/usr/bin/env";
    argv[n++] = "-0";
    if (!asking ||
        !rg_slurm_environment_ask(&environment, (char *const *)argv, asking, PATIENCE_MS, why, sizeof why)) {
        if (!is_without(spank, why))
            snprintf(failure, sizeof failure, "job %u has no GPUs: %s", job, why);
        return;
    }
    const unsigned has = count_gpus(&environment);
    if (has && asked.gpus > has && !is_component(spank))
        snprintf(failure, sizeof failure,
                 "the step asks for %u GPUs, and job %u has %u; ask for more when it is submitted",
                 asked.gpus, job, has);
    else if (!rg_slurm_environment_compare(&environment, before, set_variable, spank))
        snprintf(failure, sizeof failure, "the tasks' environment cannot be set");
    rg_slurm_environment_fini(&environment);
}

/* Sets `failure` if there is one. */
static void find_gpus(spank_t spank, const struct arguments *arguments)
{
    char cluster[256] = "", id[RG_SLURM_ID], **before = NULL;
    uint32_t job = 0;
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ENV, &before) != ESPANK_SUCCESS || !before ||
        spank_getenv(spank, "SLURM_CLUSTER_NAME", cluster, sizeof cluster) != ESPANK_SUCCESS) {
        snprintf(failure, sizeof failure,
                 "Slurm does not say which job this is (SLURM_CLUSTER_NAME, SLURM_JOB_ID)");
        return;
    }
    rg_slurm_lease_id(cluster, job, id);
    set_environment(spank, arguments, job, id, before);
}

int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
    struct arguments arguments;
    uint32_t step = 0;
    if (!spank_remote(spank) || !wants_gpus(spank) ||
        spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == SLURM_EXTERN_CONT)
        return 0;
    if (read_arguments(argc, argv, &arguments))
        find_gpus(spank, &arguments);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
    (void)spank;
    (void)argc;
    (void)argv;
    if (!failure[0])
        return 0;
    slurm_spank_log("remote-gpu: %s", failure);
    return -1;
}
