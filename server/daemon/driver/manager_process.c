/* manager_process.c - see manager_process.h. */
#include "server/daemon/driver/manager_process.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "server/daemon/process/confined.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void rg_manager_stop(struct rg_manager_process *manager)
{
    int end;
    if (manager->pid == 0)
        return;
    manager->hangs =
        manager->hangs ? waitpid(manager->pid, NULL, WNOHANG) == 0 : !rg_process_end(manager->pid, 0, &end);
    if (manager->hangs)
        return;
    manager->pid = 0;
    rg_sandbox_release(manager->lease);
    manager->lease = NULL;
}

/* It ends when its socket is closed, which is also how it notices that the frontend is gone. */
enum rg_status rg_manager_start(struct rg_manager_process *manager, struct rg_sandboxes *sandboxes,
                                const struct rg_driver *driver, int *socket)
{
    char path[PATH_MAX], why[512] = "";
    int ends[2];
    if (rg_now_ns() < manager->not_before_ns)
        return RG_ERR_TIMEOUT;
    rg_manager_stop(manager);
    manager->not_before_ns = rg_now_ns() + RG_MANAGER_PAUSE_NS;
    if (manager->hangs) {
        rg_warn("no questions about the GPU's state can be answered: process %d, which asked the driver's "
                "management library, hangs in the kernel",
                (int)manager->pid);
        return RG_ERR_TIMEOUT;
    }
    if (rg_path_library("manager", path, sizeof path) != RG_OK) {
        rg_warn("no questions about the GPU's state can be answered: lib/remote-gpu is not beside bin");
        return RG_ERR_NOT_FOUND;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        rg_warn("no questions about the GPU's state can be answered: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    char *arguments[] = {path, (char *)"--driver", (char *)(uintptr_t)driver->info.path, NULL};
    const struct rg_process process = {
        .path = path, .arguments = arguments, .fds = {ends[1]}, .n_fds = 1, .death_signal = SIGKILL};
    const struct rg_confined confined = {.program = RG_SANDBOX_MANAGER,
                                         .identity = "",
                                         .driver = driver->info.path,
                                         .soft = rg_driver_is_own(driver),
                                         .gpus = UINT64_MAX};
    const enum rg_status status =
        rg_confined_start(sandboxes, &confined, &process, &manager->lease, &manager->pid, why, sizeof why);
    close(ends[1]);
    if (status != RG_OK) {
        close(ends[0]);
        manager->pid = 0;
        rg_warn("no questions about the GPU's state can be answered: %s", why);
        return status;
    }
    *socket = ends[0];
    return RG_OK;
}
