/* driver_parts.c - see driver_parts.h. */
#include "server/daemon/driver/driver_parts.h"

#include "common/base/log.h"
#include "common/base/uuid_text.h"
#include "common/cuda/visible_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE "CUDA_VISIBLE_DEVICES="

enum { VISIBLE_SIZE = sizeof VISIBLE + RG_DEVICES_MAX * RG_UUID_TEXT };

static void add_device(struct rg_driver *driver, const struct rg_device_info *device)
{
    if (driver->n_devices == RG_DEVICES_MAX)
        return;
    driver->devices[driver->n_devices] = *device;
    driver->devices[driver->n_devices].ordinal = driver->n_devices;
    driver->n_devices++;
}

/*
 * Of the parts those that CUDA_VISIBLE_DEVICES in the server's environment leaves; returns how many, -1: it does not say which. Numbers
 * do not: what CUDA counts is not what NVML does, and instances have none.
 */
static int leave_visible(const struct rg_probe_part *parts, uint32_t n, struct rg_probe_part *out)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    uint8_t uuids[RG_DEVICES_MAX][16];
    bool mig[RG_DEVICES_MAX];
    int chosen[RG_DEVICES_MAX];
    if (text && !rg_visible_devices_by_uuid(text))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(uuids[i], parts[i].uuid, sizeof uuids[i]);
        mig[i] = parts[i].mig;
    }
    const int left = rg_visible_devices_choose(text, (const uint8_t(*)[16])uuids, mig, (int)n, chosen);
    for (int i = 0; i < left; i++)
        out[i] = parts[chosen[i]];
    return left;
}

/* False: there are none. */
static bool name_whole(const struct rg_probe_part *parts, uint32_t n, char out[VISIBLE_SIZE])
{
    char text[RG_UUID_TEXT];
    size_t used = (size_t)snprintf(out, VISIBLE_SIZE, VISIBLE);
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if (!parts[i].mig) {
            used += (size_t)snprintf(out + used, VISIBLE_SIZE - used, "%s%s", any ? "," : "",
                                     rg_uuid_text(parts[i].uuid, false, text, sizeof text));
            any = true;
        }
    return any;
}

static void take_machine(struct rg_driver *out, const struct rg_driver *from)
{
    out->info = from->info;
    out->machine = from->machine;
}

static bool add_instance(const struct rg_probe_part *part, rg_driver_look *look, void *data,
                         struct rg_driver *out, char *why, size_t why_size)
{
    static struct rg_driver found;
    char visible[sizeof VISIBLE + RG_UUID_TEXT], text[RG_UUID_TEXT];
    rg_uuid_text(part->uuid, true, text, sizeof text);
    snprintf(visible, sizeof visible, VISIBLE "%s", text);
    if (look(data, visible, &found, why, why_size) != RG_OK)
        return false;
    struct rg_device_info *device = &found.devices[0];
    device->mig = true;
    device->gpu_instance = part->gpu_instance;
    device->compute_instance = part->compute_instance;
    device->memory_free = part->memory_free;
    device->memory_free_known = part->memory_free_known;
    memcpy(device->uuid, part->uuid, sizeof device->uuid);
    memcpy(device->whole, part->whole, sizeof device->whole);
    if (out->n_devices == 0)
        take_machine(out, &found);
    add_device(out, device);
    return true;
}

enum rg_status rg_driver_of_parts(const struct rg_probe_part *all, uint32_t n_all, rg_driver_look *look,
                                  void *data, struct rg_driver *out, char *why, size_t why_size)
{
    static struct rg_driver found;
    static struct rg_probe_part parts[RG_DEVICES_MAX];
    const int left = leave_visible(all, n_all, parts);
    const uint32_t n = left > 0 ? (uint32_t)left : 0;
    char visible[VISIBLE_SIZE], text[RG_UUID_TEXT];
    memset(out, 0, sizeof *out);
    if (left < 0) {
        rg_explain(why, why_size,
                   "MIG has divided GPUs, and CUDA_VISIBLE_DEVICES is not of UUIDs: it does not say which "
                   "instances are meant; name them (MIG-…), or unset it");
        return RG_ERR_UNSUPPORTED;
    }
    if (name_whole(parts, n, visible)) {
        if (look(data, visible, &found, why, why_size) == RG_OK) {
            take_machine(out, &found);
            for (uint32_t i = 0; i < found.n_devices; i++)
                add_device(out, &found.devices[i]);
        } else {
            rg_warn("the GPUs that MIG has not divided do not work: %s", why);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].mig && !add_instance(&parts[i], look, data, out, why, why_size))
            rg_warn("%s does not work, and is left out: %s",
                    rg_uuid_text(parts[i].uuid, true, text, sizeof text), why);
    if (out->n_devices == 0)
        rg_explain(why, why_size, "%s",
                   n ? "its GPUs are divided by MIG, and no instance of them works"
                     : "CUDA_VISIBLE_DEVICES names none of its GPUs and instances");
    return out->n_devices ? RG_OK : RG_ERR_UNSUPPORTED;
}

void rg_driver_take_parts(const struct rg_probe_part *parts, uint32_t n, struct rg_driver *driver)
{
    for (uint32_t i = 0; i < driver->n_devices; i++) {
        struct rg_device_info *device = &driver->devices[i];
        device->memory_free_known = false;
        for (uint32_t j = 0; j < n; j++)
            if (memcmp(parts[j].uuid, device->uuid, sizeof device->uuid) == 0) {
                device->memory_free = parts[j].memory_free;
                device->memory_free_known = parts[j].memory_free_known;
            }
    }
}
