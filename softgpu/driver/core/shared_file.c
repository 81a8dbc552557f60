/*
 * shared_file.c - files in memory that processes share: made with a secret in the name, described in a handle
 * of 64 bytes, opened through /proc by whoever has that handle. A file is opened only if its name, kind, size
 * and seals are what the handle says; else it is not there. Any thread.
 */
#include "softgpu/driver/core/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "softgpu/driver/core/shared_socket.h"
#include "softgpu/driver/driver.h"

#define MAGIC 0x53475348u

/* The instance of a divided device that it is; -1: a whole one. */
static int instance_of(const struct sg_device *device)
{
    return device->mig ? device->instance : -1;
}

/* By what all processes of the machine call it. */
static struct sg_device *find_device(int number, int instance)
{
    for (int i = 0; i < sg_state.n_devices; i++)
        if (sg_state.devices[i].number == number && instance_of(&sg_state.devices[i]) == instance)
            return &sg_state.devices[i];
    return NULL;
}

int sg_shared_file_new(struct sg_shared_file *file)
{
    char name[80];
    if (getrandom(file->secret, SG_SECRET, 0) != SG_SECRET)
        return -1;
    int n = snprintf(name, sizeof name, "softgpu:%c:%d:%d:", (char)file->kind, file->device->number,
                     instance_of(file->device));
    for (int i = 0; i < SG_SECRET; i++)
        n += snprintf(name + n, sizeof name - (size_t)n, "%02x", file->secret[i]);
    int number = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (number >= 0 &&
        (ftruncate(number, (off_t)file->size) != 0 || fcntl(number, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
        close(number);
        number = -1;
    }
    if (number < 0)
        rg_warn("no file for %llu bytes of shared memory: %s", (unsigned long long)file->size,
                strerror(errno));
    return number;
}

/* What the name of a descriptor's file says: device and secret. False: it is no such file. */
static bool read_name(const char *path, enum sg_shared_kind kind, struct sg_shared_file *out)
{
    char name[128], secret[2 * SG_SECRET + 1], letter;
    int device, instance;
    ssize_t length = readlink(path, name, sizeof name - 1);
    if (length < 0)
        return false;
    name[length] = '\0';
    if (sscanf(name, "/memfd:softgpu:%c:%d:%d:%32[0-9a-f]", &letter, &device, &instance, secret) != 4 ||
        letter != (char)kind || strlen(secret) != 2 * SG_SECRET)
        return false;
    out->device = find_device(device, instance);
    for (int i = 0; i < SG_SECRET; i++) {
        char digits[3] = {secret[2 * i], secret[2 * i + 1], '\0'};
        out->secret[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool is_secret(const struct sg_shared_handle *handle, const struct sg_shared_file *file)
{
    unsigned differs = 0;
    for (int i = 0; i < SG_SECRET; i++)
        differs |= (unsigned)(handle->secret[i] ^ file->secret[i]);
    return differs == 0;
}

bool sg_shared_file_known(int number, enum sg_shared_kind kind, struct sg_shared_file *out)
{
    char path[32];
    struct stat about;
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    if (!read_name(path, kind, out) || fstat(number, &about) != 0)
        return false;
    const int seals = fcntl(number, F_GET_SEALS); /* what is no file in memory has none */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || about.st_size <= 0)
        return false;
    out->kind = kind;
    out->size = (uint64_t)about.st_size;
    return out->device != NULL;
}

void sg_shared_handle_make(void *handle, const struct sg_shared_file *file, int number, uint64_t offset,
                           uint64_t size)
{
    struct sg_shared_handle made = {.magic = MAGIC,
                                    .process = (int32_t)getpid(),
                                    .file = number,
                                    .kind = (uint32_t)file->kind,
                                    .offset = offset,
                                    .size = size};
    memcpy(made.secret, file->secret, SG_SECRET);
    memcpy(handle, &made, sizeof made);
    if (sg_shared_socket_used())
        sg_shared_socket_serve();
}

bool sg_shared_handle_read(const void *handle, enum sg_shared_kind kind, struct sg_shared_handle *out)
{
    memcpy(out, handle, sizeof *out);
    return out->magic == MAGIC && out->kind == (uint32_t)kind && out->process > 0 && out->file >= 0 &&
           out->size > 0;
}

bool sg_shared_process_lives(int32_t process)
{
    if (sg_shared_socket_used())
        return sg_shared_socket_answers(process);
    return kill(process, 0) == 0 || errno == EPERM;
}

int sg_shared_handle_open(const struct sg_shared_handle *handle, struct sg_shared_file *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->file);
    int number;
    if (sg_shared_socket_used()) {
        number = sg_shared_socket_ask(handle);
        sg_shared_socket_serve(); /* others see by it that this process lives */
    } else {
        /* Whoever made the handle up could name any process's descriptor: nothing is opened but what has the secret. */
        if (!read_name(path, (enum sg_shared_kind)handle->kind, out) || !is_secret(handle, out))
            return -1;
        number = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    if (number < 0)
        return -1;
    if (!sg_shared_file_known(number, (enum sg_shared_kind)handle->kind, out) || !is_secret(handle, out) ||
        handle->offset > out->size || handle->size > out->size - handle->offset) {
        close(number);
        return -1;
    }
    return number;
}
