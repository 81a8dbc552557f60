/*
 * fake_management.c - NVIDIA's management library as the server's probe asks it, for the devices of fake_driver.c:
 * the release number of the driver, and free memory, which the file FAKE_MEMORY_FILE says ("used bytes").
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *path = getenv("FAKE_MEMORY_FILE");
    FILE *file = path ? fopen(path, "re") : NULL;
    int got = file ? fscanf(file, "%llu", &out->used) : 0;
    if (file)
        fclose(file);
    out->total = (unsigned long long)(size_t)device << 33;
    out->free = out->total - out->used;
    return got == 1 ? 0 : 3;
}
