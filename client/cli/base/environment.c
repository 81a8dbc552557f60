/*
 * environment.c - see environment.h. What was in the variables before stays behind what is put in front; what
 * an outer remote-gpu put there is not put there twice.
 */
#include "client/cli/base/environment.h"

#include "client/cli/base/whole_path.h"
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
#define DEVICE_FILES "device-files.so"            /* stands for no library of the driver's */
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
 * Puts the library's folder in front of LD_LIBRARY_PATH and, unless it is to be found there (`preload` false), the library itself in front
 * of LD_PRELOAD. That separates by blanks, too: what lies in a folder with a blank in its name is preloaded by its own name alone, which
 * ld.so looks up in LD_LIBRARY_PATH; by its path it is found also where that variable was changed meanwhile.
 */
static enum rg_status lead_to(const char *library_dir, const char *name, bool preload)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", library_dir, name) >= (int)sizeof path)
        return RG_ERR_INVALID;
    char *base = strrchr(path, '/');
    if (preload)
        RG_TRY(put_in_front("LD_PRELOAD", strchr(library_dir, ' ') ? base + 1 : path, ": "));
    *base = 0;
    return put_in_front("LD_LIBRARY_PATH", path, ":;");
}

/*
 * For programs that are built with sanitizers; what the user wants of those comes behind and counts. The address sanitizer refuses
 * to start where another library comes before its own, as preloaded ones do; ours stand before none of its functions. The
 * thread sanitizer takes it for a race that the client, in which it does not see what is ordered how, reads page-locked
 * memory that another thread of the program may be writing for a later kernel.
 */
static enum rg_status suit_sanitizers(void)
{
    RG_TRY(put_in_front("ASAN_OPTIONS", "verify_asan_link_order=0", ":"));
    return put_in_front("TSAN_OPTIONS", "ignore_noninstrumented_modules=1", ":");
}

enum rg_status rg_cli_find_preloads(const struct rg_cli_settings *settings, const char *library_dir,
                                    const char *names[RG_CLI_PRELOADS], unsigned *n)
{
    const struct {
        const char *name;
        bool wanted, required;
    } all[RG_CLI_PRELOADS] = {
        {"libcuda.so.1", true, true},
        {"libnvidia-ml.so.1", true, false},
        {"nccl/libnccl.so.2", rg_optimisations_with_nccl(settings->opt), false}, /* else the program's own */
        {DEVICE_FILES, true, false},
    };
    *n = 0;
    for (unsigned i = 0; i < RG_CLI_PRELOADS; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", library_dir, all[i].name) >= (int)sizeof path)
            return RG_ERR_INVALID;
        if (all[i].wanted && access(path, R_OK) == 0) {
            names[(*n)++] = all[i].name;
        } else if (all[i].required) {
            rg_error("the client library %s is not there; the installation is incomplete", path);
            return RG_ERR_NOT_FOUND;
        }
    }
    return RG_OK;
}

/* --- what settings are to the client library ---------------------------------------------------------------- */

static bool put_number(const struct rg_cli_sink *sink, const char *name, long long number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", number);
    return sink->set(sink->context, name, text);
}

static bool put_fraction(const struct rg_cli_sink *sink, const char *name, uint32_t millionths)
{
    char text[24];
    snprintf(text, sizeof text, "%u.%06u", millionths / 1000000, millionths % 1000000);
    return sink->set(sink->context, name, text);
}

static bool put_text(const struct rg_cli_sink *sink, const char *name, const char *text)
{
    return !text || sink->set(sink->context, name, text);
}

/* What client/query/share.c reads. */
static bool put_share(const struct rg_cli_settings *settings, const struct rg_cli_sink *sink)
{
    char idle[32], memory[24];
    snprintf(idle, sizeof idle, "%lluns", (unsigned long long)settings->idle_timeout_ns);
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)settings->memory);
    return put_text(sink, "REMOTE_GPU_MEMORY", settings->memory ? memory : NULL) &&
           (!settings->fraction || put_fraction(sink, "REMOTE_GPU_FRACTION", settings->fraction)) &&
           (!settings->compute || put_fraction(sink, "REMOTE_GPU_COMPUTE", settings->compute)) &&
           (!settings->weight || put_number(sink, "REMOTE_GPU_WEIGHT", settings->weight)) &&
           put_text(sink, "REMOTE_GPU_PRIORITY", settings->priority) &&
           put_text(sink, "REMOTE_GPU_EXCLUSIVE", settings->exclusive ? "yes" : NULL) &&
           put_text(sink, "REMOTE_GPU_IDLE_TIMEOUT", settings->idle_timeout_ns ? idle : NULL) &&
           put_text(sink, "REMOTE_GPU_PROJECT", settings->project);
}

bool rg_cli_put_settings(const struct rg_cli_settings *settings, const struct rg_cli_sink *sink)
{
    const bool keep_alive =
        rg_options_is_set(&settings->options, offsetof(struct rg_cli_settings, keep_alive));
    return put_text(sink, "REMOTE_GPU_TRANSPORT", settings->transport) &&
           put_text(sink, "REMOTE_GPU_RAILS", settings->rails) &&
           put_text(sink, "REMOTE_GPU_CONNECTIONS", settings->connections) &&
           put_text(sink, "REMOTE_GPU_COMPRESS", settings->compress) &&
           (!settings->gpus || put_number(sink, "REMOTE_GPU_GPUS", settings->gpus)) &&
           put_text(sink, "REMOTE_GPU_WAIT", settings->wait) &&
           (!keep_alive || put_number(sink, "REMOTE_GPU_KEEP_ALIVE", settings->keep_alive)) &&
           put_text(sink, "REMOTE_GPU_OPT", settings->opt) &&
           put_text(sink, "REMOTE_GPU_LOG", settings->log) && put_share(settings, sink);
}

/* --- of this process ---------------------------------------------------------------------------------------- */

static bool set_here(void *context, const char *name, const char *value)
{
    (void)context;
    return setenv(name, value, 1) == 0;
}

/* `wanted`, a file's name, as the variable; NULL: nothing. What is wrong is said. */
static enum rg_status set_file(const char *variable, const char *option, const char *wanted)
{
    char path[PATH_MAX];
    const bool is_stderr = wanted && strcmp(wanted, "-") == 0;
    if (wanted && !is_stderr && !rg_cli_whole_path(option, wanted, path))
        return RG_ERR_INVALID;
    if (!wanted || setenv(variable, is_stderr ? wanted : path, 1) == 0)
        return RG_OK;
    rg_error("out of memory");
    return RG_ERR_NO_MEMORY;
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
    if (profile && record) {
        rg_error("--profile and --record do not go together: each would measure the other; run it twice");
        return RG_ERR_INVALID;
    }
    const char *preloads[RG_CLI_PRELOADS];
    unsigned n_preloads;
    RG_TRY(rg_cli_find_preloads(settings, directory, preloads, &n_preloads));
    while (n_preloads) {
        const char *name = preloads[--n_preloads];
        RG_TRY(lead_to(directory, name, !settings->no_preload || strcmp(name, DEVICE_FILES) == 0));
    }
    RG_TRY(suit_sanitizers());
    const struct rg_cli_sink here = {.set = set_here};
    (void)unsetenv("REMOTE_GPU_MEMORY"); /* one of the two may have given way to the other */
    (void)unsetenv("REMOTE_GPU_FRACTION");
    RG_TRY(set_file("REMOTE_GPU_STATS", "--stats", stats));
    RG_TRY(set_file("REMOTE_GPU_PROFILE", "--profile", profile));
    RG_TRY(set_file("REMOTE_GPU_RECORD", "--record", record));
    if (setenv("REMOTE_GPU_SERVER", server, 1) == 0 && rg_cli_put_settings(settings, &here))
        return RG_OK;
    rg_error("out of memory");
    return RG_ERR_NO_MEMORY;
}

/* Sets a variable to the path of a part of the software device, unless the user has set it. */
static enum rg_status offer(const char *variable, const char *part)
{
    char path[PATH_MAX];
    if (rg_path_library(part, path, sizeof path) != RG_OK || access(path, X_OK) != 0)
        return RG_OK; /* installed without the software device */
    if (setenv(variable, path, 0) == 0)
        return RG_OK;
    rg_error("out of memory");
    return RG_ERR_NO_MEMORY;
}

enum rg_status rg_cli_offer_ptxas(void)
{
    RG_TRY(offer("TRITON_PTXAS_PATH", "soft/ptxas"));
    RG_TRY(offer("TRITON_PTXAS_BLACKWELL_PATH", "soft/ptxas"));
    return offer("CUDA_ROOT", "soft/toolkit"); /* where JAX has XLA look for bin/ptxas */
}
