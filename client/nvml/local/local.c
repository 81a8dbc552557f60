/*
 * local.c - the management library of a machine that has the software device and no server: nvml.h as the driver beside this
 * library tells it (common/cuda/soft_devices.h).
 *
 * The first nvmlInit loads that driver, or finds it loaded, and lists its devices: all of them, as NVML does not look at
 * CUDA_VISIBLE_DEVICES. Nothing is initialised by that. Memory in use, and who uses it, is known of the calling process alone;
 * what a software device has no answer to is "not supported". Any thread.
 */
#include "client/nvml/nvml.h"
#include "common/base/log.h"
#include "common/cuda/soft_devices.h"
#include "common/sync/scoped_lock.h"

#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define P2P_OK            0
#define P2P_NOT_SUPPORTED 5
#define P2P_BY_NVLINK     2 /* which kind of access is asked for */
#define TOPOLOGY_INTERNAL 0
#define TOPOLOGY_SINGLE   10 /* the way from one device to another goes through one switch */
#define TOPOLOGY_NODE     40 /* … through the host, on one NUMA node */
#define TOPOLOGY_SYSTEM   50 /* … through the host */
#define FEATURE_DISABLED  0
#define INSTANCES_MAX     16 /* of one device (softgpu/driver/core/mig.c) */
#define CLOCK_MEMORY      2  /* the kinds of clocks: of graphics, multiprocessors, memory, video */
#define CLOCKS            4
#define FABRIC_SINCE      90 /* the capability from which devices may be part of a fabric, and say whether */
#define FABRIC_NONE       28 /* bytes of nvmlGpuFabricInfo_t: all zero are a device of none */
#define LINK_GENERATION   3  /* of PCI Express, with which 16 lanes are about as fast as a copy in memory */
#define LINK_LANES        16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;                       /* nvmlInit less nvmlShutdown */
static const struct rg_soft_devices *driver; /* once loaded it stays */
static unsigned n_devices, n_all;            /* those that are devices; with the instances behind them */

/* Devices' handles are addresses in here: never dereferenced, the same for as long as the process lives. */
static const char handles[RG_DEVICES_MAX];

/* --- the driver ----------------------------------------------------------------------------------------- */

/* Under lock. */
static enum rg_nvml_return load(void)
{
    Dl_info self;
    CUuuid id;
    const void *table = NULL;
    char path[PATH_MAX];
    const char *slash = dladdr((void *)load, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    if (driver)
        return RG_NVML_SUCCESS;
    snprintf(path, sizeof path, "%.*slibcuda.so.1", slash ? (int)(slash - self.dli_fname + 1) : 0,
             self.dli_fname ? self.dli_fname : "");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rg_error("the software device's driver cannot be loaded: %s; is remote-gpu installed completely?",
                 dlerror());
        return RG_NVML_DRIVER_NOT_LOADED;
    }
    CUresult (*get)(const void **, const CUuuid *) =
        (CUresult(*)(const void **, const CUuuid *))dlsym(library, "cuGetExportTable");
    memcpy(id.bytes, RG_SOFT_DEVICES_ID, sizeof id.bytes);
    if (get && get(&table, &id) == CUDA_SUCCESS)
        driver = table;
    if (driver && driver->size != sizeof *driver)
        driver = NULL;
    if (driver)
        return RG_NVML_SUCCESS;
    rg_error("%s is not the software device of this version; is remote-gpu installed completely?", path);
    dlclose(library);
    return RG_NVML_LIBRARY_MISMATCH;
}

/* What the driver says of a device now; its number among all. */
static enum rg_nvml_return find(rg_nvml_device device, struct rg_soft_device *out, unsigned *index)
{
    struct rg_soft_device all[RG_DEVICES_MAX];
    const uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    pthread_mutex_lock(&lock);
    const bool started = users > 0, known = offset < n_all;
    pthread_mutex_unlock(&lock);
    if (!started)
        return RG_NVML_UNINITIALIZED;
    if (!known || offset >= driver->devices(all, RG_DEVICES_MAX))
        return RG_NVML_INVALID_ARGUMENT;
    *out = all[offset];
    *index = (unsigned)offset;
    return RG_NVML_SUCCESS;
}

/* --- nvml.h --------------------------------------------------------------------------------------------- */

enum rg_nvml_return rg_nvml_start(void)
{
    struct rg_soft_device all[RG_DEVICES_MAX];
    RG_SCOPED_LOCK(&lock);
    RG_TRY(load());
    if (users++ == 0) {
        const size_t n = driver->devices(all, RG_DEVICES_MAX);
        n_all = n < RG_DEVICES_MAX ? (unsigned)n : RG_DEVICES_MAX;
        for (n_devices = 0; n_devices < n_all && !all[n_devices].mig;)
            n_devices++;
    }
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_stop(void)
{
    RG_SCOPED_LOCK(&lock);
    const bool was = users > 0;
    users -= was;
    return was ? RG_NVML_SUCCESS : RG_NVML_UNINITIALIZED;
}

enum rg_nvml_return rg_nvml_started(void)
{
    unsigned count;
    return rg_nvml_count(&count);
}

enum rg_nvml_return rg_nvml_driver(struct rg_driver_info *out)
{
    RG_TRY(rg_nvml_started());
    *out = (struct rg_driver_info){.kind = "soft", .version = (uint32_t)driver->driver_version()};
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_count(unsigned *out)
{
    RG_SCOPED_LOCK(&lock);
    if (users == 0)
        return RG_NVML_UNINITIALIZED;
    *out = n_devices;
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_handle(unsigned index, rg_nvml_device *out)
{
    unsigned count;
    RG_TRY(rg_nvml_count(&count));
    if (index >= count)
        return RG_NVML_INVALID_ARGUMENT;
    *out = (rg_nvml_device)(uintptr_t)&handles[index];
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_look(rg_nvml_device device, struct rg_device_info *out, unsigned *index)
{
    struct rg_soft_device now;
    unsigned at;
    RG_TRY(find(device, &now, &at));
    memset(out, 0, sizeof *out);
    out->ordinal = at;
    snprintf(out->name, sizeof out->name, "%s", now.name);
    memcpy(out->uuid, now.uuid, sizeof out->uuid);
    out->compute_major = now.capability / 10;
    out->compute_minor = now.capability % 10;
    out->memory_total = now.memory_total;
    out->memory_free = now.memory_total > now.memory_used ? now.memory_total - now.memory_used : 0;
    out->memory_free_known = true;
    out->mig = now.mig;
    out->gpu_instance = now.instance + 1; /* an instance of its own each, as MIG numbers them */
    memcpy(out->whole, now.whole, sizeof out->whole);
    snprintf(out->pci, sizeof out->pci, "%04x:%02x:%02x.0", now.pci_domain, now.pci_bus, now.pci_device);
    if (index)
        *index = at;
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_look_now(rg_nvml_device device, struct rg_device_info *out)
{
    return rg_nvml_look(device, out, NULL);
}

enum rg_nvml_return rg_nvml_processes(rg_nvml_device device, struct rg_nvml_user *list, unsigned capacity,
                                      unsigned *count)
{
    struct rg_soft_device now;
    unsigned at;
    RG_TRY(find(device, &now, &at));
    *count = now.in_use;
    if (now.in_use && capacity > 0)
        list[0] = (struct rg_nvml_user){.pid = (unsigned)getpid(), .memory = now.memory_used};
    return RG_NVML_SUCCESS;
}

enum rg_nvml_return rg_nvml_where(rg_nvml_device device, char server[256], uint8_t uuid[16])
{
    struct rg_soft_device now;
    unsigned at;
    RG_TRY(find(device, &now, &at));
    if (server)
        server[0] = '\0';
    if (uuid)
        memcpy(uuid, now.uuid, sizeof now.uuid);
    return RG_NVML_SUCCESS;
}

/* --- instances ------------------------------------------------------------------------------------------- */

enum rg_nvml_return rg_nvml_instance(rg_nvml_device device, unsigned index, rg_nvml_device *out)
{
    struct rg_soft_device all[RG_DEVICES_MAX], now;
    unsigned at;
    RG_TRY(find(device, &now, &at));
    const size_t n = driver->devices(all, RG_DEVICES_MAX);
    for (size_t i = 0; i < n && i < RG_DEVICES_MAX; i++)
        if (all[i].mig && all[i].instance == index && memcmp(all[i].whole, now.uuid, sizeof now.uuid) == 0) {
            *out = (rg_nvml_device)(uintptr_t)&handles[i];
            return RG_NVML_SUCCESS;
        }
    return now.divided ? RG_NVML_NOT_FOUND : RG_NVML_NOT_SUPPORTED;
}

enum rg_nvml_return rg_nvml_whole(rg_nvml_device instance, rg_nvml_device *out)
{
    struct rg_soft_device all[RG_DEVICES_MAX], now;
    unsigned at;
    RG_TRY(find(instance, &now, &at));
    (void)driver->devices(all, RG_DEVICES_MAX);
    for (unsigned i = 0; i < n_devices; i++)
        if (memcmp(all[i].uuid, now.whole, sizeof now.whole) == 0) {
            *out = (rg_nvml_device)(uintptr_t)&handles[i];
            return RG_NVML_SUCCESS;
        }
    return RG_NVML_NOT_FOUND;
}

/* The mode now, and after the next reset. */
static int tell_mode(const struct rg_soft_device *device, const uintptr_t *words)
{
    if (device->mig)
        return RG_NVML_INVALID_ARGUMENT;
    if (!words[0] || !words[1])
        return RG_NVML_INVALID_ARGUMENT;
    *(unsigned *)words[0] = *(unsigned *)words[1] = device->divided;
    return RG_NVML_SUCCESS;
}

/* --- what a software device has an answer to ------------------------------------------------------------ */

static int tell(uintptr_t where, int value)
{
    if (!where)
        return RG_NVML_INVALID_ARGUMENT;
    *(int *)where = value;
    return RG_NVML_SUCCESS;
}

static int common_ancestor(const struct rg_soft_device *one, const struct rg_soft_device *other)
{
    if (one->pcie >= 0 && one->pcie == other->pcie)
        return TOPOLOGY_SINGLE;
    return one->numa_node >= 0 && one->numa_node == other->numa_node ? TOPOLOGY_NODE : TOPOLOGY_SYSTEM;
}

static bool can_access(const struct rg_soft_device *one, const struct rg_soft_device *other, bool by_nvlink)
{
    return by_nvlink ? one->nvlink >= 0 && one->nvlink == other->nvlink : one->peers;
}

/* How two devices are to each other: `words` are the second one and what the question has besides. */
static int ask_of_two(enum rg_nvml_question question, const struct rg_soft_device *one, unsigned index,
                      const uintptr_t *words)
{
    struct rg_soft_device other;
    unsigned other_index;
    RG_TRY(find((rg_nvml_device)words[0], &other, &other_index));
    const bool same = index == other_index; /* NCCL asks of every device and itself, too */
    switch (question) {
    case RG_QUESTION_nvmlDeviceOnSameBoard:
        return tell(words[1], same);
    case RG_QUESTION_nvmlDeviceGetTopologyCommonAncestor:
        return tell(words[1], same ? TOPOLOGY_INTERNAL : common_ancestor(one, &other));
    default: {
        const bool by_nvlink = words[1] == P2P_BY_NVLINK;
        return tell(words[2], (same && !by_nvlink) || (!same && can_access(one, &other, by_nvlink))
                                  ? P2P_OK
                                  : P2P_NOT_SUPPORTED);
    }
    }
}

/* The fabric that a device is part of: none. */
static int tell_fabric(const struct rg_soft_device *device, uintptr_t where)
{
    if (!where)
        return RG_NVML_INVALID_ARGUMENT;
    if (device->capability < FABRIC_SINCE)
        return RG_NVML_NOT_SUPPORTED;
    memset((void *)where, 0, FABRIC_NONE);
    return RG_NVML_SUCCESS;
}

/* The same in a structure that begins with its version and size: of version 2, or of 3. */
static int tell_versioned_fabric(const struct rg_soft_device *device, uintptr_t where)
{
    const uint32_t versions[] = {2u << 24 | 36, 3u << 24 | 40};
    if (!where)
        return RG_NVML_INVALID_ARGUMENT;
    if (device->capability < FABRIC_SINCE)
        return RG_NVML_NOT_SUPPORTED;
    uint32_t *const version = (uint32_t *)where;
    if (*version != versions[0] && *version != versions[1])
        return RG_NVML_VERSION_MISMATCH;
    memset(version + 1, 0, (*version & 0xffffff) - sizeof *version);
    return RG_NVML_SUCCESS;
}

/* A clock, now and at most: kernels' is what %clock counts by. `words` are its kind and where it is to be. */
static int tell_clock(const struct rg_soft_device *device, const uintptr_t *words)
{
    if (words[0] >= CLOCKS)
        return RG_NVML_INVALID_ARGUMENT;
    return tell(words[1], words[0] == CLOCK_MEMORY ? device->memory_clock_mhz : device->clock_mhz);
}

int rg_nvml_ask(enum rg_nvml_question question, rg_nvml_device device, const uintptr_t *words)
{
    struct rg_soft_device now;
    unsigned index;
    RG_TRY(find(device, &now, &index));
    switch (question) {
    case RG_QUESTION_nvmlDeviceGetClockInfo:
    case RG_QUESTION_nvmlDeviceGetMaxClockInfo:
        return tell_clock(&now, words);
    case RG_QUESTION_nvmlDeviceGetMemoryBusWidth:
        return tell(words[0], now.bus_bits);
    case RG_QUESTION_nvmlDeviceGetCurrPcieLinkGeneration:
    case RG_QUESTION_nvmlDeviceGetGpuMaxPcieLinkGeneration:
    case RG_QUESTION_nvmlDeviceGetMaxPcieLinkGeneration:
        return tell(words[0], LINK_GENERATION);
    case RG_QUESTION_nvmlDeviceGetCurrPcieLinkWidth:
    case RG_QUESTION_nvmlDeviceGetMaxPcieLinkWidth:
        return tell(words[0], LINK_LANES);
    case RG_QUESTION_nvmlDeviceGetComputeMode:
        return tell(words[0], now.compute_mode);
    case RG_QUESTION_nvmlDeviceGetDisplayActive:
    case RG_QUESTION_nvmlDeviceGetDisplayMode:
        return tell(words[0], FEATURE_DISABLED);
    case RG_QUESTION_nvmlDeviceGetGpuFabricInfo:
        return tell_fabric(&now, words[0]);
    case RG_QUESTION_nvmlDeviceGetGpuFabricInfoV:
        return tell_versioned_fabric(&now, words[0]);
    case RG_QUESTION_nvmlDeviceGetMigMode:
        return tell_mode(&now, words);
    case RG_QUESTION_nvmlDeviceGetMaxMigDeviceCount:
        return tell(words[0], now.divided ? INSTANCES_MAX : 0);
    case RG_QUESTION_nvmlDeviceGetMultiGpuBoard:
        return tell(words[0], 0);
    case RG_QUESTION_nvmlDeviceOnSameBoard:
    case RG_QUESTION_nvmlDeviceGetTopologyCommonAncestor:
    case RG_QUESTION_nvmlDeviceGetP2PStatus:
        return ask_of_two(question, &now, index, words);
    default:
        return RG_NVML_NOT_SUPPORTED;
    }
}
