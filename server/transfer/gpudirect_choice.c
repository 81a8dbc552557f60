/* gpudirect_choice.c - see gpudirect_choice.h. */
#include "server/transfer/gpudirect_choice.h"

#include "common/base/log.h"
#include "generated/server/driver.h"
#include "transport/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int attribute(CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return rg_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static bool module_loaded(void)
{
    return access("/sys/module/nvidia_peermem", F_OK) == 0 || access("/sys/module/nv_peer_mem", F_OK) == 0;
}

/* Whether `path` can be had; else *why not. */
static bool possible(struct rg_worker *worker, CUdevice device, enum rg_gpu_path path, bool asked,
                     const char **why)
{
    const unsigned paths = rg_conn_device_paths(worker->conn);
    *why = NULL;
    if (!rg_driver_has(cuMemGetAddressRange_v2) || !rg_driver_has(cuPointerGetAttribute))
        *why = "the driver does not tell what its memory is";
    else if (!paths)
        *why = "not over this transport";
    else if (path == RG_GPU_PATH_DMABUF && !(paths & RG_DEVICE_DMABUF))
        *why = "kernel, libibverbs or network device do not take dma-bufs";
    else if (path == RG_GPU_PATH_DMABUF && (!rg_driver_has(cuMemGetHandleForAddressRange) ||
                                            !attribute(device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)))
        *why = "the GPU's driver exports no dma-bufs";
    else if (path == RG_GPU_PATH_PEER && !(paths & RG_DEVICE_PEER))
        *why = "not over this transport";
    else if (path == RG_GPU_PATH_PEER && !asked &&
             !attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED))
        *why = "the GPU does not let other devices at its memory";
    else if (path == RG_GPU_PATH_PEER && !asked && !module_loaded())
        *why = "the module nvidia_peermem is not loaded";
    return !*why;
}

static enum rg_gpu_path wish(struct rg_worker *worker)
{
    const char *text = getenv("REMOTE_GPU_DIRECT");
    if (!text || !*text || strcmp(text, "auto") == 0)
        return RG_GPU_PATH_UNKNOWN;
    if (strcmp(text, "dmabuf") == 0)
        return RG_GPU_PATH_DMABUF;
    if (strcmp(text, "peer") == 0)
        return RG_GPU_PATH_PEER;
    if (strcmp(text, "staging") != 0)
        rg_warn(
            "session %llu: REMOTE_GPU_DIRECT=%s is not one of auto, dmabuf, peer, staging; taking staging",
            (unsigned long long)worker->session, text);
    return RG_GPU_PATH_STAGING;
}

enum rg_gpu_path rg_gpudirect_choose(struct rg_worker *worker, CUdevice device, int above)
{
    const enum rg_gpu_path wished = wish(worker);
    const char *why[RG_GPU_PATH_DMABUF + 1] = {0};
    for (int path = above - 1; path > RG_GPU_PATH_STAGING; path--) {
        if (wished != RG_GPU_PATH_UNKNOWN && wished != (enum rg_gpu_path)path)
            why[path] = "not wanted";
        else if (possible(worker, device, (enum rg_gpu_path)path, wished == (enum rg_gpu_path)path,
                          &why[path])) {
            rg_info("session %llu: GPU %d: bulk data goes straight to and from its memory (%s)",
                    (unsigned long long)worker->session, (int)device,
                    rg_gpu_path_name((enum rg_gpu_path)path));
            return (enum rg_gpu_path)path;
        }
    }
    if (!rg_conn_device_paths(worker->conn))
        return RG_GPU_PATH_STAGING; /* goes without saying */
    const char *dmabuf = why[RG_GPU_PATH_DMABUF], *peer = why[RG_GPU_PATH_PEER];
    rg_info("session %llu: GPU %d: bulk data goes through page-locked memory (dma-buf: %s; peer memory: %s)",
            (unsigned long long)worker->session, (int)device, dmabuf ? dmabuf : "failed",
            peer ? peer : "failed");
    return RG_GPU_PATH_STAGING;
}

bool rg_gpudirect_flushes(CUdevice device)
{
    return rg_driver_has(cuFlushGPUDirectRDMAWrites) &&
           (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) &&
           attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
               CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}
