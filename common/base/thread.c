/* thread.c - starting threads with every signal blocked. */
#include "common/base/thread.h"

#include "common/base/uncancelled.h"
#include "common/base/valgrind.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of linux/sched/types.h, in the size that it first had; glibc 2.36 has neither it nor the calls. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: the slice, since Linux 6.12 */
};

void rg_thread_expect_little(void)
{
    struct attributes attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0u) != 0 ||
        attributes.policy != SCHED_OTHER)
        return;
    attributes.flags = 0;
    attributes.runtime = 100000;
    (void)!syscall(SYS_sched_setattr, 0, &attributes, 0u);
}

void rg_thread_sleep_precisely(void)
{
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* ns */
}

#define STACK_LEAST ((size_t)1 << 20) /* of our threads */
#define STACK_ROOM  ((size_t)256 << 10)

struct start {
    void *(*run)(void *);
    void *arg;
};

/* Ours that live. A thread counts when it runs and until it is about to end: in between others may seem to be there that
 * are not, never the other way round. */
static _Atomic long ours;

static void *begin(void *arg)
{
    const struct start start = *(struct start *)arg;
    free(arg);
    void *result = start.run(start.arg);
    atomic_fetch_sub(&ours, 1);
    return result;
}

/* Of those that threads have by default, which the program's limit of stacks was when it started. */
static size_t stack_size(const pthread_attr_t *attributes)
{
    size_t size = 0;
    return pthread_attr_getstacksize(attributes, &size) == 0 && size > STACK_LEAST ? size : STACK_LEAST;
}

static int make(pthread_t *out, struct start *start)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return ENOMEM;
    const bool little =
        stack_size(&attributes) == STACK_LEAST && pthread_attr_setstacksize(&attributes, STACK_LEAST) == 0;
    const int error = pthread_create(out, little ? &attributes : NULL, begin, start);
    pthread_attr_destroy(&attributes);
    return error;
}

enum rg_status rg_thread_create(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return RG_ERR_NO_MEMORY;
    *start = (struct start){run, arg};
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread;
    const int error = make(&thread, start);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        free(start);
        return RG_ERR_NO_MEMORY;
    }
    atomic_fetch_add(&ours, 1);
    pthread_setname_np(thread, name);
    *out = thread;
    return RG_OK;
}

enum rg_status rg_thread_create_detached(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t thread;
    enum rg_status status = rg_thread_create(&thread, name, run, arg);
    if (status == RG_OK)
        pthread_detach(thread);
    return status;
}

bool rg_thread_start(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t thread;
    return rg_thread_create(&thread, name, run, arg) == RG_OK && pthread_detach(thread) == 0;
}

/* False also where nothing is known of the stack: a coroutine's, or a main thread's without /proc. */
static bool has_room(void)
{
    pthread_attr_t attributes;
    void *end = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return false;
    const bool known = pthread_attr_getstack(&attributes, &end, &size) == 0;
    pthread_attr_destroy(&attributes);
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0), least = (uintptr_t)end;
    return known && here > least && here - least <= size && here - least >= STACK_ROOM;
}

struct errand {
    void (*run)(void *);
    void *arg;
};

static void *run_errand(void *arg)
{
    const struct errand *errand = arg;
    errand->run(errand->arg);
    return NULL;
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/*
 * Calls run(arg) with the stack pointer at `top`. This function, since it asks for its frame, has a frame pointer, which the callee keeps:
 * so debuggers and profilers see who has called.
 */
static __attribute__((noinline)) void call_on(void *top, void *(*run)(void *), void *arg)
{
    __asm__ volatile("movq %%rsp, %%rbx\n\t"
                     "movq %[top], %%rsp\n\t"
                     "callq *%[run]\n\t"
                     "movq %%rbx, %%rsp"
                     : "+D"(arg)
                     : [top] "r"(top), [run] "r"(run), "r"(__builtin_frame_address(0))
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0",
                       "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

/*
 * The calling thread, on a stack that is made for that. False: not here. In a signal handler that has a stack of its own, the next
 * signal's would begin at that one's top, where this one's frames are.
 */
static bool run_on_another_stack(struct errand *errand)
{
    pthread_attr_t attributes;
    stack_t signals;
    if (sigaltstack(NULL, &signals) != 0 || signals.ss_flags & SS_ONSTACK || rg_under_valgrind() ||
        pthread_attr_init(&attributes) != 0)
        return false;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = stack_size(&attributes) & ~(page - 1);
    pthread_attr_destroy(&attributes);
    char *stack = mmap(NULL, page + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return false;
    const bool good = mprotect(stack + page, size, PROT_READ | PROT_WRITE) == 0;
    if (good)
        call_on(stack + page + size, run_errand, errand);
    munmap(stack, page + size);
    return good;
}
#else
static bool run_on_another_stack(struct errand *errand)
{
    (void)errand;
    return false;
}
#endif

void rg_thread_with_room(void (*run)(void *), void *arg)
{
    RG_UNCANCELLED;
    struct errand errand = {run, arg};
    pthread_t thread;
    if (has_room())
        run(arg);
    else if (run_on_another_stack(&errand))
        return;
    else if (rg_thread_create(&thread, "rg-errand", run_errand, &errand) == RG_OK)
        pthread_join(thread, NULL);
    else
        run(arg);
}

bool rg_thread_has_others(void)
{
    struct stat tasks; /* a folder with one for each thread: its links are those, itself and its parent's */
    const long mine = atomic_load(&ours);
    if (stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink < 3)
        return true;
    return (long)tasks.st_nlink - 2 > mine + 1;
}
