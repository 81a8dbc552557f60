/* signals.h - handlers of signals that stand before those of the application. */
#ifndef RG_COMMON_BASE_SIGNALS_H
#define RG_COMMON_BASE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/** Whether somebody has sent it (kill, raise): it is about no access, and does not come again by itself. */
static inline bool rg_signal_is_sent(const siginfo_t *info)
{
    return info->si_code <= 0;
}
/**
 * From a handler with SA_SIGINFO, behind which it does nothing more: deals with the signal as if that handler had not been set and
 * `previous` were the action, also with its mask and flags. Async-signal-safe.
 */
void rg_signal_pass_on(struct sigaction *previous, int number, siginfo_t *info, void *context);

#endif
