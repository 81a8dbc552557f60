/*
 * signals.c - signals of the processor that a kernel's accesses and instructions raise.
 *
 * The handlers for SIGSEGV, SIGBUS, SIGFPE and SIGILL are installed when the engine first runs and stay. In a
 * thread whose slot runs a fiber, the signal is the kernel's: the fault is recorded and control goes, out of
 * the handler, to the slot's scheduler, which gives up the block's fibers; the handler's alternate stack is
 * left behind as it is. Where memory is held (held.h) any thread's access waits. Any other signal goes to the
 * handler that was there before.
 *
 * An application that installs handlers of its own later, without passing signals on, takes these ones out of
 * action.
 */
#include "softgpu/exec/fault/signals.h"
#include "softgpu/exec/fault/decode.h"
#include "softgpu/exec/fault/fault.h"
#include "softgpu/exec/fault/held.h"
#include "softgpu/exec/fault/watchdog.h"
#include "softgpu/exec/fiber/fiber.h"

#include "common/base/log.h"
#include "common/base/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIGNAL_STACK_MIN  (64u << 10)
#define USER_ADDRESS_BITS 47

__thread struct sg_slot *sg_current_slot __attribute__((tls_model("initial-exec")));

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_SIGNALS (sizeof(signals) / sizeof(*signals))
static struct sigaction previous[N_SIGNALS];

/**
 * Which fault of the kernel the signal means, and the address it is about (the instruction's, if there is
 * none).
 */
static enum sg_fault classify(const struct sg_slot *slot, int signal, const siginfo_t *info,
                              const ucontext_t *context, uint64_t *address)
{
    *address = (uintptr_t)info->si_addr;
    switch (signal) {
    case SIGSEGV:
        if (info->si_code == SI_KERNEL) { /* no address comes with it: not canonical, or not aligned */
            if (!sg_memory_operand(context, address))
                return SG_FAULT_ILLEGAL_ADDRESS;
            return *address >> USER_ADDRESS_BITS ? SG_FAULT_ILLEGAL_ADDRESS : SG_FAULT_MISALIGNED;
        }
        if (sg_fiber_overflowed(slot->current, (uintptr_t)*address))
            return SG_FAULT_STACK;
        return rg_signal_program_counter(context) == *address ? SG_FAULT_INVALID_PC
                                                              : SG_FAULT_ILLEGAL_ADDRESS;
    case SIGBUS:
        return info->si_code == BUS_ADRALN ? SG_FAULT_MISALIGNED : SG_FAULT_ILLEGAL_ADDRESS;
    default:
        *address = rg_signal_program_counter(context);
        return SG_FAULT_ILLEGAL_INSTRUCTION;
    }
}

/** The signal is not a kernel's: it is dealt with as if this handler were not there. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    size_t i = 0;
    while (signals[i] != signal)
        i++;
    rg_signal_pass_on(&previous[i], signal, info, context);
}

/** Gives up the kernel that the slot runs, out of a signal handler. */
static _Noreturn void give_up(struct sg_slot *slot, const ucontext_t *context)
{
    slot->leave = SG_LEAVE_STOPPED;
    /*
     * the handler does not return: what was blocked for its time (by sanitizers, all signals) is let in again
     */
    pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
    sg_leave(slot, slot->current); /* the fiber is given up: this does not return */
    __builtin_unreachable();
}

/**
 * Whether the signal is the watchdog's, which is then dealt with: a kernel that is in generated code is given
 * up.
 */
static bool is_nudge(struct sg_slot *slot, int signal, const siginfo_t *info, const ucontext_t *context)
{
    if (signal != SIGILL || info->si_code != SI_TKILL || info->si_pid != getpid() || !sg_watchdog_acts())
        return false;
    if (!slot || !slot->in_kernel)
        return true; /* it comes after the grid's end */
    struct sg_run *run = slot->current->run;
    if (!atomic_load(&run->grid->timed_out))
        return true;
    /* in the engine this is all: it sees by itself that the grid has a fault */
    sg_run_fault(run, SG_FAULT_TIMEOUT,
                 run->grid->launch->form == SG_CODE_THREAD ? slot->current->thread.tid : NULL, 0);
    if (sg_is_generated_code(rg_signal_program_counter(context)))
        give_up(slot, context);
    return true;
}

static bool is_held(uint64_t address)
{
    int saved = errno;
    bool held = sg_hold_waited(address);
    errno = saved;
    return held;
}

static void handle(int signal, siginfo_t *info, void *context)
{
    struct sg_slot *slot = sg_current_slot;
    if (is_nudge(slot, signal, info, context))
        return;
    if (signal == SIGSEGV && !rg_signal_is_sent(info) && is_held((uintptr_t)info->si_addr))
        return;
    if (!slot || !slot->in_kernel || rg_signal_is_sent(info)) {
        int saved = errno;
        pass_on(signal, info, context);
        errno = saved;
        return;
    }
    struct sg_fiber *fiber = slot->current;
    struct sg_run *run = fiber->run;
    uint64_t address;
    enum sg_fault fault = classify(slot, signal, info, context, &address);
    sg_run_fault(run, fault, run->grid->launch->form == SG_CODE_THREAD ? fiber->thread.tid : NULL, address);
    give_up(slot, context);
}

void sg_signals_install(void)
{
    for (size_t i = 0; i < N_SIGNALS; i++) {
        struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], &action, &previous[i]) != 0)
            rg_error("cannot install the handler of signal %d: %s", signals[i], strerror(errno));
    }
}

/* --- the thread's part --- */

static pthread_key_t signal_stack_key;
static bool has_key; /* else the program has all that there are, and stacks stay when threads end */
static pthread_once_t signal_stack_once = PTHREAD_ONCE_INIT;

static size_t signal_stack_size(void)
{
    long size = sysconf(_SC_SIGSTKSZ);
    return size > (long)SIGNAL_STACK_MIN ? ((size_t)size + 4095) & ~(size_t)4095 : SIGNAL_STACK_MIN;
}

static void free_signal_stack(void *stack)
{
    stack_t current;
    if (sigaltstack(NULL, &current) == 0 && current.ss_sp == stack)
        sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    munmap(stack, signal_stack_size());
}

static void make_key(void)
{
    has_key = pthread_key_create(&signal_stack_key, free_signal_stack) == 0;
}

/* Told once, as a filter of system calls, or a limit of memory, stays. */
static bool without_stack(const char *call)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told))
        rg_error(
            "kernels cannot run in this process: their faults need a stack of their own, and %s failed (%s)",
            call, strerror(errno));
    return false;
}

bool sg_signals_thread_init(void)
{
    static __thread bool done;
    if (done)
        return true;
    pthread_once(&signal_stack_once, make_key);

    stack_t current;
    if (sigaltstack(NULL, &current) != 0)
        return without_stack("sigaltstack");
    if ((current.ss_flags & SS_DISABLE) || current.ss_size < SIGNAL_STACK_MIN) {
        size_t size = signal_stack_size();
        void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED)
            return without_stack("mmap");
        if (sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = size}, NULL) != 0) {
            without_stack("sigaltstack");
            munmap(stack, size);
            return false;
        }
        if (has_key)
            pthread_setspecific(signal_stack_key, stack);
    }
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    done = true;
    return true;
}
