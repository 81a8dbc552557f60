/*
 * device.c - the devices: which there are, and what makes each what it is. What they say of themselves is in device_attributes.c, the calls
 * that name and find them in device_calls.c.
 *
 * "Software GPU" is a device of compute capability 13.0 (SOFTGPU_CC) whose multiprocessors are the machine's
 * cores. SOFTGPU_DEVICES=N makes N devices, SOFTGPU_MEMORY=SIZE the memory of each; the
 * machine's cores work for all of them. CUDA_VISIBLE_DEVICES says which of them are seen and in which order
 * (common/cuda/visible_devices.h).
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/cuda/mps.h"
#include "common/cuda/program/capability.h"
#include "common/cuda/visible_devices.h"
#include "softgpu/driver/behaviour/behave.h"
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/core/mig.h"
#include "softgpu/driver/core/topology.h"
#include "softgpu/exec/exec.h"

struct sg_device *sg_device(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < sg_state.n_devices ? &sg_state.devices[ordinal] : NULL;
}

static uint64_t memory_by_environment(int n_devices)
{
    const char *text = secure_getenv("SOFTGPU_MEMORY");
    uint64_t size = 0;
    char why[160];
    if (text != NULL && *text != '\0') {
        if (rg_parse_size(text, &size, why, sizeof why) == RG_OK && size >= 1u << 20)
            return size & ~4095ull;
        rg_warn("SOFTGPU_MEMORY: %s; at least 1M is needed: using half of the machine's memory",
                size == 0 ? why : text);
    }
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return ram / 2 / (uint64_t)n_devices & ~((2ull << 20) - 1);
}

/*
 * SOFTGPU_SHARES=BYTES,…: of each device that is visible, no more than so many bytes; 0: all. What a server has given the session.
 */
static void limit_memory(int n_devices)
{
    const char *at = secure_getenv("SOFTGPU_SHARES");
    for (int i = 0; i < n_devices && at != NULL && *at != '\0'; i++) {
        char *end;
        const unsigned long long bytes = strtoull(at, &end, 10);
        if (bytes != 0 && bytes < sg_state.devices[i].memory_total)
            sg_state.devices[i].memory_total = bytes & ~4095ull; /* what can be allocated of it */
        at = *end == ',' ? end + 1 : NULL;
    }
}

static int devices_by_environment(void)
{
    const char *text = secure_getenv("SOFTGPU_DEVICES");
    int64_t n = 1;
    char why[160];
    if (text != NULL && *text != '\0' &&
        rg_parse_integer(text, 1, SG_DEVICES_MAX, &n, why, sizeof why) != RG_OK) {
        rg_warn("SOFTGPU_DEVICES: %s: using 1", why);
        n = 1;
    }
    return (int)n;
}

/*
 * Libraries choose by it what of their code they load, and cuBLASLt does that by itself: where it has machine
 * code that fits, it takes that, and PTX only for devices that are newer than it is. So this device says that
 * it is newer than all of them, but for programs that compile for exactly what they find
 * (common/cuda/program/capability.h).
 */
static uint32_t capability(void)
{
    const char *text = secure_getenv("SOFTGPU_CC");
    const unsigned wish = text && *text ? rg_capability_parse(text) : rg_capability_wanted();
    if (wish >= SG_MAJOR_MIN * 10)
        return wish;
    if (text == NULL || *text == '\0')
        return SG_CAPABILITY_DEFAULT;
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        rg_warn("SOFTGPU_CC: '%s' is no compute capability from %d.0 to 99.9: using %d.%d", text,
                SG_MAJOR_MIN, SG_CAPABILITY_DEFAULT / 10, SG_CAPABILITY_DEFAULT % 10);
    return SG_CAPABILITY_DEFAULT;
}

/*
 * A number that stays the same on one machine. Not gethostid: it may ask name servers, and what they answer depends on where a
 * process may connect to.
 */
static uint64_t machine_number(void)
{
    char text[64] = "";
    struct utsname name;
    uint64_t x = 0xCBF29CE484222325ull;
    const int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < size; i++)
        x = (x ^ (unsigned char)text[i]) * 0x100000001B3ull;
    if (uname(&name) == 0)
        for (const char *at = name.nodename; *at; at++)
            x = (x ^ (unsigned char)*at) * 0x100000001B3ull;
    return x;
}

/* A UUID that stays the same on one machine: 'softgpu', the device's number, and the machine's. */
static CUuuid make_uuid(int number)
{
    CUuuid uuid;
    unsigned char *bytes = (unsigned char *)uuid.bytes;
    uint64_t x = machine_number() * 0x9E3779B97F4A7C15ull + (uint64_t)number;
    memcpy(bytes, "softgpu", 7);
    for (int i = 7; i < 15; i++) {
        x ^= x >> 29;
        x *= 0xBF58476D1CE4E5B9ull;
        bytes[i] = (unsigned char)(x >> 56);
    }
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    bytes[15] = (unsigned char)number;
    return uuid;
}

/* The UUID of a device's instance: the last but one byte tells it from others. */
static CUuuid make_instance_uuid(int number, int index)
{
    CUuuid uuid = make_uuid(number);
    uuid.bytes[14] = (char)(uuid.bytes[14] ^ (index + 1));
    return uuid;
}

/* Number `number` of `n` devices, which is visible as `ordinal`. */
static void describe(struct sg_device *device, int ordinal, int number, int n, const struct sg_place *place)
{
    device->ordinal = ordinal;
    device->number = number;
    snprintf(device->name, sizeof device->name, "Software GPU");
    device->uuid = make_uuid(number);
    device->pci_domain = 0x5347; /* no real domain of the host's: "SG" */
    device->pci_bus = 1 + number;
    device->numa_node = place->numa_node;
    device->nvlink = place->nvlink;
    device->pcie = place->pcie;
    device->multiprocessors = (int)sg_exec_cores();
    device->memory_total = memory_by_environment(n);
    if (sg_behaviour()->nvidia && n > 1) /* of several, each another size */
        device->memory_total -= device->memory_total / 16 * (uint64_t)(number % 8) & ~((2ull << 20) - 1);
}

/* The instance of a device that is described already. */
static void describe_instance(struct sg_device *device, const struct sg_mig_instance *instance)
{
    device->mig = true;
    device->instance = instance->index;
    device->whole = device->uuid;
    device->uuid = make_instance_uuid(instance->number, instance->index);
    device->multiprocessors = instance->multiprocessors;
    device->memory_total = instance->memory;
    snprintf(device->name, sizeof device->name, "Software GPU MIG %dc.%llumb", instance->multiprocessors,
             (unsigned long long)(instance->memory >> 20));
}

/*
 * Where MPS orders the work, this process's part of the multiprocessors is all that it has: as many cores work for it. Without a
 * folder in the environment there is no MPS: unlike NVIDIA's driver, this one does not look for it at the usual place.
 */
static void share_by_mps(void)
{
    const char *folder = secure_getenv(RG_MPS_FOLDER), *text = secure_getenv(RG_MPS_PERCENT);
    int64_t percent = 100;
    char why[PATH_MAX + 200];
    if (folder == NULL || !rg_mps_answers(folder, why, sizeof why))
        return;
    sg_state.mps = true;
    if (text != NULL && *text != '\0' && rg_parse_integer(text, 1, 100, &percent, why, sizeof why) != RG_OK) {
        rg_warn(RG_MPS_PERCENT ": %s: using 100", why);
        percent = 100;
    }
    const unsigned cores = sg_exec_cores() * (unsigned)percent / 100;
    sg_exec_limit_cores(cores > 0 ? cores : 1);
}

/* What a process may see: devices by their numbers, then the instances of divided ones. */
struct choice {
    int n, n_instances;
    struct sg_mig_instance instances[SG_DEVICES_MAX];
};

/* The first instance of a device; -1: it is not divided. */
static int first_instance(const struct choice *choice, int number)
{
    for (int i = 0; i < choice->n_instances; i++)
        if (choice->instances[i].number == number)
            return i;
    return -1;
}

/*
 * Which are visible: numbers of devices, or n and more: instances. As NVIDIA's driver has it, a divided device stands for its first
 * instance, and who sees an instance sees one, and nothing else.
 */
static int choose(const struct choice *choice, int out[2 * SG_DEVICES_MAX])
{
    uint8_t uuids[2 * SG_DEVICES_MAX][16];
    bool mig[2 * SG_DEVICES_MAX];
    const char *text = secure_getenv("CUDA_VISIBLE_DEVICES");
    const int all = rg_visible_devices_by_uuid(text) ? choice->n + choice->n_instances : choice->n;
    for (int i = 0; i < all; i++) {
        const struct sg_mig_instance *instance = &choice->instances[i < choice->n ? 0 : i - choice->n];
        const CUuuid uuid =
            i < choice->n ? make_uuid(i) : make_instance_uuid(instance->number, instance->index);
        memcpy(uuids[i], uuid.bytes, sizeof uuids[i]);
        mig[i] = i >= choice->n;
    }
    const int visible = rg_visible_devices_choose(text, (const uint8_t(*)[16])uuids, mig, all, out);
    for (int i = 0; i < visible; i++) {
        const int instance = out[i] < choice->n ? first_instance(choice, out[i]) : out[i] - choice->n;
        if (instance < 0)
            continue;
        out[0] = choice->n + instance;
        return 1;
    }
    return visible;
}

CUresult sg_devices_init(void)
{
    struct sg_place places[SG_DEVICES_MAX];
    struct choice choice = {.n = devices_by_environment()};
    int numbers[2 * SG_DEVICES_MAX];
    choice.n_instances = sg_mig_instances(choice.n, choice.instances);
    const int n = choice.n, visible = choose(&choice, numbers);
    if (visible == 0)
        return CUDA_ERROR_NO_DEVICE;
    sg_places(places, n);
    if (numbers[0] >= n) {
        const struct sg_mig_instance *instance = &choice.instances[numbers[0] - n];
        sg_exec_limit_cores((unsigned)instance->multiprocessors);
        describe(&sg_state.devices[0], 0, instance->number, n, &places[instance->number]);
        describe_instance(&sg_state.devices[0], instance);
    }
    share_by_mps(); /* of an instance, where it is one */
    for (int i = 0; i < visible && numbers[0] < n; i++)
        describe(&sg_state.devices[i], i, numbers[i], n, &places[numbers[i]]);
    sg_state.devices[0].multiprocessors = (int)sg_exec_cores();
    limit_memory(visible);
    sg_state.n_devices = visible;
    sg_state.capability = capability();
    return CUDA_SUCCESS;
}

int sg_devices_all(struct sg_device out[2 * SG_DEVICES_MAX])
{
    struct sg_mig_instance instances[SG_DEVICES_MAX];
    const int n = devices_by_environment();
    struct sg_place places[SG_DEVICES_MAX];
    sg_places(places, n);
    const int n_instances = sg_mig_instances(n, instances);
    for (int i = 0; i < n; i++)
        describe(&out[i], i, i, n, &places[i]);
    for (int i = 0; i < n_instances; i++) {
        const int number = instances[i].number;
        out[number].divided = true;
        describe(&out[n + i], n + i, number, n, &places[number]);
        describe_instance(&out[n + i], &instances[i]);
    }
    return n + n_instances;
}

uint32_t sg_capability(void)
{
    return sg_enter() == CUDA_SUCCESS ? sg_state.capability : capability();
}

unsigned sg_shared_per_multiprocessor(void)
{
    const uint32_t capability = sg_state.capability;
    if (capability < 80)
        return 64 * 1024;
    if (capability < 90)
        return (capability == 80 || capability == 87 ? 164 : 100) * 1024;
    return (capability / 10 == 12 ? 100 : 228) * 1024;
}

unsigned sg_shared_reserved(void)
{
    return sg_state.capability < 80 ? 0 : 1024;
}

unsigned sg_shared_optin(void)
{
    return sg_shared_per_multiprocessor() - sg_shared_reserved();
}
