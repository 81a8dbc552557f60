/*
 * safe_copy.c - process_vm_readv/writev on this very process; where a sandbox forbids them, a pipe. So for memory of devices that is
 * mapped (a camera's buffers, a screen's), which those refuse as if it were not there.
 *
 * All leave the access to the kernel, which answers EFAULT. Any thread: the calls name the thread, since the
 * process's own number has no memory any more once main has ended by pthread_exit.
 */
#include "common/base/safe_copy.h"

#include "common/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Linux 5.14; older headers lack them */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PIPE_CHUNK = 4096 }; /* a pipe takes this much at once, always */

static atomic_bool vm_calls_forbidden;
static atomic_bool main_thread_gone;

/* Through a pipe: write(2) reads `from` and read(2) writes `to`, each with EFAULT instead of a signal. */
static bool copy_by_pipe(void *to, const void *from, size_t size)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    RG_CLEANUP_FD int read_end = ends[0];
    RG_CLEANUP_FD int write_end = ends[1];
    for (size_t done = 0; done < size;) {
        size_t chunk = size - done < PIPE_CHUNK ? size - done : PIPE_CHUNK;
        ssize_t written = write(write_end, (const char *)from + done, chunk);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        for (ssize_t taken = 0; taken < written;) {
            ssize_t n = read(read_end, (char *)to + done + taken, (size_t)(written - taken));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return false;
            taken += n;
        }
        done += (size_t)written;
    }
    return true;
}

static bool copy_checked(void *to, const void *from, size_t size, bool writing)
{
    char *cur_to = to;
    const char *cur_from = from;
    while (size > 0 && !atomic_load_explicit(&vm_calls_forbidden, memory_order_relaxed)) {
        struct iovec local = {writing ? (void *)(uintptr_t)cur_from : cur_to, size};
        struct iovec remote = {writing ? cur_to : (void *)(uintptr_t)cur_from, size};
        const bool alone = atomic_load_explicit(&main_thread_gone, memory_order_relaxed);
        /* the server's sandbox allows it by the process's number alone */
        const pid_t self = alone ? (pid_t)syscall(SYS_gettid) : getpid();
        ssize_t n = writing ? process_vm_writev(self, &local, 1, &remote, 1, 0)
                            : process_vm_readv(self, &local, 1, &remote, 1, 0);
        if (n > 0) {
            cur_to += n;
            cur_from += n;
            size -= (size_t)n;
        } else if (n == 0 || errno == EFAULT) {
            break;
        } else if (errno == ESRCH && !alone) { /* then its number names a thread that has ended */
            atomic_store_explicit(&main_thread_gone, true, memory_order_relaxed);
        } else if (errno != EINTR) { /* a sandbox chooses the error itself */
            atomic_store_explicit(&vm_calls_forbidden, true, memory_order_relaxed);
        }
    }
    return size == 0 || copy_by_pipe(cur_to, cur_from, size);
}

bool rg_safe_copy_from(void *to, const void *from, size_t size)
{
    return copy_checked(to, from, size, false);
}

bool rg_safe_copy_to(void *to, const void *from, size_t size)
{
    return copy_checked(to, from, size, true);
}

/* --- asking --- */

/* The kernel's own set of signals, in bytes. */
enum { KERNEL_SET = 8 };

/*
 * Reads eight bytes, or writes eight that may be lost, by a call that does nothing else: changing the mask of signals
 * in a way that does not exist, and asking for the mask.
 */
static bool touch(uintptr_t at, bool writing)
{
    const long failed = writing ? syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, at, KERNEL_SET)
                                : syscall(SYS_rt_sigprocmask, -1, at, NULL, KERNEL_SET);
    return !failed || errno != EFAULT;
}

/* A small piece, by its first and last bytes; what is shorter than the kernel's set, by a copy. */
static bool is_accessible(uintptr_t from, uintptr_t end, uintptr_t page, bool writing)
{
    if (end - from < KERNEL_SET) {
        char bytes[KERNEL_SET];
        return rg_safe_copy_from(bytes, (const void *)from, end - from) &&
               (!writing || rg_safe_copy_to((void *)from, bytes, end - from));
    }
    for (uintptr_t at = from; at <= end - KERNEL_SET; at = (at & ~(page - 1)) + page)
        if (!touch(at, writing))
            return false;
    return touch(end - KERNEL_SET, writing);
}

bool rg_memory_bring_in(const void *memory, size_t size, bool writing)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    if (size == 0)
        return true;
    if (size > UINTPTR_MAX - from - page)
        return false;
    const uintptr_t first = from & ~(page - 1), last = (from + size + page - 1) & ~(page - 1);
    const int error = errno;
    const bool there =
        madvise((void *)first, last - first, writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
    errno = error;
    return there;
}

static bool is_there(const void *memory, size_t size, bool writing)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    const int error = errno;
    const bool there = rg_memory_bring_in(memory, size, writing) ||
                       (size <= UINTPTR_MAX - from - page && is_accessible(from, from + size, page, writing));
    errno = error;
    return there;
}

bool rg_memory_is_readable(const void *memory, size_t size)
{
    return is_there(memory, size, false);
}

bool rg_memory_is_writable(void *memory, size_t size)
{
    return is_there(memory, size, true);
}
