/* confined.c - see confined.h. */
#include "server/daemon/process/confined.h"

#include "common/base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>

enum rg_status rg_confined_start(struct rg_sandboxes *sandboxes, const struct rg_confined *confined,
                                 const struct rg_process *process, struct rg_sandbox_lease **lease,
                                 pid_t *pid, char *why, size_t why_size)
{
    size_t n = 0;
    *lease = NULL;
    while (process->arguments[n])
        n++;
    RG_CLEANUP_FREE char **arguments = calloc(n + 3, sizeof *arguments);
    struct rg_sandbox_lease *own =
        rg_sandboxes_lease(sandboxes, confined->program, confined->identity, confined->driver, confined->soft,
                           confined->gpus, &confined->extra, why, why_size);
    if (!own || !own->environment || !arguments) {
        rg_sandbox_release(own);
        return RG_ERR_NO_MEMORY;
    }
    if (confined->runtime) {
        snprintf(own->sandbox.policy.runtime, sizeof own->sandbox.policy.runtime, "%s", confined->runtime);
        rg_sandbox_format(&own->sandbox.policy, own->text);
    }
    for (size_t i = 0; i < n; i++)
        arguments[i] = process->arguments[i];
    arguments[n] = (char *)"--sandbox";
    arguments[n + 1] = own->text;
    struct rg_process inside = *process;
    inside.arguments = arguments;
    inside.environment = own->environment;
    inside.sandbox = &own->sandbox;
    const enum rg_status status = rg_process_start(&inside, pid, why, why_size);
    if (status == RG_OK)
        *lease = own;
    else
        rg_sandbox_release(own);
    return status;
}
