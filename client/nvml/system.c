/*
 * system.c - NVML's functions that are not about one device, what is not supported, and the table of all.
 */
#include "client/nvml/functions.h"
#include "client/nvml/nvml.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"

#include <fcntl.h>
#include <stdio.h>

#define INTERFACE_VERSION "13" /* of NVML, whose functions are as they are there */

__attribute__((visibility("default"))) void *const *rg_client_nvml_entry(size_t count);

int nvmlInitWithFlags(unsigned flags)
{
    /* neither flag makes a difference: no GPU is no failure here, and none is attached */
    (void)flags;
    return rg_nvml_start();
}

int nvmlInit_v2(void)
{
    return rg_nvml_start();
}

int nvmlInit(void)
{
    return rg_nvml_start();
}

int nvmlShutdown(void)
{
    return rg_nvml_stop();
}

const char *nvmlErrorString(int result)
{
    switch ((enum rg_nvml_return)result) {
    case RG_NVML_SUCCESS:
        return "Success";
    case RG_NVML_UNINITIALIZED:
        return "Uninitialized: nvmlInit has not been called, or failed";
    case RG_NVML_INVALID_ARGUMENT:
        return "Invalid argument";
    case RG_NVML_NOT_SUPPORTED:
        return "Not supported by remote-gpu or by the remote device";
    case RG_NVML_NO_PERMISSION:
        return "No permission";
    case RG_NVML_ALREADY_INITIALIZED:
        return "Already initialized";
    case RG_NVML_NOT_FOUND:
        return "Not found";
    case RG_NVML_INSUFFICIENT_SIZE:
        return "The buffer is too small";
    case RG_NVML_INSUFFICIENT_POWER:
        return "The device lacks external power";
    case RG_NVML_DRIVER_NOT_LOADED:
        return "No driver: no remote-gpu server was reached";
    case RG_NVML_TIMEOUT:
        return "Timeout";
    case RG_NVML_IRQ_ISSUE:
        return "Trouble with the device's interrupts";
    case RG_NVML_LIBRARY_NOT_FOUND:
        return "Library not found";
    case RG_NVML_FUNCTION_NOT_FOUND:
        return "Function not found";
    case RG_NVML_CORRUPTED_INFOROM:
        return "The device's inforom is corrupt";
    case RG_NVML_GPU_IS_LOST:
        return "The GPU is lost: its server does not answer, or has it no longer";
    case RG_NVML_RESET_REQUIRED:
        return "The device needs a reset";
    case RG_NVML_OPERATING_SYSTEM:
        return "The operating system refused";
    case RG_NVML_LIBRARY_MISMATCH:
        return "Driver and library are of different versions";
    case RG_NVML_IN_USE:
        return "The device is in use";
    case RG_NVML_MEMORY:
        return "Out of memory";
    case RG_NVML_NO_DATA:
        return "No data";
    case RG_NVML_ECC_NOT_SUPPORTED:
        return "Not possible while ECC is enabled";
    case RG_NVML_INSUFFICIENT_RESOURCES:
        return "Insufficient resources";
    case RG_NVML_FREQUENCY_NOT_SUPPORTED:
        return "The frequency is not supported";
    case RG_NVML_VERSION_MISMATCH:
        return "The structure's version is not known";
    case RG_NVML_DEPRECATED:
        return "Deprecated";
    case RG_NVML_NOT_READY:
        return "Not ready";
    case RG_NVML_GPU_NOT_FOUND:
        return "No GPU was found";
    case RG_NVML_INVALID_STATE:
        return "Not possible in the present state";
    case RG_NVML_RESET_TYPE_NOT_SUPPORTED:
        return "This kind of reset is not supported";
    case RG_NVML_UNKNOWN:
        break;
    }
    return "Unknown error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    struct rg_driver_info driver;
    char text[32];
    enum rg_nvml_return result = rg_nvml_driver(&driver);
    if (result != RG_NVML_SUCCESS)
        return result;
    if (driver.release[0])
        return rg_nvml_put_text(version, length, driver.release);
    /* a driver that has no number of its own, as the software device, is as new as the CUDA version it
     * serves */
    snprintf(text, sizeof text, "%u.%u", driver.version / 1000, driver.version % 1000 / 10);
    return rg_nvml_put_text(version, length, text);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return rg_nvml_put_text(version, length, INTERFACE_VERSION "." RG_VERSION);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct rg_driver_info driver;
    enum rg_nvml_return result = rg_nvml_driver(&driver);
    if (result != RG_NVML_SUCCESS)
        return result;
    if (!version)
        return RG_NVML_INVALID_ARGUMENT;
    *version = (int)driver.version;
    return RG_NVML_SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* Processes are those of this machine. */
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    enum rg_nvml_return result = rg_nvml_started();
    if (result != RG_NVML_SUCCESS)
        return result;
    if (!name || length == 0)
        return RG_NVML_INVALID_ARGUMENT;
    char path[32], text[4096];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    RG_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (size <= 0)
        return RG_NVML_NOT_FOUND;
    text[size] = '\0'; /* the first argument ends the text, if it is short enough */
    return rg_nvml_put_text(name, length, text);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    enum rg_nvml_return result = rg_nvml_started();
    if (result != RG_NVML_SUCCESS)
        return result;
    return count ? rg_nvml_count(count) : RG_NVML_INVALID_ARGUMENT;
}

int nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

/* --- what is not supported ------------------------------------------------------------------------------ */

static int unsupported(const char *name)
{
    enum rg_nvml_return result = rg_nvml_started();
    if (result != RG_NVML_SUCCESS)
        return result;
    rg_debug("%s is not supported", name);
    return RG_NVML_NOT_SUPPORTED;
}

static int refused(const char *name)
{
    enum rg_nvml_return result = rg_nvml_started();
    if (result != RG_NVML_SUCCESS)
        return result;
    rg_debug("%s is refused: a client does not change the settings of a server's GPU", name);
    return RG_NVML_NO_PERMISSION;
}

static int refused_of_device(const char *name, rg_nvml_device device)
{
    struct rg_device_info info;
    enum rg_nvml_return result = rg_nvml_look(device, &info, NULL);
    return result == RG_NVML_SUCCESS ? refused(name) : (int)result;
}

static int unsupported_of_device(const char *name, rg_nvml_device device)
{
    struct rg_device_info info;
    enum rg_nvml_return result = rg_nvml_look(device, &info, NULL);
    return result == RG_NVML_SUCCESS ? unsupported(name) : (int)result;
}

/* Further arguments are left unread, which the C calling conventions allow. */
#define DEVICE(name)                                                                                         \
    static int unsupported_##name(rg_nvml_device device)                                                     \
    {                                                                                                        \
        return unsupported_of_device(#name, device);                                                         \
    }
#define SYSTEM(name)                                                                                         \
    static int unsupported_##name(void)                                                                      \
    {                                                                                                        \
        return unsupported(#name);                                                                           \
    }
RG_NVML_UNSUPPORTED_FUNCTIONS(DEVICE, SYSTEM)
#undef DEVICE
#undef SYSTEM
#define DEVICE(name)                                                                                         \
    static int unsupported_##name(rg_nvml_device device)                                                     \
    {                                                                                                        \
        return refused_of_device(#name, device);                                                             \
    }
#define SYSTEM(name)                                                                                         \
    static int unsupported_##name(void)                                                                      \
    {                                                                                                        \
        return refused(#name);                                                                               \
    }
RG_NVML_REFUSED_FUNCTIONS(DEVICE, SYSTEM)
#undef DEVICE
#undef SYSTEM

#define ASK(name, signature)                                                                                 \
    static int asked_##name(rg_nvml_device device, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d,       \
                            uintptr_t e, uintptr_t f)                                                        \
    {                                                                                                        \
        return rg_nvml_ask(RG_QUESTION_##name, device, (const uintptr_t[]){a, b, c, d, e, f});               \
    }
RG_MANAGEMENT_QUESTIONS(ASK)
#undef ASK

#define SERVED(returns, name, parameters, arguments) [RG_NVML_FUNCTION_##name] = (void *)name,
#define ASKED(name, signature)                       [RG_NVML_FUNCTION_##name] = (void *)asked_##name,
#define UNSUPPORTED(name)                            [RG_NVML_FUNCTION_##name] = (void *)unsupported_##name,
void *const rg_nvml_api[RG_NVML_FUNCTION_COUNT] = {RG_NVML_SERVED_FUNCTIONS(SERVED) RG_MANAGEMENT_QUESTIONS(
    ASKED) RG_NVML_UNSUPPORTED_FUNCTIONS(UNSUPPORTED, UNSUPPORTED)
                                                       RG_NVML_REFUSED_FUNCTIONS(UNSUPPORTED, UNSUPPORTED)};
#undef SERVED
#undef UNSUPPORTED

void *const *rg_client_nvml_entry(size_t count)
{
    return count == RG_NVML_FUNCTION_COUNT ? rg_nvml_api : NULL;
}
