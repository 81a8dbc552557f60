/* visible_devices.c - see visible_devices.h. */
#include "client/connect/visible_devices.h"

#include "common/base/limits.h"
#include "common/cuda/visible_devices.h"

#include <stdlib.h>

enum rg_visible rg_visible_kind(void)
{
    const char *text = secure_getenv("CUDA_VISIBLE_DEVICES");
    return !text ? RG_VISIBLE_ALL : rg_visible_devices_by_uuid(text) ? RG_VISIBLE_UUIDS : RG_VISIBLE_NUMBERS;
}

uint32_t rg_visible_choose(const uint8_t (*uuids)[16], uint32_t n, uint32_t *out)
{
    int chosen[RG_DEVICES_MAX];
    const int count = rg_visible_devices_choose(secure_getenv("CUDA_VISIBLE_DEVICES"), uuids, NULL,
                                                (int)(n < RG_DEVICES_MAX ? n : RG_DEVICES_MAX), chosen);
    for (int i = 0; i < count; i++)
        out[i] = (uint32_t)chosen[i];
    return (uint32_t)count;
}
