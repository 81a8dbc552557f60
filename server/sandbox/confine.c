/*
 * confine.c - the part of a sandbox that a program takes for itself, before it reads a client's first byte.
 *
 * Capabilities, then no_new_privs (which Landlock and seccomp need where the process is not root), then files,
 * and system calls last: what comes before needs calls that the list does not have. Whatever cannot be taken
 * ends the program, as its caller must.
 */
#include "server/sandbox/internal.h"

#include "common/base/log.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>

/* None in any set, as far as the process has the right to give them up. */
static int drop_capabilities(void)
{
    capng_get_caps_process();
    const bool bounds = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0;
    capng_clear(CAPNG_SELECT_ALL);
    if (bounds && capng_apply(CAPNG_SELECT_BOUNDS) != 0)
        return EPERM;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
        return errno;
    if (capng_apply(CAPNG_SELECT_CAPS) != 0)
        return EPERM;
    capng_get_caps_process();
    return capng_have_capabilities(CAPNG_SELECT_CAPS) == CAPNG_NONE ? 0 : EPERM;
}

enum rg_status rg_sandbox_confine(const struct rg_sandbox_policy *policy, char *why, size_t why_size)
{
    char reason[256] = "";
    const char *what = "its capabilities cannot be given up";
    const uint32_t measures = policy->measures;
    int error = 0;
    if (policy->mode == RG_SANDBOX_OFF)
        return RG_OK;
    if (measures & RG_SANDBOX_CAPABILITIES)
        error = drop_capabilities();
    if (!error &&
        (measures & (RG_SANDBOX_NO_PRIVILEGES | RG_SANDBOX_FILES | RG_SANDBOX_SCOPES | RG_SANDBOX_CALLS))) {
        what = "new privileges cannot be refused";
        error = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
    }
    if (!error && (measures & (RG_SANDBOX_FILES | RG_SANDBOX_SCOPES))) {
        what = "files cannot be restricted by Landlock";
        error = rg_sandbox_confine_files(policy, reason, sizeof reason);
    }
    if (!error && (measures & RG_SANDBOX_CALLS)) {
        what = "system calls cannot be restricted by seccomp";
        error = rg_sandbox_confine_calls(policy, reason, sizeof reason);
    }
    if (!error)
        return RG_OK;
    return RG_FAILED(RG_ERR_UNSUPPORTED, why, why_size, "%s: %s%s%s", what, reason, reason[0] ? ": " : "",
                     strerror(error));
}

bool rg_sandbox_begin(const char *text, struct rg_sandbox_policy *out)
{
    char why[512] = "";
    memset(out, 0, sizeof *out);
    if (!text)
        return true;
    if (rg_sandbox_parse(text, out) != RG_OK) {
        rg_error("sandbox: the policy that was passed in is malformed");
        return false;
    }
    if (rg_sandbox_confine(out, why, sizeof why) == RG_OK)
        return true;
    rg_error("sandbox: %s", why);
    return false;
}
