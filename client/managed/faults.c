/*
 * faults.c - see faults.h. The handler of SIGSEGV takes no lock: it queues a request on its own stack, wakes
 * the service by an eventfd and sleeps on a futex until that has dealt with it.
 */
#include "client/managed/faults.h"

#include "common/base/descriptor.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u

#ifndef MADV_DONTNEED_LOCKED /* Linux 5.18; older headers lack it */
#define MADV_DONTNEED_LOCKED 24
#endif

struct request {
    struct request *next;
    uint64_t address;
    bool write;
    bool handled;
    _Atomic uint32_t done;
};

static int uffd = -1, wake_fd = -1, pagemap = -1, empty_file = -1;
static bool started, usable;

static _Atomic(struct request *) requests; /* pushed by handlers (release), taken by the service (acquire) */
static _Atomic uint64_t lowest = UINT64_MAX, highest; /* all addresses of interest lie in between */
static struct sigaction previous_action;
static bool handler_set;
static pid_t owner;

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* --- the beginning -------------------------------------------------------------------------------------- */

static bool agree_on_features(int fd)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    return ioctl(fd, UFFDIO_API, &api) == 0 && (api.ioctls & (uint64_t)1 << _UFFDIO_REGISTER);
}

static int open_uffd(void)
{
    const char *wish = secure_getenv("REMOTE_GPU_FAULTS");
    if (wish && strcmp(wish, "signals") == 0)
        return -1;
    if (wish && *wish)
        rg_warn("REMOTE_GPU_FAULTS is signals, or not set; not '%s'", wish);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
#ifdef USERFAULTFD_IOC_NEW
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
            close(device);
        }
    }
#endif
    if (fd >= 0 && !agree_on_features(fd)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool rg_faults_start(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!started) {
        started = true;
        owner = getpid();
        wake_fd = rg_descriptor_move_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        pagemap = rg_descriptor_move_up(open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
        uffd = rg_descriptor_move_up(open_uffd());
        usable = wake_fd >= 0;
        if (uffd < 0)
            rg_info("userfaultfd is not available for page faults in the kernel: system calls on managed or "
                    "mapped memory that the device holds will fail with EFAULT");
    }
    pthread_mutex_unlock(&lock);
    return usable;
}

/* --- with signals --------------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (previous_action.sa_flags & SA_SIGINFO) {
        previous_action.sa_sigaction(signal_number, info, context);
    } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
        /* the access is tried again and ends the process as it would have without us */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(signal_number, &standard, NULL);
    } else {
        previous_action.sa_handler(signal_number);
    }
}

void rg_touches_wake(void)
{
    const uint64_t one = 1;
    (void)!write(wake_fd, &one, sizeof one);
}

/* A child has a copy of what was protected for its parent's sake; what is not its own is not mapped there. */
static bool open_in_child(uint64_t address)
{
    return getpid() != owner &&
           mprotect(at(address & ~(uint64_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) == 0;
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    const bool covered = address >= atomic_load(&lowest) && address < atomic_load(&highest);
    if (covered && open_in_child(address))
        return;
    if (!covered || getpid() != owner) {
        pass_on(signal_number, info, context);
        return;
    }
    const int error = errno;
    struct request request = {.address = address, .write = true};
#ifdef __x86_64__
    request.write = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#endif
    struct request *first = atomic_load(&requests);
    do
        request.next = first;
    while (!atomic_compare_exchange_weak_explicit(&requests, &first, &request, memory_order_release,
                                                  memory_order_relaxed));
    rg_touches_wake();
    while (!atomic_load(&request.done))
        futex_wait(&request.done, 0);
    errno = error;
    if (!request.handled)
        pass_on(signal_number, info, context);
}

static bool set_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &previous_action) == 0;
}

void rg_faults_refresh(void)
{
    struct sigaction now;
    if (!handler_set || sigaction(SIGSEGV, NULL, &now) != 0 ||
        ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault))
        return;
    (void)set_handler();
}

/* Touches at these addresses are of interest (with signals; others go to the application's handler). */
static void cover(uint64_t start, uint64_t size)
{
    uint64_t now = atomic_load(&lowest);
    while (start < now && !atomic_compare_exchange_weak(&lowest, &now, start))
        ;
    now = atomic_load(&highest);
    while (start + size > now && !atomic_compare_exchange_weak(&highest, &now, start + size))
        ;
}

/* --- what is trapped ------------------------------------------------------------------------------------ */

/* What the kernel says of the mapping that holds all of the pages. */
static void look_up(struct rg_trap *trap)
{
    trap->anonymous = false;
    trap->protection = PROT_READ | PROT_WRITE;
    FILE *maps = fopen("/proc/thread-self/maps", "re");
    if (!maps)
        return;
    char line[512];
    uint64_t next = trap->start;
    bool anonymous = true;
    while (next < trap->start + trap->size && fgets(line, sizeof line, maps)) {
        unsigned long long start, end, inode;
        char access[8];
        if (sscanf(line, "%llx-%llx %7s %*s %*s %llu", &start, &end, access, &inode) != 4 || end <= next)
            continue;
        if (start > next) {
            anonymous = false;
            break;
        }
        anonymous = anonymous && access[3] == 'p' && inode == 0;
        if (access[1] != 'w')
            trap->protection = PROT_READ;
        next = end;
    }
    fclose(maps);
    trap->anonymous = anonymous && next >= trap->start + trap->size;
}

static bool trap_by_uffd(const struct rg_trap *trap)
{
    struct uffdio_register range = {.range = {trap->start, trap->size},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP};
    return ioctl(uffd, UFFDIO_REGISTER, &range) == 0;
}

bool rg_trap_begin(struct rg_trap *trap)
{
    look_up(trap);
    trap->by_uffd = uffd >= 0 && trap->anonymous && trap->protection != PROT_READ && trap_by_uffd(trap);
    cover(trap->start, trap->size);
    if (trap->by_uffd)
        return true;
    if (!handler_set)
        handler_set = set_handler();
    return handler_set;
}

static void uffd_wake(uint64_t start, uint64_t size)
{
    struct uffdio_range range = {start, size};
    (void)ioctl(uffd, UFFDIO_WAKE, &range);
}

void rg_trap_end(const struct rg_trap *trap)
{
    struct uffdio_range range = {trap->start, trap->size};
    if (trap->by_uffd)
        (void)ioctl(uffd, UFFDIO_UNREGISTER, &range);
    else
        (void)mprotect(at(trap->start), trap->size, trap->protection);
}

/* Takes write protection of present pages away or puts it on. */
static bool uffd_protect(uint64_t start, uint64_t size, bool on)
{
    struct uffdio_writeprotect range = {{start, size}, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    while (ioctl(uffd, UFFDIO_WRITEPROTECT, &range) != 0)
        if (errno != EAGAIN)
            return false;
    return true;
}

bool rg_pages_freeze(const struct rg_trap *trap, uint64_t start, uint64_t size)
{
    return trap->by_uffd ? uffd_protect(start, size, true) : mprotect(at(start), size, PROT_READ) == 0;
}

bool rg_pages_open(const struct rg_trap *trap, uint64_t start, uint64_t size)
{
    return trap->by_uffd ? uffd_protect(start, size, false)
                         : mprotect(at(start), size, trap->protection) == 0;
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
    if (!trap->by_uffd && mprotect(at(start), size, PROT_NONE) != 0)
        return false;
    if (trap->anonymous && !drop_pages(at(start), size) && trap->by_uffd)
        return false;
    if (trap->by_uffd)
        uffd_wake(start, size); /* writers that waited for a frozen page now wait for its contents */
    return true;
}

static bool uffd_copy(uint64_t start, const void *data, uint64_t size, bool writable)
{
    for (uint64_t done = 0; done < size;) {
        struct uffdio_copy copy = {.dst = start + done,
                                   .src = (uint64_t)(uintptr_t)data + done,
                                   .len = size - done,
                                   .mode = writable ? 0 : UFFDIO_COPY_MODE_WP};
        if (ioctl(uffd, UFFDIO_COPY, &copy) == 0)
            return true;
        if (copy.copy > 0)
            done += (uint64_t)copy.copy;
        else if (copy.copy == -EEXIST || errno == EEXIST)
            done += PAGE; /* it has contents */
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
        mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at(start)) == MAP_FAILED) {
        munmap(memory, size);
        return false;
    }
    return true;
}

bool rg_pages_fill(const struct rg_trap *trap, uint64_t start, const void *data, uint64_t size, bool writable)
{
    const int protection = writable ? trap->protection : PROT_READ;
    if (trap->by_uffd)
        return uffd_copy(start, data, size, writable);
    if (trap->anonymous)
        return replace(start, data, size, protection);
    if (mprotect(at(start), size, PROT_READ | PROT_WRITE) != 0)
        return false;
    if (trap->protection != PROT_READ) /* memory that the host cannot write has not changed */
        memcpy(at(start), data, size);
    return mprotect(at(start), size, protection) == 0;
}

void rg_pages_lose(uint64_t start, uint64_t size)
{
    if (empty_file < 0)
        empty_file = rg_descriptor_move_up((int)syscall(SYS_memfd_create, "remote-gpu-lost", MFD_CLOEXEC));
    /* behind the end of a file there is nothing to be had */
    if (mmap(at(start), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, empty_file,
             0) == MAP_FAILED)
        mmap(at(start), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (uffd >= 0)
        uffd_wake(start, size);
}

/* Pages that nobody has touched get what a touch would find there; as the others, they cannot be written. */
static bool fill_untouched(uint64_t start, size_t n)
{
    static const unsigned char zeros[PAGE];
    for (size_t i = 0; i < n; i++)
        if (!uffd_copy(start + i * PAGE, zeros, PAGE, false))
            return false;
    return true;
}

static bool ask_which_touched(uint64_t start, size_t n, unsigned char *touched)
{
    enum { AT_ONCE = 256 };
    uint64_t entries[AT_ONCE];
    for (size_t i = 0; i < n;) {
        const size_t part = n - i < AT_ONCE ? n - i : AT_ONCE;
        const ssize_t got = pread(pagemap, entries, part * 8, (off_t)((start / PAGE + i) * 8));
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

/* --- touches -------------------------------------------------------------------------------------------- */

static size_t take_messages(struct rg_touch *list, size_t max)
{
    struct uffd_msg messages[64];
    if (max > 64)
        max = 64;
    const ssize_t got = read(uffd, messages, max * sizeof *messages);
    size_t n = 0;
    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof *messages; i++)
        if (messages[i].event == UFFD_EVENT_PAGEFAULT)
            list[n++] = (struct rg_touch){
                .address = messages[i].arg.pagefault.address,
                .write = (messages[i].arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) ||
                         (messages[i].arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP),
            };
    return n;
}

static size_t take_requests(struct rg_touch *list, size_t max)
{
    static struct request *left; /* taken, but there was no room: the service's alone */
    size_t n = 0;
    if (!left)
        left = atomic_exchange_explicit(&requests, NULL, memory_order_acquire);
    while (left && n < max) {
        list[n++] = (struct rg_touch){.address = left->address, .write = left->write, .waits = left};
        left = left->next;
    }
    if (left)
        rg_touches_wake();
    return n;
}

size_t rg_touches_wait(struct rg_touch *list, size_t max, int timeout_ms)
{
    struct pollfd ready[2] = {{.fd = wake_fd, .events = POLLIN}, {.fd = uffd, .events = POLLIN}};
    if (!max) {
        list = NULL;
        usleep(timeout_ms > 0 ? (useconds_t)timeout_ms * 1000 : 1000);
        return 0;
    }
    if (poll(ready, uffd >= 0 ? 2 : 1, timeout_ms) <= 0)
        return 0;
    uint64_t count;
    if (ready[0].revents)
        (void)!read(wake_fd, &count, sizeof count);
    size_t n = take_requests(list, max);
    if (uffd >= 0 && ready[1].revents && n < max)
        n += take_messages(list + n, max - n);
    return n;
}

void rg_touch_done(const struct rg_touch *touch, bool handled)
{
    struct request *request = touch->waits;
    if (!request) {
        uffd_wake(touch->address & ~(uint64_t)(PAGE - 1), PAGE);
        return;
    }
    request->handled = handled;
    _Atomic uint32_t *done = &request->done;
    atomic_store(done, 1); /* the request may be gone from here on; a wake of its word is harmless */
    syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
