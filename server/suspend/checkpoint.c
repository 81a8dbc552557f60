/* checkpoint.c - see checkpoint.h. */
#include "server/suspend/checkpoint.h"

#include "common/cuda/errors.h"
#include "generated/server/driver.h"

#include <stdio.h>
#include <unistd.h>

bool rg_checkpoint_possible(void)
{
    return rg_driver_has(cuCheckpointProcessLock) && rg_driver_has(cuCheckpointProcessCheckpoint) &&
           rg_driver_has(cuCheckpointProcessRestore) && rg_driver_has(cuCheckpointProcessUnlock);
}

/* The driver is locked, so its own texts may not be asked for. */
static void explain(char *why, size_t size, const char *call, CUresult result)
{
    const char *name = rg_cuda_error_name(result);
    snprintf(why, size, "the driver's %s failed: %s", call, name ? name : "an error without a name");
}

enum rg_status rg_checkpoint_away(unsigned timeout_ms, char *why, size_t why_size)
{
    const int self = (int)getpid();
    CUcheckpointLockArgs lock = {.timeoutMs = timeout_ms};
    CUcheckpointCheckpointArgs checkpoint = {0};
    CUcheckpointUnlockArgs unlock = {0};
    CUresult result = rg_driver.cuCheckpointProcessLock(self, &lock);
    if (result == CUDA_ERROR_NOT_READY)
        return RG_ERR_TIMEOUT;
    if (result != CUDA_SUCCESS) {
        explain(why, why_size, "cuCheckpointProcessLock", result);
        return RG_ERR_UNSUPPORTED;
    }
    result = rg_driver.cuCheckpointProcessCheckpoint(self, &checkpoint);
    if (result == CUDA_SUCCESS)
        return RG_OK;
    explain(why, why_size, "cuCheckpointProcessCheckpoint", result);
    result = rg_driver.cuCheckpointProcessUnlock(self, &unlock);
    if (result == CUDA_SUCCESS)
        return RG_ERR_UNSUPPORTED;
    explain(why, why_size, "cuCheckpointProcessUnlock", result);
    return RG_ERR_IO;
}

enum rg_status rg_checkpoint_back(char *why, size_t why_size)
{
    const int self = (int)getpid();
    CUcheckpointRestoreArgs restore = {0};
    CUcheckpointUnlockArgs unlock = {0};
    CUresult result = rg_driver.cuCheckpointProcessRestore(self, &restore);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return RG_ERR_NO_MEMORY;
    if (result != CUDA_SUCCESS) {
        explain(why, why_size, "cuCheckpointProcessRestore", result);
        return RG_ERR_IO;
    }
    result = rg_driver.cuCheckpointProcessUnlock(self, &unlock);
    if (result != CUDA_SUCCESS)
        explain(why, why_size, "cuCheckpointProcessUnlock", result);
    return result == CUDA_SUCCESS ? RG_OK : RG_ERR_IO;
}
