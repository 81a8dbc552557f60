/* mps.c - see mps.h. A driver that does not reach the control daemon goes on without MPS, and says nothing. */
#include "server/shares/worker/mps.h"

#include "common/base/status.h"
#include "generated/server/driver.h"
#include "server/shares/worker/share.h"

bool rg_mps_holds(char *why, size_t why_size)
{
    for (uint32_t i = 0; rg_share.grant.mps && i < rg_share.n_devices; i++) {
        CUdevice device;
        int enabled = 0;
        if (rg_driver.cuDeviceGet(&device, (int)i) != CUDA_SUCCESS)
            continue; /* said when the session's devices are looked at */
        if (rg_driver.cuDeviceGetAttribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) !=
            CUDA_SUCCESS) {
            rg_explain(why, why_size,
                       "this server shares GPUs by MPS, and its driver is too old to say whether it does; it "
                       "needs one of CUDA 12.2 or newer");
            return false;
        }
        if (enabled)
            continue;
        rg_explain(
            why, why_size,
            "this server shares GPUs by MPS, and its driver does not reach nvidia-cuda-mps-control; ask the "
            "server's operator to see to it");
        return false;
    }
    return true;
}
