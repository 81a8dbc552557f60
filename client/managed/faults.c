/*
 * faults.c - see faults.h: touches, from the kernel and from our handler of SIGSEGV, until they have been dealt with. The handler takes
 * no lock: it queues a request on its own stack, wakes the service and sleeps on a futex. The service sleeps on a futex as well; where
 * it waits for userfaultfd, in poll, and is woken by an eventfd. The pages: trap.c.
 */
#include "client/managed/faults_internal.h"

#include "common/base/clock.h"
#include "common/base/descriptor.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/base/signals.h"
#include "common/base/valgrind.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct request {
    struct request *next;
    uint64_t address;
    bool write;
    bool handled;
    _Atomic uint32_t done;
};

int rg_faults_uffd = -1, rg_faults_pagemap = -1;
static int wake_fd = -1;

static _Atomic uint32_t wakes;             /* how often the service was woken; a futex */
static _Atomic(struct request *) requests; /* pushed by handlers (release), taken by the service (acquire) */
static _Atomic uint64_t lowest = UINT64_MAX, highest; /* all addresses of interest lie in between */
static bool handler_set;
static pid_t owner;

/* --- the beginning -------------------------------------------------------------------------------------- */

static bool agree_on_features(int fd)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    return ioctl(fd, UFFDIO_API, &api) == 0 && (api.ioctls & (uint64_t)1 << _UFFDIO_REGISTER);
}

static int open_uffd(void)
{
    if (rg_under_valgrind()) { /* a touch that waits in the kernel would stop all threads */
        rg_warn(
            "this program runs under valgrind, which needs --vex-iropt-register-updates=allregs-at-each-insn "
            "where the host touches managed or mapped memory");
        return -1;
    }
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

/* Without what wakes the service out of poll, which a sandbox may refuse, there are signals. */
static void open_descriptors(void)
{
    rg_faults_pagemap = rg_descriptor_move_up(open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
    const int fd = open_uffd();
    if (fd >= 0)
        wake_fd = rg_descriptor_move_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_fd >= 0)
        rg_faults_uffd = rg_descriptor_move_up(fd);
    else if (fd >= 0)
        close(fd);
}

void rg_faults_start(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool started;
    RG_SCOPED_LOCK(&lock);
    if (!started) {
        started = true;
        owner = getpid();
        open_descriptors();
        if (rg_faults_uffd < 0)
            rg_info("userfaultfd is not available for page faults in the kernel: system calls on managed or "
                    "mapped memory that the device holds will fail with EFAULT");
    }
}

/* --- with signals --------------------------------------------------------------------------------------- */

enum { FAULT_BY_WRITE = 1 << 1, FAULT_OF_USER = 1 << 2 }; /* the processor's error code of a page fault */

/* Up to timeout_ms; -1: for ever. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms)
{
    const struct timespec time = rg_timespec((uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000u);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ms < 0 ? NULL : &time, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void rg_touches_wake(void)
{
    const uint64_t one = 1;
    atomic_fetch_add(&wakes, 1);
    if (rg_faults_uffd >= 0)
        (void)!write(wake_fd, &one, sizeof one);
    else
        futex_wake(&wakes);
}

/* A child whose pages could not be opened when it began; what is not its own is not mapped there. */
static bool open_in_child(uint64_t address)
{
    return getpid() != owner && mprotect(rg_fault_at(address & ~(uint64_t)(RG_FAULT_PAGE - 1)), RG_FAULT_PAGE,
                                         PROT_READ | PROT_WRITE) == 0;
}

/*
 * Each time that a handler of the program's has come before ours, ours comes before that by another function, with an action of its
 * own to pass on to. So a handler that passes on to the one of ours that it has found, or puts that back, gets to what was before.
 */
#define INSTALLATIONS 8
static struct sigaction passes_to[INSTALLATIONS];
static unsigned n_installed; /* the lock of rg_faults_refresh, but for the first */

static void on_fault(unsigned installation, int signal_number, siginfo_t *info, void *context)
{
    const uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    const bool covered =
        !rg_signal_is_sent(info) && address >= atomic_load(&lowest) && address < atomic_load(&highest);
    if (covered && open_in_child(address))
        return;
    if (!covered || getpid() != owner) {
        rg_signal_pass_on(&passes_to[installation], signal_number, info, context);
        return;
    }
    const int error = errno;
    struct request request = {.address = address, .write = true};
#ifdef __x86_64__
    /* gVisor's kernel does not tell: a write that was taken for a reading would fault for ever */
    const uint64_t how = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR];
    request.write = !(how & FAULT_OF_USER) || (how & FAULT_BY_WRITE);
#endif
    struct request *first = atomic_load(&requests);
    do
        request.next = first;
    while (!atomic_compare_exchange_weak_explicit(&requests, &first, &request, memory_order_release,
                                                  memory_order_relaxed));
    rg_touches_wake();
    while (!atomic_load(&request.done))
        futex_wait(&request.done, 0, -1);
    errno = error;
    if (!request.handled)
        rg_signal_pass_on(&passes_to[installation], signal_number, info, context);
}

#define ON_FAULT(n)                                                                                          \
    static void on_fault_##n(int signal_number, siginfo_t *info, void *context)                              \
    {                                                                                                        \
        on_fault(n, signal_number, info, context);                                                           \
    }
ON_FAULT(0)
ON_FAULT(1)
ON_FAULT(2)
ON_FAULT(3)
ON_FAULT(4)
ON_FAULT(5)
ON_FAULT(6)
ON_FAULT(7)
static void (*const handlers[INSTALLATIONS])(int, siginfo_t *, void *) = {
    on_fault_0, on_fault_1, on_fault_2, on_fault_3, on_fault_4, on_fault_5, on_fault_6, on_fault_7};

/* Which of ours the action is; INSTALLATIONS: it is not ours. */
static unsigned find(const struct sigaction *action)
{
    unsigned i = 0;
    while (i < INSTALLATIONS && !((action->sa_flags & SA_SIGINFO) && action->sa_sigaction == handlers[i]))
        i++;
    return i;
}

/* A handler that is set again passes on to ours before: not to itself by that. */
static void step_over(const struct sigaction *action, unsigned before)
{
    for (unsigned i = 0; i < before && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN; i++)
        if (passes_to[i].sa_handler == action->sa_handler)
            passes_to[i] = i ? passes_to[i - 1] : (struct sigaction){.sa_handler = SIG_DFL};
}

static bool set_handler(void)
{
    const unsigned i = n_installed < INSTALLATIONS ? n_installed : INSTALLATIONS - 1;
    struct sigaction action = {.sa_sigaction = handlers[i], .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    struct sigaction now;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, NULL, &now) != 0)
        return false;
    passes_to[i] = now;
    step_over(&now, i);
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        return false;
    n_installed = i + 1;
    return true;
}

bool rg_faults_need_handler(void)
{
    if (!handler_set)
        handler_set = set_handler();
    return handler_set;
}

static bool is_set(void)
{
    struct sigaction now;
    return sigaction(SIGSEGV, NULL, &now) != 0 || find(&now) < INSTALLATIONS;
}

bool rg_faults_has_program_handler(void)
{
    struct sigaction now;
    if (sigaction(SIGSEGV, NULL, &now) != 0)
        return false;
    const unsigned i = find(&now);
    if (i < INSTALLATIONS)
        now = passes_to[i];
    return now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
}

void rg_faults_refresh(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!handler_set || is_set())
        return;
    RG_SCOPED_LOCK(&lock);
    if (!is_set())
        (void)set_handler();
}

void rg_faults_end_in_child(void)
{
    struct sigaction now;
    const unsigned i = sigaction(SIGSEGV, NULL, &now) == 0 ? find(&now) : INSTALLATIONS;
    if (handler_set && i < INSTALLATIONS)
        (void)sigaction(SIGSEGV, &passes_to[i], NULL);
}

void rg_faults_cover(uint64_t start, uint64_t size)
{
    uint64_t now = atomic_load(&lowest);
    while (start < now && !atomic_compare_exchange_weak(&lowest, &now, start))
        ;
    now = atomic_load(&highest);
    while (start + size > now && !atomic_compare_exchange_weak(&highest, &now, start + size))
        ;
}

/* --- touches -------------------------------------------------------------------------------------------- */

static size_t take_messages(struct rg_touch *list, size_t max)
{
    struct uffd_msg messages[64];
    if (max > 64)
        max = 64;
    const ssize_t got = read(rg_faults_uffd, messages, max * sizeof *messages);
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

/* Until there is something to take, or the time is over. Whether userfaultfd may have some of it. */
static bool sleep_for_touches(int timeout_ms)
{
    static uint32_t seen; /* the service's alone */
    uint64_t count;
    if (rg_faults_uffd < 0) {
        futex_wait(&wakes, seen, timeout_ms);
        seen = atomic_load(&wakes);
        return false;
    }
    struct pollfd ready[2] = {{.fd = wake_fd, .events = POLLIN}, {.fd = rg_faults_uffd, .events = POLLIN}};
    /* where that is refused, it looks again and again */
    const bool unknown = rg_poll(ready, 2, timeout_ms) < 0;
    if (unknown || ready[0].revents)
        (void)!read(wake_fd, &count, sizeof count);
    return unknown || ready[1].revents;
}

size_t rg_touches_wait(struct rg_touch *list, size_t max, int timeout_ms)
{
    if (!max) {
        list = NULL;
        rg_pause((uint64_t)(timeout_ms > 0 ? timeout_ms : 1) * 1000000u);
        return 0;
    }
    const bool by_uffd = sleep_for_touches(timeout_ms);
    size_t n = take_requests(list, max);
    if (by_uffd && n < max)
        n += take_messages(list + n, max - n);
    return n;
}

void rg_touch_done(const struct rg_touch *touch, bool handled)
{
    struct request *request = touch->waits;
    if (!request) {
        rg_faults_wake(touch->address & ~(uint64_t)(RG_FAULT_PAGE - 1), RG_FAULT_PAGE);
        return;
    }
    request->handled = handled;
    _Atomic uint32_t *done = &request->done;
    atomic_store(done, 1); /* the request may be gone from here on; a wake of its word is harmless */
    futex_wake(done);
}
