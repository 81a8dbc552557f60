/*
 * fake_management.c - NVIDIA's management library as the server's probe asks it, for the devices of fake_driver.c:
 * the release number of the driver, and free memory, which the file CUDA_FAKE_MEMORY_FILE says ("used bytes"). Of what is
 * forwarded, one function of each kind of signature gives values that depend on all its arguments; one crashes.
 */
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

struct memory {
    unsigned long long total, free, used;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *out);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return snprintf(text, size, "599.12.34") < (int)size ? 0 : 7;
}

/* The first byte of a fake device's identity is 0x10 times its number, counted from 1. */
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    unsigned first;
    if (sscanf(uuid, "GPU-%2x", &first) != 1)
        return 6;
    *device = (void *)(size_t)(first / 0x10);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
    const char *path = getenv("CUDA_FAKE_MEMORY_FILE");
    FILE *file = path ? fopen(path, "re") : NULL;
    int got = file ? fscanf(file, "%llu", &out->used) : 0;
    if (file)
        fclose(file);
    out->total = (unsigned long long)(size_t)device << 33;
    out->free = out->total - out->used;
    return got == 1 ? 0 : 3;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *out);

/* MiB: 3 reserved, two for each device's number used. */
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *out)
{
    if (out->version != (sizeof *out | 2u << 24))
        return 25;
    out->total = (unsigned long long)(size_t)device << 33;
    out->reserved = 3ull << 20;
    out->used = (unsigned long long)(size_t)device << 21;
    out->free = out->total - out->used - out->reserved;
    return 0;
}

/* --- what the forwarded questions are tested with ----------------------------------------------------------- */

#define SUCCESS          0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED    3
#define TOO_SMALL        7
#define MISMATCH         25

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};
struct temperature {
    unsigned version;
    int sensor, degrees;
};
struct sample {
    unsigned long long time, value;
};
struct utilisation {
    unsigned gpu, memory;
};

EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out);
EXPORT int nvmlDeviceGetTemperatureV(void *device, struct temperature *out);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *out);
EXPORT int nvmlDeviceGetSerial(void *device, char *text, unsigned size);
EXPORT int nvmlDeviceGetInforomVersion(void *device, int object, char *text, unsigned size);
EXPORT int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count,
                                                unsigned *clocks);
EXPORT int nvmlDeviceGetSamples(void *device, int kind, unsigned long long since, int *type, unsigned *count,
                                struct sample *out);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *device, void *second, int *level);
EXPORT int nvmlDeviceGetP2PStatus(void *device, void *second, int which, int *status);
EXPORT int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields);
EXPORT int nvmlDeviceGetEccMode(void *device, int *now, int *next);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out);
EXPORT int nvmlDeviceGetIrqNum(void *device, unsigned *out);
EXPORT int nvmlDeviceGetFanSpeed(void *device, unsigned *out);
EXPORT int nvmlDeviceGetComputeMode(void *device, int *mode);

static unsigned number_of(void *device)
{
    return (unsigned)(size_t)device;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    *out = 40 + 10 * number_of(device) + (unsigned)sensor;
    return sensor < 3 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetTemperatureV(void *device, struct temperature *out)
{
    if (out->version != (sizeof *out | 1u << 24))
        return MISMATCH;
    out->degrees = -40 - (int)number_of(device) - out->sensor;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *out)
{
    *out = (struct utilisation){10 * number_of(device), 7};
    return SUCCESS;
}

int nvmlDeviceGetSerial(void *device, char *text, unsigned size)
{
    return snprintf(text, size, "SERIAL-%u", number_of(device)) < (int)size ? SUCCESS : TOO_SMALL;
}

int nvmlDeviceGetInforomVersion(void *device, int object, char *text, unsigned size)
{
    return snprintf(text, size, "%u.%d", number_of(device), object) < (int)size ? SUCCESS : TOO_SMALL;
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory, unsigned *count, unsigned *clocks)
{
    const unsigned room = *count;
    *count = 3;
    if (room < 3)
        return TOO_SMALL;
    for (unsigned i = 0; i < 3; i++)
        clocks[i] = memory + number_of(device) * 10 + i;
    return SUCCESS;
}

int nvmlDeviceGetSamples(void *device, int kind, unsigned long long since, int *type, unsigned *count,
                         struct sample *out)
{
    *type = kind + 1;
    if (out)
        for (unsigned i = 0; i < 2 && i < *count; i++)
            out[i] = (struct sample){since + i, number_of(device)};
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(void *device, void *second, int *level)
{
    *level = 10 * (int)(2 * number_of(second) - number_of(device)); /* 10, 20, … are levels */
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *device, void *second, int which, int *status)
{
    *status = (int)(100 * number_of(device) + 10 * number_of(second)) + which;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields)
{
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].id == 99 ? NOT_SUPPORTED : SUCCESS;
        fields[i].type = 1;
        fields[i].value = fields[i].id * 1000ull + number_of(device) + fields[i].scope;
    }
    return SUCCESS;
}

int nvmlDeviceGetEccMode(void *device, int *now, int *next)
{
    *now = 1;
    *next = (int)number_of(device) - 1;
    return SUCCESS;
}

/* Another value each time it is asked, so that a test can see when it is. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out)
{
    static unsigned long long count;
    *out = (1ull << 40) * number_of(device) + ++count;
    return SUCCESS;
}

int nvmlDeviceGetIrqNum(void *device, unsigned *out)
{
    (void)device;
    (void)out;
    abort();
}

int nvmlDeviceGetFanSpeed(void *device, unsigned *out)
{
    (void)device;
    (void)out;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetComputeMode(void *device, int *mode)
{
    *mode = (int)number_of(device) + 1;
    return SUCCESS;
}
