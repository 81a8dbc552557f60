/*
 * trap.c - pages by userfaultfd or by mprotect: trapping them, closing, opening and filling them (faults.h).
 *
 * Which of the two a range has is decided once, by what the kernel says of its mapping (look_up): userfaultfd takes private anonymous
 * memory that can be written. All else is protected, and filled so that no other thread ever sees it half filled: by memory that takes its place
 * (private), or by a second mapping (shared). Where neither can be, it is open to writers for as long as a copy takes.
 */
#include "client/managed/faults_internal.h"

#include "common/base/descriptor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED /* Linux 5.18; older headers lack it */
#define MADV_DONTNEED_LOCKED 24
#endif

static int empty_file = -1; /* made when contents are lost for the first time */

/* What the kernel says of the mapping that holds all of the pages. */
static void look_up(struct rg_trap *trap)
{
    trap->anonymous = trap->is_private = trap->is_shared = false;
    trap->protection = PROT_READ | PROT_WRITE;
    FILE *maps = fopen("/proc/thread-self/maps", "re");
    if (!maps)
        return;
    char line[512];
    uint64_t next = trap->start, place = 0, file = 0;
    bool anonymous = true, is_private = true, is_shared = true;
    while (next < trap->start + trap->size && fgets(line, sizeof line, maps)) {
        unsigned long long start, end, offset, inode;
        unsigned major, minor;
        char access[8];
        if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu", &start, &end, access, &offset, &major, &minor,
                   &inode) != 7 ||
            end <= next)
            continue;
        if (start > next)
            break;
        const bool first = next == trap->start;
        is_private = is_private && access[3] == 'p';
        anonymous = anonymous && is_private && inode == 0;
        is_shared = is_shared && access[3] == 's' && (first || (start - offset == place && inode == file));
        place = start - offset;
        file = inode;
        if (access[1] != 'w')
            trap->protection = PROT_READ;
        next = end;
    }
    fclose(maps);
    const bool whole = next >= trap->start + trap->size;
    trap->anonymous = whole && anonymous;
    trap->is_private = whole && is_private;
    trap->is_shared = whole && is_shared;
}

static bool trap_by_uffd(const struct rg_trap *trap)
{
    struct uffdio_register range = {.range = {trap->start, trap->size},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    return ioctl(rg_faults_uffd, UFFDIO_REGISTER, &range) == 0;
}

bool rg_trap_begin(struct rg_trap *trap)
{
    look_up(trap);
    trap->by_uffd =
        rg_faults_uffd >= 0 && trap->anonymous && trap->protection != PROT_READ && trap_by_uffd(trap);
    rg_faults_cover(trap->start, trap->size);
    return trap->by_uffd || rg_faults_need_handler();
}

void rg_trap_end(const struct rg_trap *trap)
{
    struct uffdio_range range = {trap->start, trap->size};
    if (trap->by_uffd)
        (void)ioctl(rg_faults_uffd, UFFDIO_UNREGISTER, &range);
    else
        (void)mprotect(rg_fault_at(trap->start), trap->size, trap->protection);
}

void rg_trap_end_in_child(const struct rg_trap *trap)
{
    if (!trap->by_uffd) /* which children are without */
        (void)mprotect(rg_fault_at(trap->start), trap->size, trap->protection);
}

/* Takes write protection of present pages away or puts it on. */
static bool uffd_protect(uint64_t start, uint64_t size, bool on)
{
    struct uffdio_writeprotect range = {{start, size}, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    while (ioctl(rg_faults_uffd, UFFDIO_WRITEPROTECT, &range) != 0)
        if (errno != EAGAIN)
            return false;
    return true;
}

bool rg_trap_gone(const struct rg_trap *trap)
{
    return trap->by_uffd && !uffd_protect(trap->start, RG_FAULT_PAGE, true);
}

bool rg_pages_gone(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_FAULT_PAGE - 1);
    return msync(rg_fault_at(first), start + size - first, MS_ASYNC) != 0 && errno == ENOMEM;
}

bool rg_pages_freeze(const struct rg_trap *trap, uint64_t start, uint64_t size)
{
    return trap->by_uffd ? uffd_protect(start, size, true)
                         : mprotect(rg_fault_at(start), size, PROT_READ) == 0;
}

bool rg_pages_open(const struct rg_trap *trap, uint64_t start, uint64_t size)
{
    return trap->by_uffd ? uffd_protect(start, size, false)
                         : mprotect(rg_fault_at(start), size, trap->protection) == 0;
}

/* Pages that are locked in memory (mlockall) do not go unless they are meant as such, or unlocked (before Linux 5.18). */
static bool drop_pages(void *start, size_t size)
{
    if (madvise(start, size, MADV_DONTNEED) == 0)
        return true;
    return errno == EINVAL && (madvise(start, size, MADV_DONTNEED_LOCKED) == 0 ||
                               (munlock(start, size) == 0 && madvise(start, size, MADV_DONTNEED) == 0));
}

bool rg_pages_close(const struct rg_trap *trap, uint64_t start, uint64_t size)
{
    if (!trap->by_uffd && mprotect(rg_fault_at(start), size, PROT_NONE) != 0)
        return false;
    if (trap->anonymous && !drop_pages(rg_fault_at(start), size) && trap->by_uffd)
        return false;
    if (trap->by_uffd)
        rg_faults_wake(start, size); /* writers that waited for a frozen page now wait for its contents */
    return true;
}

static bool uffd_copy(uint64_t start, const void *data, uint64_t size, bool writable)
{
    for (uint64_t done = 0; done < size;) {
        struct uffdio_copy copy = {.dst = start + done,
                                   .src = (uint64_t)(uintptr_t)data + done,
                                   .len = size - done,
                                   .mode = writable ? 0 : UFFDIO_COPY_MODE_WP};
        if (ioctl(rg_faults_uffd, UFFDIO_COPY, &copy) == 0)
            return true;
        if (copy.copy > 0)
            done += (uint64_t)copy.copy;
        else if (copy.copy == -EEXIST || errno == EEXIST)
            done += RG_FAULT_PAGE; /* it has contents */
        else if (errno != EAGAIN)
            return false;
    }
    return true;
}

/* New memory with the contents takes the place of the old. */
static bool replace(uint64_t start, const void *data, uint64_t size, int protection)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    memcpy(memory, data, size);
    if (mprotect(memory, size, protection) != 0 ||
        mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, rg_fault_at(start)) == MAP_FAILED) {
        munmap(memory, size);
        return false;
    }
    return true;
}

/* By a second mapping: at their address, another thread could write before the contents are there, and lose it. */
static bool fill_shared(uint64_t start, const void *data, uint64_t size)
{
    void *memory = mremap(rg_fault_at(start), 0, size, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED)
        return false;
    const bool good = mprotect(memory, size, PROT_READ | PROT_WRITE) == 0;
    if (good)
        memcpy(memory, data, size);
    munmap(memory, size);
    return good;
}

bool rg_pages_fill(const struct rg_trap *trap, uint64_t start, const void *data, uint64_t size, bool writable)
{
    const int protection = writable ? trap->protection : PROT_READ;
    if (trap->by_uffd)
        return uffd_copy(start, data, size, writable);
    const bool changed = trap->protection != PROT_READ; /* memory that the host cannot write has not */
    if (trap->anonymous || (trap->is_private && changed))
        return replace(start, data, size, protection);
    if (changed && !(trap->is_shared && fill_shared(start, data, size))) {
        if (mprotect(rg_fault_at(start), size, PROT_READ | PROT_WRITE) != 0)
            return false;
        memcpy(rg_fault_at(start), data, size);
    }
    return mprotect(rg_fault_at(start), size, protection) == 0;
}

void rg_pages_lose(uint64_t start, uint64_t size)
{
    if (empty_file < 0)
        empty_file = rg_descriptor_move_up((int)syscall(SYS_memfd_create, "remote-gpu-lost", MFD_CLOEXEC));
    /* behind the end of a file there is nothing to be had */
    if (mmap(rg_fault_at(start), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             empty_file, 0) == MAP_FAILED)
        mmap(rg_fault_at(start), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0);
    if (rg_faults_uffd >= 0)
        rg_faults_wake(start, size);
}

/* Pages that nobody has touched get what a touch would find there; as the others, they cannot be written. */
static bool fill_untouched(uint64_t start, size_t n)
{
    static const unsigned char zeros[RG_FAULT_PAGE];
    for (size_t i = 0; i < n; i++)
        if (!uffd_copy(start + i * RG_FAULT_PAGE, zeros, RG_FAULT_PAGE, false))
            return false;
    return true;
}

static bool ask_which_touched(uint64_t start, size_t n, unsigned char *touched)
{
    enum { AT_ONCE = 256 };
    uint64_t entries[AT_ONCE];
    for (size_t i = 0; i < n;) {
        const size_t part = n - i < AT_ONCE ? n - i : AT_ONCE;
        const ssize_t got =
            pread(rg_faults_pagemap, entries, part * 8, (off_t)((start / RG_FAULT_PAGE + i) * 8));
        if (got != (ssize_t)(part * 8))
            return false;
        for (size_t j = 0; j < part; j++) /* present, or swapped out */
            touched[i + j] = (entries[j] >> 62) != 0;
        i += part;
    }
    return true;
}

bool rg_pages_touched(const struct rg_trap *trap, uint64_t start, size_t n, unsigned char *touched)
{
    if (trap->anonymous && ask_which_touched(start, n, touched))
        return true;
    memset(touched, 1, n);
    return !trap->anonymous || !trap->by_uffd || fill_untouched(start, n);
}
