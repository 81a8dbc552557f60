/* signals.h - handlers of signals that stand before those of the application. */
#ifndef RG_COMMON_BASE_SIGNALS_H
#define RG_COMMON_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

/** Whether somebody has sent it (kill, raise): it is about no access, and does not come again by itself. */
static inline bool rg_signal_is_sent(const siginfo_t *info)
{
    return info->si_code <= 0;
}
/** The instruction that a handler interrupted, of its third argument. */
static inline uintptr_t rg_signal_program_counter(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}
/**
 * From a handler with SA_SIGINFO, behind which it does nothing more: deals with the signal as if that handler had not been set and
 * `previous` were the action, also with its mask and flags. Async-signal-safe.
 */
void rg_signal_pass_on(struct sigaction *previous, int number, siginfo_t *info, void *context);
/**
 * In a thread of ours (thread.h) that runs functions of the application's: what these do wrong raises signals there as elsewhere. The
 * others stay blocked.
 */
void rg_signals_allow_faults(void);

#endif
