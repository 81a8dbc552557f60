/*
 * device.c - NVML's functions about one device.
 *
 * Each looks the device up, which tells a library that is not initialised and a handle that is none, and
 * answers from what the server said of it.
 */
#include "client/nvml/functions.h"
#include "client/nvml/nvml.h"
#include "client/query/query.h"
#include "common/base/uuid_text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DOMAIN_LEGACY_MAX 0xffffu

int nvmlDeviceGetHandleByIndex_v2(unsigned index, rg_nvml_device *device)
{
    RG_TRY(rg_nvml_started_with(device));
    return rg_nvml_handle(index, device);
}

/* The first instance of a device for which `is_it` holds. */
static bool find_instance(rg_nvml_device whole, const void *wanted,
                          bool (*is_it)(const struct rg_device_info *info, const void *wanted),
                          rg_nvml_device *out)
{
    struct rg_device_info info;
    rg_nvml_device instance;
    for (unsigned i = 0; rg_nvml_instance(whole, i, &instance) == RG_NVML_SUCCESS; i++)
        if (rg_nvml_look(instance, &info, NULL) == RG_NVML_SUCCESS && is_it(&info, wanted)) {
            *out = instance;
            return true;
        }
    return false;
}

/* The first device for which `is_it` holds. */
static int find(const void *wanted, bool (*is_it)(const struct rg_device_info *info, const void *wanted),
                rg_nvml_device *out)
{
    unsigned count = 0;
    RG_TRY(rg_nvml_count(&count));
    for (unsigned i = 0; i < count; i++) {
        struct rg_device_info info;
        rg_nvml_device device;
        RG_TRY(rg_nvml_handle(i, &device));
        RG_TRY(rg_nvml_look(device, &info, NULL));
        if (is_it(&info, wanted)) {
            *out = device;
            return RG_NVML_SUCCESS;
        }
        if (find_instance(device, wanted, is_it, out))
            return RG_NVML_SUCCESS;
    }
    return RG_NVML_NOT_FOUND;
}

/* A GPU's may stand without "GPU-", as cuda.core asks for it. */
static bool has_uuid(const struct rg_device_info *info, const void *wanted)
{
    char text[RG_UUID_TEXT];
    return strcasecmp(rg_uuid_text(info->uuid, info->mig, text, sizeof text), wanted) == 0 ||
           (!info->mig && strcasecmp(text + RG_UUID_PREFIX, wanted) == 0);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, rg_nvml_device *device)
{
    RG_TRY(rg_nvml_started_with(uuid && device));
    return find(uuid, has_uuid, device);
}

static bool has_uuid_bytes(const struct rg_device_info *info, const void *wanted)
{
    return memcmp(info->uuid, wanted, sizeof info->uuid) == 0;
}

int nvmlDeviceGetHandleByUUIDV(const struct rg_nvml_uuid *uuid, rg_nvml_device *device)
{
    RG_TRY(rg_nvml_started_with(uuid && device));
    if (uuid->version != RG_NVML_UUID)
        return RG_NVML_VERSION_MISMATCH;
    if (uuid->kind == RG_NVML_UUID_BYTES)
        return find(uuid->bytes, has_uuid_bytes, device);
    if (uuid->kind != RG_NVML_UUID_TEXT || !memchr(uuid->text, '\0', sizeof uuid->text))
        return RG_NVML_INVALID_ARGUMENT;
    return find(uuid->text, has_uuid, device);
}

static bool has_address(const struct rg_device_info *info, const void *wanted)
{
    struct rg_nvml_address address;
    return rg_nvml_parse_address(info->pci, &address) && memcmp(&address, wanted, sizeof address) == 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, rg_nvml_device *device)
{
    struct rg_nvml_address address;
    RG_TRY(rg_nvml_started_with(id && device && rg_nvml_parse_address(id, &address)));
    return find(&address, has_address, device);
}

enum rg_nvml_return rg_nvml_started_with(bool given)
{
    RG_TRY(rg_nvml_started());
    return given ? RG_NVML_SUCCESS : RG_NVML_INVALID_ARGUMENT;
}

enum rg_nvml_return rg_nvml_look_for(rg_nvml_device device, struct rg_device_info *info, unsigned *index,
                                     const void *out)
{
    RG_TRY(rg_nvml_look(device, info, index));
    return out ? RG_NVML_SUCCESS : RG_NVML_INVALID_ARGUMENT;
}

int nvmlDeviceGetName(rg_nvml_device device, char *name, unsigned length)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look(device, &info, NULL));
    return rg_nvml_put_text(name, length, info.name);
}

int nvmlDeviceGetUUID(rg_nvml_device device, char *uuid, unsigned length)
{
    struct rg_device_info info;
    char text[48];
    RG_TRY(rg_nvml_look(device, &info, NULL));
    return rg_nvml_put_text(uuid, length, rg_uuid_text(info.uuid, info.mig, text, sizeof text));
}

int nvmlDeviceGetIndex(rg_nvml_device device, unsigned *index)
{
    struct rg_device_info info;
    unsigned at;
    RG_TRY(rg_nvml_look_for(device, &info, &at, index));
    *index = at;
    return RG_NVML_SUCCESS;
}

/* There is no device file here; the number is that of the device on its server. */
int nvmlDeviceGetMinorNumber(rg_nvml_device device, unsigned *number)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, number));
    *number = info.ordinal;
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetBrand(rg_nvml_device device, int *brand)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, brand));
    *brand = (int)rg_nvml_brand_of(info.name);
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetArchitecture(rg_nvml_device device, unsigned *value)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, value));
    *value = rg_nvml_architecture_of(info.compute_major, info.compute_minor);
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(rg_nvml_device device, int *major, int *minor)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look(device, &info, NULL));
    if (!major || !minor)
        return RG_NVML_INVALID_ARGUMENT;
    *major = (int)info.compute_major;
    *minor = (int)info.compute_minor;
    return RG_NVML_SUCCESS;
}

/* --- PCI ------------------------------------------------------------------------------------------------ */

/* Vendor, device and subsystem, if the server's library tells them. */
static void ask_pci_ids(rg_nvml_device device, struct rg_nvml_pci *pci)
{
    struct rg_nvml_pci there;
    if (rg_nvml_ask(RG_QUESTION_nvmlDeviceGetPciInfo_v3, device, (const uintptr_t[]){(uintptr_t)&there}) !=
        RG_NVML_SUCCESS)
        return;
    pci->device_id = there.device_id;
    pci->subsystem_id = there.subsystem_id;
}

int nvmlDeviceGetPciInfo_v3(rg_nvml_device device, struct rg_nvml_pci *pci)
{
    struct rg_device_info info;
    struct rg_nvml_address address;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, pci));
    if (!rg_nvml_parse_address(info.pci, &address))
        return RG_NVML_NOT_SUPPORTED; /* the driver there does not tell it either */
    *pci = (struct rg_nvml_pci){.domain = address.domain, .bus = address.bus, .device = address.device};
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.%X", address.domain, address.bus,
             address.device, address.function);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.%X",
             address.domain & DOMAIN_LEGACY_MAX, address.bus, address.device, address.function);
    ask_pci_ids(device, pci);
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetPciInfoExt(rg_nvml_device device, struct rg_nvml_pci_extended *pci)
{
    struct rg_nvml_pci known;
    struct rg_nvml_pci_extended there = {.version = RG_NVML_PCI_EXTENDED};
    if (!pci)
        return nvmlDeviceGetPciInfo_v3(device, NULL);
    RG_TRY(nvmlDeviceGetPciInfo_v3(device, &known));
    if (pci->version != RG_NVML_PCI_EXTENDED)
        return RG_NVML_VERSION_MISMATCH;
    if (rg_nvml_ask(RG_QUESTION_nvmlDeviceGetPciInfoExt, device, (const uintptr_t[]){(uintptr_t)&there}) !=
        RG_NVML_SUCCESS)
        there.base_class = there.sub_class = 0;
    *pci = (struct rg_nvml_pci_extended){.version = RG_NVML_PCI_EXTENDED,
                                         .domain = known.domain,
                                         .bus = known.bus,
                                         .device = known.device,
                                         .device_id = known.device_id,
                                         .subsystem_id = known.subsystem_id,
                                         .base_class = there.base_class,
                                         .sub_class = there.sub_class};
    memcpy(pci->bus_id, known.bus_id, sizeof pci->bus_id);
    return RG_NVML_SUCCESS;
}

static int old_pci(rg_nvml_device device, struct rg_nvml_pci_v2 *out, size_t size)
{
    struct rg_nvml_pci now;
    int result = nvmlDeviceGetPciInfo_v3(device, &now);
    if (result == RG_NVML_UNINITIALIZED || result == RG_NVML_INVALID_ARGUMENT)
        return result;
    if (!out)
        return RG_NVML_INVALID_ARGUMENT;
    if (result != RG_NVML_SUCCESS)
        return result;
    struct rg_nvml_pci_v2 old = {.domain = now.domain, .bus = now.bus, .device = now.device};
    memcpy(old.bus_id, now.bus_id_legacy, sizeof old.bus_id);
    memcpy(out, &old, size);
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v2(rg_nvml_device device, struct rg_nvml_pci_v2 *pci)
{
    return old_pci(device, pci, sizeof *pci);
}

int nvmlDeviceGetPciInfo(rg_nvml_device device, struct rg_nvml_pci_v2 *pci)
{
    return old_pci(device, pci, RG_NVML_PCI_V1_SIZE);
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* With total, free and used, which go together: one that is not known leaves nothing to tell. */
static int memory_of(rg_nvml_device device, struct rg_nvml_memory *out)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_now(device, &info));
    if (!info.memory_free_known || info.memory_free > info.memory_total)
        return RG_NVML_NOT_SUPPORTED;
    *out = (struct rg_nvml_memory){
        .total = info.memory_total, .free = info.memory_free, .used = info.memory_total - info.memory_free};
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(rg_nvml_device device, struct rg_nvml_memory *memory)
{
    struct rg_nvml_memory now;
    RG_TRY(rg_nvml_started_with(memory));
    RG_TRY(memory_of(device, &now));
    *memory = now;
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(rg_nvml_device device, struct rg_nvml_memory_v2 *memory)
{
    struct rg_nvml_memory now;
    RG_TRY(rg_nvml_started_with(memory));
    if (memory->version != RG_NVML_MEMORY_V2)
        return RG_NVML_VERSION_MISMATCH;
    RG_TRY(memory_of(device, &now));
    /* what the driver there keeps for itself is part of what is used */
    memory->total = now.total;
    memory->reserved = 0;
    memory->free = now.free;
    memory->used = now.used;
    return RG_NVML_SUCCESS;
}

/* --- processes ------------------------------------------------------------------------------------------ */

/*
 * The ids for a caller with room for *count; *count is how many there are. INSUFFICIENT_SIZE: no room, none
 * is told.
 */
static int processes_of(rg_nvml_device device, unsigned *count, const void *room, struct rg_nvml_user *users)
{
    unsigned there = 0;
    RG_TRY(rg_nvml_started_with(count && (!*count || room)));
    RG_TRY(rg_nvml_processes(device, users, RG_NVML_PROCESSES_MAX, &there));
    const bool fits = there <= *count;
    *count = there;
    return fits ? RG_NVML_SUCCESS : RG_NVML_INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses(rg_nvml_device device, unsigned *count,
                                         struct rg_nvml_process_v1 *processes)
{
    struct rg_nvml_user users[RG_NVML_PROCESSES_MAX];
    RG_TRY(processes_of(device, count, processes, users));
    for (unsigned i = 0; i < *count; i++)
        processes[i] = (struct rg_nvml_process_v1){.pid = users[i].pid, .memory = users[i].memory};
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(rg_nvml_device device, unsigned *count,
                                            struct rg_nvml_process *processes)
{
    struct rg_nvml_user users[RG_NVML_PROCESSES_MAX];
    RG_TRY(processes_of(device, count, processes, users));
    for (unsigned i = 0; i < *count; i++)
        processes[i] = (struct rg_nvml_process){.pid = users[i].pid,
                                                .memory = users[i].memory,
                                                .gpu_instance = RG_NVML_INSTANCE_UNKNOWN,
                                                .compute_instance = RG_NVML_INSTANCE_UNKNOWN};
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetP2PStatus(rg_nvml_device first, rg_nvml_device second, int which, int *status)
{
    const int result =
        rg_nvml_ask(RG_QUESTION_nvmlDeviceGetP2PStatus, first,
                    (const uintptr_t[]){(uintptr_t)second, (uintptr_t)which, (uintptr_t)status});
    if (result != RG_NVML_NOT_SUPPORTED)
        return result;
    *status = RG_NVML_P2P_STATUS_UNKNOWN; /* of different servers, or of one that cannot be asked */
    return RG_NVML_SUCCESS;
}

/* Each value has a result of its own, so that one which nobody knows does not hide the others. */
int nvmlDeviceGetFieldValues(rg_nvml_device device, int count, struct rg_nvml_field *fields)
{
    const uintptr_t words[] = {(uintptr_t)(unsigned)(count < 0 ? 0 : count), (uintptr_t)fields};
    RG_TRY(rg_nvml_started_with(count > 0 && fields));
    const int result = rg_nvml_ask(RG_QUESTION_nvmlDeviceGetFieldValues, device, words);
    if (result != RG_NVML_NOT_SUPPORTED)
        return result;
    for (int i = 0; i < count; i++)
        fields[i] = (struct rg_nvml_field){
            .id = fields[i].id, .scope = fields[i].scope, .result = RG_NVML_NOT_SUPPORTED};
    return RG_NVML_SUCCESS;
}

int nvmlDeviceGetHandleBySerial(const char *serial, rg_nvml_device *device)
{
    unsigned count = 0;
    RG_TRY(rg_nvml_started_with(serial && device));
    RG_TRY(rg_nvml_count(&count));
    for (unsigned i = 0; i < count; i++) {
        char text[64];
        rg_nvml_device one;
        if (rg_nvml_handle(i, &one) != RG_NVML_SUCCESS ||
            rg_nvml_ask(RG_QUESTION_nvmlDeviceGetSerial, one,
                        (const uintptr_t[]){(uintptr_t)text, sizeof text}) != RG_NVML_SUCCESS ||
            strcmp(text, serial) != 0)
            continue;
        *device = one;
        return RG_NVML_SUCCESS;
    }
    return RG_NVML_NOT_FOUND;
}
