/*
 * log_limit.h - a limit on lines that others can cause: who connects to an open port again and again must not fill the
 * disk with what is said about it.
 *
 * RG_LOG_LIMIT_LINES lines in RG_LOG_LIMIT_NS are said; the last of them says that others like it are left out, and the
 * first one after them how many were. Level debug has no limit. Any thread.
 *
 * A process in which everything is a peer's doing has a limit for all of its lines together (rg_log_limit_process).
 */
#ifndef RG_COMMON_BASE_LOG_LIMIT_H
#define RG_COMMON_BASE_LOG_LIMIT_H

#include "common/base/log.h"
#include "common/base/status.h"

#include <pthread.h>
#include <stdint.h>

#define RG_LOG_LIMIT_LINES 20u
#define RG_LOG_LIMIT_NS    10000000000ull

struct rg_log_limit {
    pthread_mutex_t lock;
    uint64_t began_ns;       /* of the time that is counted now */
    unsigned said, left_out; /* in it */
};

/* The same for all lines of a process that serves one peer, and of one that serves all. */
#define RG_LOG_PROCESS_LINES 50u
#define RG_LOG_ALL_LINES     600u
#define RG_LOG_PROCESS_NS    60000000000ull

#define RG_LOG_LIMIT_INIT                                                                                    \
    {                                                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                                    \
    }

/** rg_log, within the limit. `now_ns`: rg_now_ns(). */
void rg_log_limited(struct rg_log_limit *limit, uint64_t now_ns, enum rg_log_level level, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
/**
 * For lines that are said by other means: whether one more of `lines` in `period_ns` may be said. *before: how many were left out
 * since one was; *last: those behind it will be.
 */
RG_MUST_CHECK bool rg_log_limit_take(struct rg_log_limit *limit, unsigned lines, uint64_t period_ns,
                                     uint64_t now_ns, unsigned *before, bool *last);
/** From now on all lines of this process, but those of rg_log_always, are within one limit: `lines` in RG_LOG_PROCESS_NS. */
void rg_log_limit_process(unsigned lines);

#endif
