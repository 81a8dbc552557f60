/* driver_choice.c - see driver_choice.h. */
#include "server/daemon/driver/driver_choice.h"

#include "common/base/log.h"
#include "common/cuda/behaviour.h"

#include <stdlib.h>
#include <string.h>

/* Whether the environment asks the software device not to confine kernels (docs/software-device.md). */
static bool kernels_roam(void)
{
    const char *guard = getenv("SOFTGPU_GUARD");
    return (guard && strcmp(guard, "0") == 0) || rg_behaviour_is_nvidia(getenv("SOFTGPU_BEHAVE"));
}

/*
 * GPUs whose kernels reach all memory of their process (docs/security.md). No driver can be asked to do without in one process; where it
 * is HMM, its kernel module can. False: no worker is to be left to its clients like that.
 */
static bool check_reach(const struct rg_driver *driver, enum rg_sandbox_mode mode)
{
    bool good = true;
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        const struct rg_device_info *device = &driver->devices[i];
        const bool tables = device->host_reach & RG_CONTROL_REACH_PAGE_TABLES;
        if (!device->host_reach)
            continue;
        rg_log(
            mode == RG_SANDBOX_STRICT ? RG_LOG_ERROR : RG_LOG_WARN,
            "GPU %u (%s): its kernels reach all memory of their process (%s), so a client can take over its "
            "own worker; the sandbox alone keeps that from others%s",
            device->ordinal, device->name, tables ? "ATS" : "HMM",
            tables ? "" : ". Load the module nvidia-uvm with uvm_disable_hmm=1 to be without");
        good = good && mode != RG_SANDBOX_STRICT;
    }
    if (!good)
        rg_error("--sandbox=strict, and kernels could take over their workers: see above");
    return good;
}

bool rg_driver_choose(const char *wanted, bool open, struct rg_sandboxes *sandboxes, struct rg_driver *driver)
{
    char why[RG_CONTROL_REASON] = "";
    if (rg_driver_find(wanted, sandboxes, driver, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    if (!check_reach(driver, rg_sandboxes_mode(sandboxes)))
        return false;
    if (open && strcmp(wanted, "auto") == 0 && strcmp(driver->info.kind, "soft") == 0) {
        rg_error("NVIDIA's driver does not work here, and other machines' programs are not to run on this "
                 "machine's processor by mistake: mend the driver, or say that the software device is meant "
                 "with --driver soft");
        return false;
    }
    if (open && strcmp(driver->info.kind, "soft") == 0 && kernels_roam()) {
        rg_error("kernels of other machines' programs would not be confined to their own memory: remove "
                 "SOFTGPU_GUARD=0 and SOFTGPU_BEHAVE=nvidia from the environment, or listen on this machine "
                 "alone");
        return false;
    }
    return true;
}
