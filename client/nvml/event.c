/*
 * event.c - NVML's event sets, units, and what nvidia-smi asks of the library itself.
 *
 * Events of a server's GPU are not delivered: no device supports any type, and a set that waits waits in
 * vain. Tools make sets at their start all the same and end if they cannot.
 */
#include "client/nvml/functions.h"
#include "client/nvml/nvml.h"
#include "common/base/clock.h"
#include "common/base/poll.h"

#include <stdlib.h>
#include <string.h>

int nvmlDeviceGetSupportedEventTypes(rg_nvml_device device, unsigned long long *types)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, types));
    *types = 0;
    return RG_NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(rg_nvml_device device, unsigned long long types, void *set)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look_for(device, &info, NULL, set));
    return types ? RG_NVML_NOT_SUPPORTED : RG_NVML_SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
    RG_TRY(rg_nvml_started_with(set));
    *set = calloc(1, 1); /* nothing but its address */
    return *set ? RG_NVML_SUCCESS : RG_NVML_MEMORY;
}

int nvmlEventSetFree(void *set)
{
    RG_TRY(rg_nvml_started_with(set));
    free(set);
    return RG_NVML_SUCCESS;
}

int nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds)
{
    RG_TRY(rg_nvml_started_with(set && data));
    const uint64_t until = rg_now_ns() + milliseconds * 1000000ull;
    for (uint64_t now; (now = rg_now_ns()) < until;)
        rg_pause(until - now);
    return RG_NVML_TIMEOUT;
}

static int count_none(unsigned *count)
{
    RG_TRY(rg_nvml_started_with(count));
    *count = 0;
    return RG_NVML_SUCCESS;
}

/* Units are racks of S-class systems, which no server is known to be. */
int nvmlUnitGetCount(unsigned *count)
{
    return count_none(count);
}

/* Devices that a driver leaves out on purpose; the list here holds none such. */
int nvmlGetExcludedDeviceCount(unsigned *count)
{
    return count_none(count);
}

/* --- the internal table --------------------------------------------------------------------------------- */

/*
 * nvidia-smi looks for a table of functions that no header describes and calls a library without it one of
 * another version. What is known: the first word is the table's size in bytes, and a function of which
 * nvidia-smi 535 hears that it is not supported is done without.
 */
#define TABLE_WORDS 256

static int internal_unsupported(void)
{
    return RG_NVML_NOT_SUPPORTED;
}

int nvmlInternalGetExportTable(const void **table, const void *id)
{
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static uintptr_t words[TABLE_WORDS];
    RG_TRY(rg_nvml_started_with(table && id));
    if (memcmp(id, known, sizeof known) != 0)
        return RG_NVML_NOT_FOUND;
    /* every thread writes the same */
    for (size_t i = 1; i < TABLE_WORDS; i++)
        __atomic_store_n(&words[i], (uintptr_t)internal_unsupported, __ATOMIC_RELAXED);
    __atomic_store_n(&words[0], sizeof words, __ATOMIC_RELEASE);
    *table = words;
    return RG_NVML_SUCCESS;
}
