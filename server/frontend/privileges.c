/* privileges.c - see privileges.h. */
#include "server/frontend/privileges.h"

#include "common/base/log.h"
#include "server/sandbox/sandbox.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder that has been removed is empty for ever. */
static bool enter_empty_folder(void)
{
    char folder[] = "/tmp/remote-gpud-empty-XXXXXX";
    if (!mkdtemp(folder))
        return chdir("/proc/self/fdinfo") == 0 && chroot(".") == 0 && chdir("/") == 0;
    const bool inside = chmod(folder, 0555) == 0 && chdir(folder) == 0;
    const bool removed = rmdir(folder) == 0;
    return inside && removed && chroot(".") == 0;
}

/* What this kernel has of files by a list, of which there are none, and system calls by a list. */
static enum rg_status confine(enum rg_sandbox_mode mode)
{
    struct rg_sandbox sandbox = RG_SANDBOX_INIT;
    char why[1200] = "";
    if (mode == RG_SANDBOX_OFF)
        return RG_OK;
    sandbox.policy.program = RG_SANDBOX_FRONTEND;
    sandbox.policy.mode = mode;
    sandbox.policy.measures = RG_SANDBOX_CAPABILITIES | RG_SANDBOX_NO_PRIVILEGES | RG_SANDBOX_FILES |
                              RG_SANDBOX_SCOPES | RG_SANDBOX_CALLS;
    sandbox.policy.measures = rg_sandbox_find(&sandbox, why, sizeof why);
    if (why[0] && mode == RG_SANDBOX_STRICT) {
        rg_error("the process that talks to clients cannot be confined as --sandbox=strict demands: %s", why);
        return RG_ERR_IO;
    }
    if (why[0])
        rg_warn("the process that talks to clients is not as confined as it could be: %s", why);
    if (rg_sandbox_confine(&sandbox.policy, why, sizeof why) == RG_OK)
        return RG_OK;
    rg_error("the process that talks to strangers cannot be confined: %s", why);
    return RG_ERR_IO;
}

enum rg_status rg_frontend_drop_privileges(uint32_t uid, enum rg_sandbox_mode mode)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    if (uid != 0) {
        if (!enter_empty_folder()) {
            rg_error("the process that talks to strangers cannot enter an empty folder: %s", strerror(errno));
            return RG_ERR_IO;
        }
        if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) {
            rg_error("the process that talks to strangers cannot become user %u: %s", uid, strerror(errno));
            return RG_ERR_IO;
        }
    }
    /* a change of the user makes the kernel forget it; the end of the socket to the monitor says the same, but later */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        rg_error("the process that talks to strangers cannot give up its privileges: %s", strerror(errno));
        return RG_ERR_IO;
    }
    return confine(mode);
}
