/* signals.c - see signals.h. */
#include "common/base/signals.h"

#include <stddef.h>
#include <ucontext.h>

/* The application's handler may leave by siglongjmp: so it begins with the mask that the kernel would have given it. */
static void set_mask(const struct sigaction *action, int number, const ucontext_t *context)
{
    sigset_t mask = context->uc_sigmask;
    sigorset(&mask, &mask, &action->sa_mask);
    if (!(action->sa_flags & SA_NODEFER))
        sigaddset(&mask, number);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* Ends the process, as the action would have: by the access, which is tried again, or by the signal itself. */
static void take_default(int number, const siginfo_t *info)
{
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    if (rg_signal_is_sent(info))
        raise(number); /* once it is not blocked any more */
}

void rg_signal_pass_on(struct sigaction *previous, int number, siginfo_t *info, void *context)
{
    const struct sigaction action = *previous;
    if (action.sa_handler == SIG_IGN && rg_signal_is_sent(info))
        return;
    if (action.sa_handler == SIG_DFL ||
        action.sa_handler == SIG_IGN) { /* what an access raises cannot be ignored */
        take_default(number, info);
        return;
    }
    if (action.sa_flags & (int)SA_RESETHAND)
        *previous = (struct sigaction){.sa_handler = SIG_DFL};
    set_mask(&action, number, context);
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(number, info, context);
    else
        action.sa_handler(number);
}

void rg_signals_allow_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaddset(&set, faults[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
