/* parts.c - see parts.h. An instance here is a compute instance, which is what CUDA has as a device. */
#include "server/daemon/probe/parts.h"

#include "common/base/uuid_text.h"

#include <dlfcn.h>
#include <string.h>

enum { SUCCESS = 0, MIG_ENABLED = 1 }; /* nvml.h */

struct memory {
    unsigned long long total, free, used;
};

struct library {
    int (*count)(unsigned *);
    int (*by_index)(unsigned, void **);
    int (*mode)(void *, unsigned *current, unsigned *pending);
    int (*most)(void *, unsigned *);
    int (*instance)(void *, unsigned, void **);
    int (*gpu_instance)(void *, unsigned *);
    int (*compute_instance)(void *, unsigned *);
    int (*uuid)(void *, char *, unsigned);
    int (*memory)(void *, struct memory *);
};

/* False: it is of before there was MIG. */
static bool look_up(void *nvml, struct library *out)
{
    *out = (struct library){
        .count = dlsym(nvml, "nvmlDeviceGetCount_v2"),
        .by_index = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"),
        .mode = dlsym(nvml, "nvmlDeviceGetMigMode"),
        .most = dlsym(nvml, "nvmlDeviceGetMaxMigDeviceCount"),
        .instance = dlsym(nvml, "nvmlDeviceGetMigDeviceHandleByIndex"),
        .gpu_instance = dlsym(nvml, "nvmlDeviceGetGpuInstanceId"),
        .compute_instance = dlsym(nvml, "nvmlDeviceGetComputeInstanceId"),
        .uuid = dlsym(nvml, "nvmlDeviceGetUUID"),
        .memory = dlsym(nvml, "nvmlDeviceGetMemoryInfo"),
    };
    return out->count && out->by_index && out->mode && out->most && out->instance && out->gpu_instance &&
           out->compute_instance && out->uuid && out->memory;
}

static bool is_divided(const struct library *library, void *device)
{
    unsigned current = 0, pending = 0;
    return library->mode(device, &current, &pending) == SUCCESS && current == MIG_ENABLED;
}

static bool describe(const struct library *library, void *device, struct rg_probe_part *out)
{
    char text[96] = "";
    struct memory memory;
    *out = (struct rg_probe_part){0};
    if (library->uuid(device, text, sizeof text) != SUCCESS || !rg_uuid_parse(text, out->uuid, &out->mig))
        return false;
    out->memory_free_known = library->memory(device, &memory) == SUCCESS;
    if (out->memory_free_known) {
        out->memory_free = memory.free;
        out->memory_total = memory.total;
    }
    return true;
}

/* The instances of a divided device; its numbers of them have gaps. */
static uint32_t add_instances(const struct library *library, void *device, struct rg_probe_part *out,
                              uint32_t room)
{
    struct rg_probe_part whole;
    unsigned most = 0;
    uint32_t n = 0;
    if (!describe(library, device, &whole) || library->most(device, &most) != SUCCESS)
        return 0;
    for (unsigned i = 0; i < most && n < room; i++) {
        void *instance = NULL;
        if (library->instance(device, i, &instance) != SUCCESS || !describe(library, instance, &out[n]) ||
            !out[n].mig)
            continue;
        memcpy(out[n].whole, whole.uuid, sizeof out[n].whole);
        (void)library->gpu_instance(instance, &out[n].gpu_instance);
        (void)library->compute_instance(instance, &out[n].compute_instance);
        n++;
    }
    return n;
}

bool rg_probe_parts(void *nvml, struct rg_probe_part out[RG_DEVICES_MAX], uint32_t *n)
{
    struct library library;
    unsigned count = 0;
    bool any = false;
    *n = 0;
    if (!nvml || !look_up(nvml, &library) || library.count(&count) != SUCCESS)
        return false;
    for (unsigned i = 0; i < count && *n < RG_DEVICES_MAX; i++) {
        void *device = NULL;
        if (library.by_index(i, &device) != SUCCESS)
            continue;
        const bool divided = is_divided(&library, device);
        any = any || divided;
        if (divided)
            *n += add_instances(&library, device, out + *n, RG_DEVICES_MAX - *n);
        else
            *n += describe(&library, device, &out[*n]);
    }
    return any;
}
