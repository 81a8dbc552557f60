/*
 * policy.c - names of modes and measures, and the text by which a policy travels to the program.
 */
#include "server/sandbox/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *const modes[] = {
    [RG_SANDBOX_OFF] = "off",
    [RG_SANDBOX_AUTO] = "auto",
    [RG_SANDBOX_STRICT] = "strict",
    [RG_SANDBOX_LOG] = "log",
};

static const char *const measure_names[] = {
    "own user",
    "mount namespace",
    "IPC namespace",
    "network namespace",
    "limits",
    "no capabilities",
    "no new privileges",
    "files (Landlock)",
    "signals and sockets (Landlock)",
    "system calls (seccomp)",
    "own /proc",
};

bool rg_sandbox_mode_by_name(const char *name, enum rg_sandbox_mode *out)
{
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(name, modes[i]) == 0) {
            *out = (enum rg_sandbox_mode)i;
            return true;
        }
    return false;
}

const char *rg_sandbox_mode_name(enum rg_sandbox_mode mode)
{
    return modes[mode];
}

void rg_sandbox_describe(uint32_t measures, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "none");
    for (size_t i = 0; i < sizeof measure_names / sizeof measure_names[0]; i++)
        if ((measures & 1u << i) && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", measure_names[i]);
}

void rg_sandbox_format(const struct rg_sandbox_policy *policy, char out[RG_SANDBOX_TEXT])
{
    snprintf(out, RG_SANDBOX_TEXT, "%d %d %x %d %d %" PRIx64 "\n%s\n%s\n%s", (int)policy->program,
             (int)policy->mode, policy->measures, policy->soft, policy->rdma, policy->gpus, policy->driver,
             policy->runtime, policy->mps);
}

/* The next line of the text into `out`; NULL: too long. */
static const char *take_line(const char *text, char *out)
{
    const size_t size = strcspn(text, "\n");
    if (size >= PATH_MAX)
        return NULL;
    memcpy(out, text, size);
    out[size] = '\0';
    return text + size + (text[size] == '\n');
}

enum rg_status rg_sandbox_parse(const char *text, struct rg_sandbox_policy *out)
{
    int program, mode, soft, rdma, used = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(text, "%d %d %" SCNx32 " %d %d %" SCNx64 "%n", &program, &mode, &out->measures, &soft, &rdma,
               &out->gpus, &used) < 6 ||
        text[used] != '\n' || program < 0 || program >= RG_SANDBOX_PROGRAMS || mode < 0 ||
        mode > RG_SANDBOX_LOG)
        return RG_ERR_INVALID;
    out->program = (enum rg_sandbox_program)program;
    out->mode = (enum rg_sandbox_mode)mode;
    out->soft = soft != 0;
    out->rdma = rdma != 0;
    const char *at = take_line(text + used + 1, out->driver);
    at = at ? take_line(at, out->runtime) : NULL;
    at = at ? take_line(at, out->mps) : NULL;
    return at && !*at ? RG_OK : RG_ERR_INVALID;
}

int rg_sandbox_reap(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
