/*
 * find.c - what of a sandbox this machine can do, by trying each measure in a child that then ends.
 */
#include "server/sandbox/internal.h"

#include "common/base/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* What would help where a measure is missing. */
static const struct {
    uint32_t measure;
    const char *help;
} advice[] = {
    {RG_SANDBOX_OWN_USER,
     "start the server as root, with the range --worker-uids free and its files readable for all"},
    {RG_SANDBOX_MOUNTS, "start the server as root, or allow users to make user namespaces"},
    {RG_SANDBOX_PROCESSES, "start the server as root on Linux 5.8 or newer"},
    {RG_SANDBOX_IPC, "start the server as root, or allow users to make user namespaces"},
    {RG_SANDBOX_NETWORK, "start the server as root, or allow users to make user namespaces; not with RDMA"},
    {RG_SANDBOX_LIMITS, "its hard limits must allow it"},
    {RG_SANDBOX_CAPABILITIES, ""},
    {RG_SANDBOX_NO_PRIVILEGES, ""},
    {RG_SANDBOX_FILES, "Linux 5.13 or newer with lsm=landlock"},
    {RG_SANDBOX_SCOPES, "Linux 6.12 or newer with lsm=landlock"},
    {RG_SANDBOX_CALLS, "a kernel with CONFIG_SECCOMP_FILTER"},
};

/* Older kernels would hide processes for the whole machine. */
static bool has_own_proc(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 8));
}

/* Whether its user can read and run what it must. */
static int check_programs(const struct rg_sandbox *sandbox)
{
    char library[PATH_MAX];
    if (rg_path_library("worker", library, sizeof library) == RG_OK && access(library, X_OK) != 0)
        return errno;
    return sandbox->policy.driver[0] == '/' && access(sandbox->policy.driver, R_OK) != 0 ? errno : 0;
}

struct outcome {
    int error;
    char what[160];
};

static _Noreturn void try_in_child(struct rg_sandbox *sandbox, uint32_t measure, uint32_t with, int told)
{
    struct outcome outcome = {0};
    const char *step = "";
    sandbox->policy.measures = measure | with;
    if (measure == RG_SANDBOX_PROCESSES && !has_own_proc())
        outcome.error = ENOSYS;
    else if (rg_sandbox_enter(sandbox, &step) != 0)
        outcome.error = errno;
    else if (measure == RG_SANDBOX_OWN_USER)
        outcome.error = check_programs(sandbox);
    else if (rg_sandbox_confine(&sandbox->policy, outcome.what, sizeof outcome.what) != RG_OK)
        outcome.error = EPERM;
    if (outcome.error && !outcome.what[0])
        snprintf(outcome.what, sizeof outcome.what, "%s%s%s", step, *step ? ": " : "",
                 strerror(outcome.error));
    _exit(write(told, &outcome, sizeof outcome) == (ssize_t)sizeof outcome ? 0 : 1);
}

/* Whether the measure can be taken; `why` is continued if not. */
static bool try_measure(const struct rg_sandbox *given, uint32_t measure, uint32_t found, char *why,
                        size_t why_size)
{
    struct rg_sandbox sandbox = *given;
    struct outcome outcome = {.error = EIO, .what = "it ended"};
    int told[2];
    if (pipe(told) != 0)
        return false;
    if (((measure | found) & RG_SANDBOX_NAMESPACED) &&
        rg_sandbox_namespaces_make(measure | (found & RG_SANDBOX_MOUNTS), sandbox.namespaces, outcome.what,
                                   sizeof outcome.what) != RG_OK) {
        close(told[0]), close(told[1]);
    } else {
        pid_t child = fork();
        if (child == 0) {
            close(told[0]);
            try_in_child(&sandbox, measure,
                         measure == RG_SANDBOX_OWN_USER || measure == RG_SANDBOX_PROCESSES
                             ? found & RG_SANDBOX_MOUNTS
                             : 0,
                         told[1]);
        }
        close(told[1]);
        if (child > 0) {
            if (read(told[0], &outcome, sizeof outcome) != (ssize_t)sizeof outcome)
                outcome.error = EIO;
            rg_sandbox_reap(child);
        }
        close(told[0]);
        rg_sandbox_namespaces_close(sandbox.namespaces);
    }
    if (!outcome.error)
        return true;
    char name[64];
    rg_sandbox_describe(measure, name, sizeof name);
    const size_t used = why_size ? strlen(why) : 0;
    const char *help = "";
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++)
        if (advice[i].measure == measure)
            help = advice[i].help;
    if (used < why_size)
        snprintf(why + used, why_size - used, "%s%s: %s%s%s%s", used ? "; " : "", name, outcome.what,
                 *help ? " (" : "", help, *help ? ")" : "");
    return false;
}

uint32_t rg_sandbox_find(const struct rg_sandbox *sandbox, char *why, size_t why_size)
{
    uint32_t found = 0;
    if (why_size)
        why[0] = '\0';
    /* the mount namespace first: with it, the own user can read what is kept visible for it */
    static const uint32_t first[] = {RG_SANDBOX_MOUNTS, RG_SANDBOX_OWN_USER};
    for (unsigned i = 0; i < 2 + 11; i++) {
        const uint32_t measure = i < 2 ? first[i] : 1u << (i - 2);
        if (!(sandbox->policy.measures & measure) || (i >= 2 && (measure == first[0] || measure == first[1])))
            continue;
#ifdef RG_SANITIZED
        if (measure == RG_SANDBOX_CALLS) /* a sanitizer's run time calls what it likes */
            continue;
#endif
        const bool alone = measure != RG_SANDBOX_PROCESSES || (found & RG_SANDBOX_MOUNTS);
        if (alone && try_measure(sandbox, measure, found, why, why_size))
            found |= measure;
    }
    return found;
}
