/*
 * range_shared.c - device memory for several processes: an allocation moves into a file when it is first
 * shared, at the same address; memory of another process is mapped from its file. Work that goes on meanwhile
 * reads as ever, and waits where it writes.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sync/scoped_lock.h"
#include "softgpu/driver/range/internal.h"
#include "softgpu/exec/exec.h"

/* Writes the pages of a range that hold anything to the file. */
static bool copy_to_file(const struct sg_range *range, int file)
{
    static const unsigned char zeros[SG_PAGE];
    const unsigned char *from = (const unsigned char *)(uintptr_t)range->base;
    for (uint64_t at = 0; at < sg_range_committed(range); at += SG_PAGE)
        if (memcmp(from + at, zeros, SG_PAGE) != 0 &&
            pwrite(file, from + at, SG_PAGE, (off_t)at) != (ssize_t)SG_PAGE)
            return false;
    return true;
}

/* The file in the place of the range's memory, with the same contents, whatever is at work on it. */
static bool exchange(const struct sg_range *range, uint64_t size, int file)
{
    void *memory = (void *)(uintptr_t)range->base;
    sg_exec_hold_writes(range->base, size);
    bool moved = mprotect(memory, size, PROT_READ) == 0 && copy_to_file(range, file) &&
                 mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    int why = errno;
    if (!moved)
        mprotect(memory, size, PROT_READ | PROT_WRITE);
    sg_exec_let_writes();
    errno = why;
    return moved;
}

/* Puts the range's contents into a file, and the file in the place of its memory. Lock held. */
static bool move_to_file(struct sg_range *range)
{
    struct sg_shared_file about = {
        .kind = SG_SHARED_MEMORY, .device = range->device, .size = sg_range_committed(range)};
    int file = sg_shared_file_new(&about);
    if (file < 0)
        return false;
    if (!exchange(range, about.size, file)) {
        rg_warn("device memory cannot be shared: %s", strerror(errno));
        close(file);
        return false;
    }
    range->shared = true;
    range->file = file;
    sg_range_keep_secret(range, about.secret);
    return true;
}

CUresult sg_range_share(uint64_t address, struct sg_range *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.device, address);
    if (range != NULL && range->kind == SG_RANGE_DEVICE) {
        result = range->shared || move_to_file(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        *out = *range;
    }
    return result;
}

uint64_t sg_range_reopen(const struct sg_context *context, const unsigned char *secret)
{
    uint64_t address = 0;
    RG_SCOPED_LOCK(&sg_memory.lock);
    for (size_t i = 0; i < sg_memory.device.n && address == 0; i++) {
        struct sg_range *range = sg_memory.device.at[i];
        if (range->kind == SG_RANGE_IPC && range->context == context &&
            memcmp(range->secret, secret, SG_SECRET) == 0) {
            range->opens++;
            address = range->base;
        }
    }
    return address;
}

CUresult sg_range_close(uint64_t address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    RG_SCOPED_LOCK(&sg_memory.lock);
    struct sg_range *range = sg_range_set_find(&sg_memory.device, address);
    if (range != NULL && range->base == address && range->kind == SG_RANGE_IPC) {
        if (--range->opens == 0)
            sg_range_drop(range);
        result = CUDA_SUCCESS;
    }
    return result;
}
