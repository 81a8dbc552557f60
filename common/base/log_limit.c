/* log_limit.c - see log_limit.h. */
#include "common/base/log_limit.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Longer ones are cut, as the log cuts them. */
#define TEXT_SIZE 2048

bool rg_log_limit_take(struct rg_log_limit *limit, unsigned lines, uint64_t period_ns, uint64_t now_ns,
                       unsigned *before, bool *last)
{
    RG_SCOPED_LOCK(&limit->lock);
    *before = 0;
    if (limit->said == 0 || now_ns - limit->began_ns >= period_ns) {
        *before = limit->left_out;
        limit->began_ns = now_ns;
        limit->said = limit->left_out = 0;
    }
    const bool may = limit->said < lines;
    if (may)
        limit->said++;
    else
        limit->left_out++;
    *last = may && limit->said == lines;
    return may;
}

void rg_log_limited(struct rg_log_limit *limit, uint64_t now_ns, enum rg_log_level level, const char *format,
                    ...)
{
    unsigned before = 0;
    bool last = false;
    if (!rg_log_enabled(level))
        return;
    if (!rg_log_enabled(RG_LOG_DEBUG) &&
        !rg_log_limit_take(limit, RG_LOG_LIMIT_LINES, RG_LOG_LIMIT_NS, now_ns, &before, &last))
        return;
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (before)
        rg_log(level, "%u lines like the next one were left out", before);
    rg_log(level, "%s%s", text, last ? " (for some seconds, others like this are left out)" : "");
}

static atomic_uint lines_of_process;

static bool within_process(enum rg_log_level level)
{
    const unsigned lines = atomic_load_explicit(&lines_of_process, memory_order_relaxed);
    static struct rg_log_limit limit = RG_LOG_LIMIT_INIT;
    unsigned before;
    bool last;
    if (rg_log_enabled(RG_LOG_DEBUG))
        return true;
    if (!rg_log_limit_take(&limit, lines, RG_LOG_PROCESS_NS, rg_now_ns(), &before, &last))
        return false;
    if (before)
        rg_log_always(level, "%u lines of process %d were left out", before, (int)getpid());
    if (last)
        rg_log_always(level,
                      "process %d says too much: lines behind the next one are left out for up to a minute",
                      (int)getpid());
    return true;
}

void rg_log_limit_process(unsigned lines)
{
    atomic_store_explicit(&lines_of_process, lines, memory_order_relaxed);
    rg_log_gate(within_process);
}
