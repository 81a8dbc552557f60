/*
 * system.c - NVML's functions that are not about one device, what is not supported, and the table of all.
 */
#include "client/nvml/functions.h"
#include "client/nvml/nvml.h"
#include "common/base/cleanup.h"
#include "common/base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

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

int nvmlShutdown(void)
{
    return rg_nvml_stop();
}

const char *nvmlErrorString(int result)
{
    static const char *const texts[] = {
        [RG_NVML_SUCCESS] = "Success",
        [RG_NVML_UNINITIALIZED] = "Uninitialized: nvmlInit has not been called, or failed",
        [RG_NVML_INVALID_ARGUMENT] = "Invalid argument",
        [RG_NVML_NOT_SUPPORTED] = "Not supported by remote-gpu or by the remote device",
        [RG_NVML_NO_PERMISSION] = "No permission",
        [RG_NVML_ALREADY_INITIALIZED] = "Already initialized",
        [RG_NVML_NOT_FOUND] = "Not found",
        [RG_NVML_INSUFFICIENT_SIZE] = "The buffer is too small",
        [RG_NVML_INSUFFICIENT_POWER] = "The device lacks external power",
        [RG_NVML_DRIVER_NOT_LOADED] = "No driver: no remote-gpu server was reached",
        [RG_NVML_TIMEOUT] = "Timeout",
        [RG_NVML_IRQ_ISSUE] = "Trouble with the device's interrupts",
        [RG_NVML_LIBRARY_NOT_FOUND] = "Library not found",
        [RG_NVML_FUNCTION_NOT_FOUND] = "Function not found",
        [RG_NVML_CORRUPTED_INFOROM] = "The device's inforom is corrupt",
        [RG_NVML_GPU_IS_LOST] = "The GPU is lost: its server does not answer, or has it no longer",
        [RG_NVML_RESET_REQUIRED] = "The device needs a reset",
        [RG_NVML_OPERATING_SYSTEM] = "The operating system refused",
        [RG_NVML_LIBRARY_MISMATCH] = "Driver and library are of different versions",
        [RG_NVML_IN_USE] = "The device is in use",
        [RG_NVML_MEMORY] = "Out of memory",
        [RG_NVML_NO_DATA] = "No data",
        [RG_NVML_ECC_NOT_SUPPORTED] = "Not possible while ECC is enabled",
        [RG_NVML_INSUFFICIENT_RESOURCES] = "Insufficient resources",
        [RG_NVML_FREQUENCY_NOT_SUPPORTED] = "The frequency is not supported",
        [RG_NVML_VERSION_MISMATCH] = "The structure's version is not known",
        [RG_NVML_DEPRECATED] = "Deprecated",
        [RG_NVML_NOT_READY] = "Not ready",
        [RG_NVML_GPU_NOT_FOUND] = "No GPU was found",
        [RG_NVML_INVALID_STATE] = "Not possible in the present state",
        [RG_NVML_RESET_TYPE_NOT_SUPPORTED] = "This kind of reset is not supported",
    };
    const bool known = result >= 0 && (size_t)result < sizeof texts / sizeof texts[0] && texts[result];
    return known ? texts[result] : "Unknown error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    struct rg_driver_info driver;
    char text[32];
    RG_TRY(rg_nvml_driver(&driver));
    if (driver.release[0])
        return rg_nvml_put_text(version, length, driver.release);
    /* a driver that has no number of its own, as the software device, is as new as the CUDA version it
     * serves */
    snprintf(text, sizeof text, "%u.%u", driver.version / 1000, driver.version % 1000 / 10);
    return rg_nvml_put_text(version, length, text);
}

/* "r" and the major number of the driver's version, as NVIDIA names its branches. */
int nvmlSystemGetDriverBranch(struct rg_nvml_branch *branch, unsigned length)
{
    char version[sizeof branch->text], text[sizeof version + 1];
    RG_TRY(nvmlSystemGetDriverVersion(version, sizeof version));
    if (!branch)
        return RG_NVML_INVALID_ARGUMENT;
    if (branch->version != RG_NVML_BRANCH)
        return RG_NVML_VERSION_MISMATCH;
    snprintf(text, sizeof text, "r%.*s", (int)strcspn(version, "."), version);
    return rg_nvml_put_text(branch->text, length < sizeof branch->text ? length : sizeof branch->text, text);
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return rg_nvml_put_text(version, length, INTERFACE_VERSION "." RG_VERSION);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct rg_driver_info driver;
    RG_TRY(rg_nvml_driver(&driver));
    if (!version)
        return RG_NVML_INVALID_ARGUMENT;
    *version = (int)driver.version;
    return RG_NVML_SUCCESS;
}

/* Processes are those of this machine. */
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    RG_TRY(rg_nvml_started_with(name && length > 0));
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
    RG_TRY(rg_nvml_started_with(count));
    return rg_nvml_count(count);
}

/* --- what is not supported ------------------------------------------------------------------------------ */

static int unsupported(const char *name)
{
    RG_TRY(rg_nvml_started());
    rg_debug("%s is not supported", name);
    return RG_NVML_NOT_SUPPORTED;
}

static int refused(const char *name)
{
    RG_TRY(rg_nvml_started());
    rg_debug("%s is refused: a client does not change the settings of a server's GPU", name);
    return RG_NVML_NO_PERMISSION;
}

static int refused_of_device(const char *name, rg_nvml_device device)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look(device, &info, NULL));
    return refused(name);
}

static int unsupported_of_device(const char *name, rg_nvml_device device)
{
    struct rg_device_info info;
    RG_TRY(rg_nvml_look(device, &info, NULL));
    return unsupported(name);
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
