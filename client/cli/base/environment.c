/*
 * environment.c - see environment.h. What was in the variables before stays behind what is put in front; what
 * an outer remote-gpu put there is not put there twice.
 */
#include "client/cli/base/environment.h"

#include "client/core/optimisations.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"
#include "common/base/path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROFILE_FILE "remote-gpu-profile.%p.json" /* the client puts the process's number in */
#define RECORD_FILE  "remote-gpu-trace.%p.rgt"

/* Sets `name` to `front` and what it was before without that, split at any of `separators`. */
static enum rg_status put_in_front(const char *name, const char *front, const char *separators)
{
    const char *before = getenv(name);
    if (!before)
        before = "";
    size_t capacity = strlen(front) + strlen(before) + 2;
    RG_CLEANUP_FREE char *value = malloc(capacity);
    if (!value)
        return RG_ERR_NO_MEMORY;
    size_t used = (size_t)snprintf(value, capacity, "%s", front);
    for (const char *at = before; *at;) {
        size_t size = strcspn(at, separators);
        bool ours = size == strlen(front) && memcmp(at, front, size) == 0;
        if (size && !ours)
            used += (size_t)snprintf(value + used, capacity - used, ":%.*s", (int)size, at);
        at += size;
        at += strspn(at, separators);
    }
    return setenv(name, value, 1) == 0 ? RG_OK : RG_ERR_NO_MEMORY;
}

/*
 * LD_PRELOAD separates by blanks, too. What lies in a folder with a blank in its name is preloaded by its own
 * name alone, which ld.so looks up in LD_LIBRARY_PATH; by its path it is found also where that variable was
 * changed meanwhile.
 */
static enum rg_status preload(const char *library_dir, const char *name, bool required)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", library_dir, name) >= (int)sizeof path)
        return RG_ERR_INVALID;
    if (access(path, R_OK) != 0) {
        if (!required)
            return RG_OK;
        rg_error("the client library %s is not there; the installation is incomplete", path);
        return RG_ERR_NOT_FOUND;
    }
    return put_in_front("LD_PRELOAD", strchr(library_dir, ' ') ? name : path, ": ");
}

static enum rg_status set_number(const char *name, long long number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", number);
    return setenv(name, text, 1) == 0 ? RG_OK : RG_ERR_NO_MEMORY;
}

static enum rg_status set_fraction(const char *name, uint32_t millionths)
{
    char text[24];
    snprintf(text, sizeof text, "%u.%06u", millionths / 1000000, millionths % 1000000);
    return setenv(name, text, 1) == 0 ? RG_OK : RG_ERR_NO_MEMORY;
}

static enum rg_status set_size(const char *name, unsigned long long bytes)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", bytes);
    return setenv(name, text, 1) == 0 ? RG_OK : RG_ERR_NO_MEMORY;
}

/* What client/query/share.c reads. */
static bool set_share(const struct rg_cli_settings *settings)
{
    char idle[32];
    snprintf(idle, sizeof idle, "%lluns", (unsigned long long)settings->idle_timeout_ns);
    (void)unsetenv("REMOTE_GPU_MEMORY");
    (void)unsetenv("REMOTE_GPU_FRACTION");
    return (!settings->memory || set_size("REMOTE_GPU_MEMORY", settings->memory) == RG_OK) &&
           (!settings->fraction || set_fraction("REMOTE_GPU_FRACTION", settings->fraction) == RG_OK) &&
           (!settings->compute || set_fraction("REMOTE_GPU_COMPUTE", settings->compute) == RG_OK) &&
           (!settings->weight || set_number("REMOTE_GPU_WEIGHT", settings->weight) == RG_OK) &&
           (!settings->priority || setenv("REMOTE_GPU_PRIORITY", settings->priority, 1) == 0) &&
           (!settings->exclusive || setenv("REMOTE_GPU_EXCLUSIVE", "yes", 1) == 0) &&
           (!settings->idle_timeout_ns || setenv("REMOTE_GPU_IDLE_TIMEOUT", idle, 1) == 0) &&
           (!settings->project || setenv("REMOTE_GPU_PROJECT", settings->project, 1) == 0);
}

/* A file given relative to where we are now stays that file when the command changes its directory. */
static enum rg_status set_file(const char *name, const char *file)
{
    char path[PATH_MAX];
    if (strcmp(file, "-") == 0 || *file == '/')
        snprintf(path, sizeof path, "%s", file);
    else if (!getcwd(path, sizeof path - strlen(file) - 2))
        return RG_ERR_INVALID;
    else
        sprintf(path + strlen(path), "/%s", file);
    return setenv(name, path, 1) == 0 ? RG_OK : RG_ERR_NO_MEMORY;
}

static bool too_long(const char *option, const char *file)
{
    if (!file || strlen(file) <= PATH_MAX / 2)
        return false;
    rg_error("%s: the file's name is too long", option);
    return true;
}

/*
 * The stand-in for NCCL, unless the program is to use its own. Also where programs look for libraries by name: one that is preloaded by
 * its name alone is found there.
 */
static enum rg_status set_nccl(const struct rg_cli_settings *settings, const char *directory)
{
    char folder[PATH_MAX], file[PATH_MAX];
    if (!rg_optimisations_with_nccl(settings->opt))
        return RG_OK;
    if (snprintf(folder, sizeof folder, "%s/nccl", directory) >= (int)sizeof folder ||
        snprintf(file, sizeof file, "%s/libnccl.so.2", folder) >= (int)sizeof file)
        return RG_ERR_INVALID;
    if (access(file, R_OK) != 0)
        return RG_OK;
    RG_TRY(preload(folder, "libnccl.so.2", true));
    return put_in_front("LD_LIBRARY_PATH", folder, ":;");
}

enum rg_status rg_cli_set_environment(const struct rg_cli_settings *settings, const char *server)
{
    char directory[PATH_MAX];
    enum rg_status status = rg_path_library("", directory, sizeof directory);
    if (status != RG_OK) {
        rg_error("remote-gpu is not in its installed place: lib/remote-gpu is not beside bin");
        return status;
    }
    if (strpbrk(directory, ":;$")) { /* ld.so would take these apart, or put something else in their place */
        rg_error("remote-gpu is installed in '%s', but LD_LIBRARY_PATH cannot name a folder with a colon, a "
                 "semicolon or a dollar sign; move it",
                 directory);
        return RG_ERR_INVALID;
    }
    const char *stats = settings->stats && !*settings->stats ? "-" : settings->stats;
    const char *profile = settings->profile && !*settings->profile ? PROFILE_FILE : settings->profile;
    const char *record = settings->record && !*settings->record ? RECORD_FILE : settings->record;
    if (too_long("--stats", stats) || too_long("--profile", profile) || too_long("--record", record))
        return RG_ERR_INVALID;
    if (profile && record) {
        rg_error("--profile and --record do not go together: each would measure the other; run it twice");
        return RG_ERR_INVALID;
    }
    if ((status = preload(directory, "device-files.so", false)) != RG_OK ||
        (status = set_nccl(settings, directory)) != RG_OK ||
        (status = preload(directory, "libnvidia-ml.so.1", false)) != RG_OK ||
        (status = preload(directory, "libcuda.so.1", true)) != RG_OK ||
        (status = put_in_front("LD_LIBRARY_PATH", directory, ":;")) != RG_OK)
        return status;
    bool set = setenv("REMOTE_GPU_SERVER", server, 1) == 0 &&
               setenv("REMOTE_GPU_TRANSPORT", settings->transport, 1) == 0 &&
               (!settings->rails || setenv("REMOTE_GPU_RAILS", settings->rails, 1) == 0) &&
               (!settings->connections || setenv("REMOTE_GPU_CONNECTIONS", settings->connections, 1) == 0) &&
               setenv("REMOTE_GPU_COMPRESS", settings->compress, 1) == 0 &&
               (!settings->gpus || set_number("REMOTE_GPU_GPUS", settings->gpus) == RG_OK) &&
               (!settings->wait || setenv("REMOTE_GPU_WAIT", settings->wait, 1) == 0) &&
               (!rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, keep_alive)) ||
                set_number("REMOTE_GPU_KEEP_ALIVE", settings->keep_alive) == RG_OK) &&
               (!settings->opt || setenv("REMOTE_GPU_OPT", settings->opt, 1) == 0) &&
               (!settings->log || setenv("REMOTE_GPU_LOG", settings->log, 1) == 0) &&
               (!stats || set_file("REMOTE_GPU_STATS", stats) == RG_OK) &&
               (!profile || set_file("REMOTE_GPU_PROFILE", profile) == RG_OK) &&
               (!record || set_file("REMOTE_GPU_RECORD", record) == RG_OK);
    return set && set_share(settings) ? RG_OK : RG_ERR_NO_MEMORY;
}
