/* choose_devices.c - see choose_devices.h. */
#include "client/connect/choose_devices.h"

#include "client/connect/visible_devices.h"
#include "client/nvml/nvml.h"
#include "client/query/lease.h"
#include "client/query/query.h"
#include "client/query/servers.h"
#include "common/base/log.h"

#include <string.h>

#define ASK_TIMEOUT_NS 10000000000ull /* for what a server has */

/* The server's devices, or those of them that NVML has shown, of which the program's UUIDs name some. */
static bool choose_by_uuid(const char *server, struct rg_client_hello *hello)
{
    struct rg_control answer;
    char why[1024];
    if (rg_query(server, RG_PURPOSE_INVENTORY, ASK_TIMEOUT_NS, &answer, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return false;
    }
    uint8_t uuids[RG_DEVICES_MAX][16];
    uint32_t ordinals[RG_DEVICES_MAX], chosen[RG_DEVICES_MAX], n = 0;
    const uint32_t wanted = hello->n_gpu_indices ? hello->n_gpu_indices : answer.inventory.n_devices;
    for (uint32_t i = 0; i < wanted; i++)
        for (uint32_t k = 0; k < answer.inventory.n_devices && n < RG_DEVICES_MAX; k++) {
            const struct rg_device_info *device = &answer.inventory.devices[k];
            if (hello->n_gpu_indices ? device->ordinal != hello->gpu_indices[i] : k != i)
                continue;
            memcpy(uuids[n], device->uuid, sizeof uuids[n]);
            ordinals[n++] = device->ordinal;
        }
    rg_control_fini(&answer);
    n = rg_visible_choose((const uint8_t(*)[16])uuids, n, chosen);
    hello->n_gpu_indices = hello->gpus && hello->gpus < n ? hello->gpus : n;
    hello->gpus = 0;
    for (uint32_t i = 0; i < hello->n_gpu_indices; i++)
        hello->gpu_indices[i] = ordinals[chosen[i]];
    if (n == 0)
        rg_warn("CUDA_VISIBLE_DEVICES names none of the GPUs of %s that this program may use; name one that "
                "`remote-gpu list` shows, or unset it",
                server);
    return n > 0;
}

bool rg_choose_devices(const char *server, struct rg_client_hello *hello)
{
    hello->gpus = rg_servers_gpus();
    hello->n_gpu_indices = rg_nvml_shown(server, hello->gpu_indices);
    if (!hello->n_gpu_indices)
        hello->n_gpu_indices = rg_lease_gpus(server, hello->gpu_indices);
    uint32_t visible[RG_DEVICES_MAX], shown[RG_DEVICES_MAX];
    const enum rg_visible kind = rg_visible_kind();
    if (kind == RG_VISIBLE_UUIDS)
        return choose_by_uuid(server, hello);
    if (kind == RG_VISIBLE_ALL)
        return true;
    const uint32_t n = rg_visible_choose(NULL, RG_DEVICES_MAX, visible);
    if (hello->gpus && !hello->n_gpu_indices) { /* the server chooses which: only how many can be narrowed */
        hello->gpus = n < hello->gpus ? n : hello->gpus;
        return true;
    }
    const uint32_t n_shown = hello->n_gpu_indices;
    memcpy(shown, hello->gpu_indices, sizeof shown);
    hello->gpus = 0;
    hello->n_gpu_indices = 0;
    for (uint32_t i = 0; i < n && (!n_shown || visible[i] < n_shown); i++)
        hello->gpu_indices[hello->n_gpu_indices++] = n_shown ? shown[visible[i]] : visible[i];
    return true;
}
