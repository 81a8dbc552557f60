/*
 * quiet.h - writing inside somebody else's process, which never asked for the signals that a write can raise: SIGPIPE where
 * nobody reads, SIGXFSZ where a file may not grow (ulimit -f).
 */
#ifndef RG_COMMON_BASE_QUIET_H
#define RG_COMMON_BASE_QUIET_H

#include <signal.h>

struct rg_quiet {
    sigset_t held, before;
};

/** From here on this thread's writes fail without a signal. */
void rg_quiet_begin(struct rg_quiet *quiet);

/** `error`: what a write in between has failed with; 0: none has. Keeps errno. */
void rg_quiet_end(const struct rg_quiet *quiet, int error);

#endif
