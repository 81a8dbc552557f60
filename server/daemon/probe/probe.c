/*
 * probe.c - program lib/remote-gpu/probe: loads a CUDA driver, looks at its devices, reports, ends.
 *
 *   probe --driver LIBRARY [--sandbox POLICY]      a struct rg_probe_report goes to descriptor 3
 *
 * A driver that crashes or hangs takes only this process with it. Nothing of the driver is linked: every
 * function is looked up, so that the software device, old drivers and stubs are all tried the same way. Free
 * memory comes from NVML, which unlike the driver API needs no context (some hundred megabytes on a GPU);
 * without it, it is unknown.
 */
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/base/uuid_text.h"
#include "generated/proto/driver_versions.h"
#include "server/daemon/driver/driver.h"
#include "server/daemon/probe/parts.h"
#include "server/daemon/probe/topology.h"
#include "server/sandbox/sandbox.h"
#include "transport/topology/rails.h"

#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define REPORT_FD 3

struct driver {
    void *library;
    CUresult (*init)(unsigned);
    CUresult (*version)(int *);
    CUresult (*count)(int *);
    CUresult (*get)(CUdevice *, int);
    CUresult (*name)(char *, int, CUdevice);
    CUresult (*uuid)(CUuuid *, CUdevice);
    CUresult (*memory)(size_t *, CUdevice);
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*pci)(char *, int, CUdevice);
    CUresult (*error_name)(CUresult, const char **);
};

/* NVML's own header is not needed for a few functions. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml {
    void *handle;
    int (*init)(void);
    int (*by_uuid)(const char *, void **);
    int (*memory)(void *, struct nvml_memory *);
    int (*release)(char *, unsigned); /* may be missing */
};

static struct rg_probe_report told = {.size = sizeof told};

static _Noreturn void report(void)
{
    for (size_t done = 0; done < sizeof told;) {
        ssize_t wrote = write(REPORT_FD, (const char *)&told + done, sizeof told - done);
        if (wrote <= 0)
            _exit(1);
        done += (size_t)wrote;
    }
    /* no destructors: a driver's may hang, and nothing of this process is left to save */
    _exit(0);
}

static _Noreturn void refuse(const char *reason, const char *detail)
{
    told.works = false;
    snprintf(told.why, sizeof told.why, "%s%s", reason, detail);
    report();
}

/* An older one lacks functions that every program needs: better said here than by the first call of the first client. */
static void refuse_old(int version)
{
    char text[200];
    if (version >= RG_DRIVER_VERSION_LEAST)
        return;
    snprintf(text, sizeof text,
             "it is of CUDA %d.%d, and drivers from CUDA %d.%d on are served; install a newer driver",
             version / 1000, version % 1000 / 10, RG_DRIVER_VERSION_LEAST / 1000,
             RG_DRIVER_VERSION_LEAST % 1000 / 10);
    refuse(text, "");
}

static void *look_up(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        refuse("it has no function ", name);
    return function;
}

static void check(const struct driver *driver, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL;
    if (!driver->error_name || driver->error_name(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    char text[256];
    snprintf(text, sizeof text, ": %s (%d)", name, (int)result);
    refuse(call, text);
}

/* Where the library came from; that of remote-gpu's own client would only lead back here. */
static void find_path(struct driver *driver, const char *given, char *path, size_t size)
{
    Dl_info info;
    char full[PATH_MAX], own[PATH_MAX], own_full[PATH_MAX];
    if (!dladdr((void *)driver->init, &info) || !info.dli_fname || !realpath(info.dli_fname, full))
        snprintf(full, sizeof full, "%s", given);
    if (rg_path_library("libcuda.so.1", own, sizeof own) == RG_OK && realpath(own, own_full) &&
        strcmp(full, own_full) == 0)
        refuse("the libcuda.so.1 found is remote-gpu's own client library, ", full);
    if (strlen(full) >= size)
        refuse("its path is too long; put the driver, or remote-gpu, into a folder with a shorter name", "");
    rg_control_text(path, size, full, strlen(full));
}

static void load(struct driver *driver, const char *library, char *path, size_t path_size)
{
    driver->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library)
        refuse(dlerror(), "");
    driver->init = look_up(driver->library, "cuInit");
    find_path(driver, library, path, path_size);
    driver->version = look_up(driver->library, "cuDriverGetVersion");
    driver->count = look_up(driver->library, "cuDeviceGetCount");
    driver->get = look_up(driver->library, "cuDeviceGet");
    driver->name = look_up(driver->library, "cuDeviceGetName");
    driver->memory = look_up(driver->library, "cuDeviceTotalMem_v2");
    driver->attribute = look_up(driver->library, "cuDeviceGetAttribute");
    /* a device is usable without these */
    driver->uuid = dlsym(driver->library, "cuDeviceGetUuid_v2");
    if (!driver->uuid)
        driver->uuid = dlsym(driver->library, "cuDeviceGetUuid");
    driver->pci = dlsym(driver->library, "cuDeviceGetPCIBusId");
    driver->error_name = dlsym(driver->library, "cuGetErrorName");
}

/* NVML beside the driver, or by name. All zero without it. */
static struct nvml load_nvml(const char *driver_path)
{
    struct nvml nvml = {0};
    char path[PATH_MAX];
    const char *slash = strrchr(driver_path, '/');
    snprintf(path, sizeof path, "%.*slibnvidia-ml.so.1", slash ? (int)(slash - driver_path + 1) : 0,
             driver_path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return nvml;
    nvml.handle = library;
    nvml.init = dlsym(library, "nvmlInit_v2");
    nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
    nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    nvml.release = dlsym(library, "nvmlSystemGetDriverVersion");
    if (!nvml.init || !nvml.by_uuid || !nvml.memory || nvml.init() != 0)
        memset(&nvml, 0, sizeof nvml);
    return nvml;
}

static bool free_by_nvml(const struct nvml *nvml, struct rg_device_info *device)
{
    if (!nvml->init)
        return false;
    char text[RG_UUID_TEXT];
    void *handle = NULL;
    struct nvml_memory memory = {0};
    if (nvml->by_uuid(rg_uuid_text(device->uuid, false, text, sizeof text), &handle) != 0 ||
        nvml->memory(handle, &memory) != 0)
        return false;
    device->memory_free = memory.free;
    return true;
}

/* The software device's memory is the machine's: no more of it is free than the machine has. */
static bool free_of_machine(uint64_t total, uint64_t *out)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kilobytes = 0;
    bool known = false;
    while (file && !known && fgets(line, sizeof line, file))
        known = sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1;
    if (file)
        fclose(file);
    *out = kilobytes << 10 < total ? kilobytes << 10 : total;
    return known;
}

static bool is_soft(const char *path)
{
    char soft[PATH_MAX], full[PATH_MAX];
    return rg_path_library("soft/libcuda.so.1", soft, sizeof soft) == RG_OK && realpath(soft, full) &&
           strcmp(full, path) == 0;
}

/* What the GPU's driver and this kernel offer to network devices; what those take shows in a session. */
static uint32_t ways_to_memory(const struct driver *driver, CUdevice handle)
{
    int dma_buf = 0, peer = 0;
    const bool module =
        access("/sys/module/nvidia_peermem", F_OK) == 0 || access("/sys/module/nv_peer_mem", F_OK) == 0;
    if (driver->attribute(&dma_buf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, handle) != CUDA_SUCCESS)
        dma_buf = 0;
    if (driver->attribute(&peer, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, handle) != CUDA_SUCCESS)
        peer = 0;
    return (dma_buf ? RG_CONTROL_GPUDIRECT_DMABUF : 0u) | (peer && module ? RG_CONTROL_GPUDIRECT_PEER : 0u);
}

/* One more than the NUMA node that is nearest to it; 0: the driver does not tell. */
static uint32_t numa_node(const struct driver *driver, CUdevice handle)
{
    int node = -1;
    if (driver->attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, handle) != CUDA_SUCCESS || node < 0)
        return 0;
    return (uint32_t)node + 1;
}

/* A kernel of a client's would read and write its worker's heap, stacks and tables of functions. */
static uint32_t reach_of_kernels(const struct driver *driver, CUdevice handle)
{
    int pageable = 0, tables = 0;
    if (driver->attribute(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, handle) != CUDA_SUCCESS)
        pageable = 0;
    if (driver->attribute(&tables, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
                          handle) != CUDA_SUCCESS)
        tables = 0;
    return (pageable ? RG_CONTROL_REACH_PAGEABLE : 0u) |
           (pageable && tables ? RG_CONTROL_REACH_PAGE_TABLES : 0u);
}

static void look_at(const struct driver *driver, const struct nvml *nvml, bool soft, int ordinal,
                    struct rg_device_info *device)
{
    CUdevice handle;
    check(driver, driver->get(&handle, ordinal), "cuDeviceGet");
    device->ordinal = (uint32_t)ordinal;
    char name[RG_CONTROL_TEXT] = "";
    check(driver, driver->name(name, sizeof name - 1, handle), "cuDeviceGetName");
    rg_control_text(device->name, sizeof device->name, name, strlen(name));
    size_t total = 0;
    check(driver, driver->memory(&total, handle), "cuDeviceTotalMem");
    device->memory_total = total;
    int major = 0, minor = 0;
    check(driver, driver->attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle),
          "cuDeviceGetAttribute");
    check(driver, driver->attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle),
          "cuDeviceGetAttribute");
    device->compute_major = (uint32_t)major;
    device->compute_minor = (uint32_t)minor;
    CUuuid uuid;
    if (driver->uuid && driver->uuid(&uuid, handle) == CUDA_SUCCESS)
        memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
    char pci[32] = "";
    if (driver->pci && driver->pci(pci, sizeof pci - 1, handle) == CUDA_SUCCESS)
        rg_control_text(device->pci, sizeof device->pci, pci, strlen(pci));
    device->direct = ways_to_memory(driver, handle);
    device->host_reach = reach_of_kernels(driver, handle);
    device->numa_node = numa_node(driver, handle);
    device->memory_free_known =
        soft ? free_of_machine(device->memory_total, &device->memory_free) : free_by_nvml(nvml, device);
}

/* For those who look for a fault between the two machines. */
static void describe_machine(struct rg_driver *out)
{
    struct utsname name;
    if (uname(&name) == 0)
        rg_control_text(out->machine.kernel, sizeof out->machine.kernel, name.release, strlen(name.release));
    rg_rdma_describe(out->machine.rdma, sizeof out->machine.rdma);
    const char *gpus[RG_DEVICES_MAX];
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    for (uint32_t i = 0; i < out->n_devices; i++)
        gpus[i] = out->devices[i].pci;
    rg_rails_describe(rails, rg_rails_here(gpus, out->n_devices, rails, RG_CONTROL_ADDRESSES),
                      out->machine.rails, sizeof out->machine.rails);
}

int main(int argc, char **argv)
{
    static struct rg_sandbox_policy policy;
    const bool sandbox = argc == 5 && strcmp(argv[3], "--sandbox") == 0;
    if ((argc != 3 && !sandbox) || strcmp(argv[1], "--driver") != 0) {
        rg_error("probe is a part of remote-gpud; usage: probe --driver LIBRARY");
        return 125;
    }
    if (!rg_sandbox_begin(sandbox ? argv[4] : NULL, &policy))
        return 1;
    struct rg_driver *found = &told.driver;
    struct driver driver = {0};
    load(&driver, argv[2], found->info.path, sizeof found->info.path);
    check(&driver, driver.init(0), "cuInit");
    int version = 0, count = 0;
    check(&driver, driver.version(&version), "cuDriverGetVersion");
    refuse_old(version);
    found->info.version = (uint32_t)version;
    check(&driver, driver.count(&count), "cuDeviceGetCount");
    if (count <= 0)
        refuse("it has no device", "");
    if (count > RG_DEVICES_MAX)
        count = RG_DEVICES_MAX;

    struct nvml nvml = load_nvml(found->info.path);
    bool soft = is_soft(found->info.path);
    char release[80] = "";
    if (nvml.release && nvml.release(release, sizeof release) == 0)
        rg_control_text(found->info.release, sizeof found->info.release, release,
                        strnlen(release, sizeof release));
    for (int i = 0; i < count; i++)
        look_at(&driver, &nvml, soft, i, &found->devices[i]);
    found->n_devices = (uint32_t)count;
    rg_topology_look(nvml.handle, found->devices, found->n_devices);
    told.divided = rg_probe_parts(nvml.handle, told.parts, &told.n_parts);
    for (uint32_t i = 0; soft && i < told.n_parts; i++)
        told.parts[i].memory_free_known =
            free_of_machine(told.parts[i].memory_total, &told.parts[i].memory_free);
    describe_machine(found);
    told.works = true;
    report();
}
