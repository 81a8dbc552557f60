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
    for (int i = 0; i < RG_SLURM_OPTIONS && asked.gpus; i++)
        if (asked.given[i] &&
            spank_job_control_setenv(spank, rg_slurm_options[i].variable, texts[i], 1) != ESPANK_SUCCESS) {
            slurm_error("remote-gpu: --%s cannot be passed on with the job", rg_slurm_options[i].name);
            return -1;
        }
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

/* Sets `failure` if there is one. */
static void find_gpus(spank_t spank, const struct arguments *arguments)
{
    struct rg_slurm_environment environment;
    char cluster[256] = "", id[RG_SLURM_ID], **before = NULL, why[1024] = "";
    uint32_t job = 0;
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ENV, &before) != ESPANK_SUCCESS || !before ||
        spank_getenv(spank, "SLURM_CLUSTER_NAME", cluster, sizeof cluster) != ESPANK_SUCCESS) {
        snprintf(failure, sizeof failure,
                 "Slurm does not say which job this is (SLURM_CLUSTER_NAME, SLURM_JOB_ID)");
        return;
    }
    rg_slurm_lease_id(cluster, job, id);
    const char *argv[12] = {arguments->command, "run", "--lease", id};
    size_t n = 4;
    if (arguments->server) {
        argv[n++] = "--server";
        argv[n++] = arguments->server;
    }
    argv[n++] = "--";
    argv[n++] = "/usr/bin/env";
    argv[n++] = "-0";
    if (!rg_slurm_environment_ask(&environment, (char *const *)argv, before, PATIENCE_MS, why, sizeof why)) {
        snprintf(failure, sizeof failure, "job %u has no GPUs: %s", job, why);
        return;
    }
    if (!rg_slurm_environment_compare(&environment, before, set_variable, spank))
        snprintf(failure, sizeof failure, "the tasks' environment cannot be set");
    rg_slurm_environment_fini(&environment);
}

int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
    struct arguments arguments;
    uint32_t step = 0;
    if (!spank_remote(spank) || !asked.gpus || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
        step == SLURM_EXTERN_CONT)
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
