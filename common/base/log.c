/*
 * log.c - one line a message on stderr.
 *
 * The line is put together on the stack and leaves by one write(2); text that came from elsewhere (a peer's
 * name, a path) cannot break the line, move the cursor or turn around what is beside it (printable.h). Nothing here
 * fails visibly: a line that cannot be written is dropped, without a signal for the application and without
 * touching errno.
 */
#include "common/base/log.h"

#include "common/base/printable.h"
#include "common/base/quiet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048, LEVEL_UNSET = -1 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const level_prefixes[] = {"", "warning: ", "", "debug: "};

static _Atomic(const char *) log_name = "remote-gpu";
static atomic_int log_fd = STDERR_FILENO;
static atomic_int log_level = LEVEL_UNSET;

void rg_log_name(const char *name)
{
    atomic_store_explicit(&log_name, name, memory_order_relaxed);
}

const char *rg_log_get_name(void)
{
    return atomic_load_explicit(&log_name, memory_order_relaxed);
}

void rg_log_set_fd(int fd)
{
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
}

void rg_log_set_level(enum rg_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

/* The level of a name; LEVEL_UNSET: it is none. */
static int level_of(const char *name)
{
    for (int i = 0; i <= RG_LOG_DEBUG; i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return LEVEL_UNSET;
}

bool rg_log_set_level_by_name(const char *name)
{
    const int level = level_of(name);
    if (level == LEVEL_UNSET)
        return false;
    rg_log_set_level((enum rg_log_level)level);
    return true;
}

enum rg_log_level rg_log_get_level(void)
{
    int level = atomic_load_explicit(&log_level, memory_order_relaxed);
    if (level != LEVEL_UNSET)
        return (enum rg_log_level)level;
    const char *wanted = secure_getenv("REMOTE_GPU_LOG");
    level = wanted && *wanted ? level_of(wanted) : RG_LOG_WARN;
    const bool known = level != LEVEL_UNSET;
    if (!known)
        level = RG_LOG_WARN;
    /* threads that race here find the same value; the first to store it reports a bad one */
    int unset = LEVEL_UNSET;
    if (atomic_compare_exchange_strong(&log_level, &unset, level) && !known)
        rg_warn("REMOTE_GPU_LOG=%s is not one of error, warn, info, debug", wanted);
    return (enum rg_log_level)level;
}

static void (*_Atomic log_tap)(enum rg_log_level level, const char *text, size_t size);

void rg_log_tap(void (*tap)(enum rg_log_level level, const char *text, size_t size))
{
    atomic_store_explicit(&log_tap, tap, memory_order_release);
}

static bool (*_Atomic log_gate)(enum rg_log_level level);

void rg_log_gate(bool (*gate)(enum rg_log_level level))
{
    atomic_store_explicit(&log_gate, gate, memory_order_release);
}

bool rg_log_enabled(enum rg_log_level level)
{
    return level <= rg_log_get_level();
}

static void write_quietly(const char *line, size_t size)
{
    const int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    struct rg_quiet quiet;
    ssize_t written;
    rg_quiet_begin(&quiet);
    do
        written = write(fd, line, size);
    while (written < 0 && errno == EINTR);
    rg_quiet_end(&quiet, written < 0 ? errno : 0);
}

/* A line that is shown unless its level is off, or `quiet`. */
static void say(enum rg_log_level level, bool quiet, const char *format, va_list args)
{
    void (*tap)(enum rg_log_level, const char *, size_t) =
        level <= RG_LOG_WARN ? atomic_load_explicit(&log_tap, memory_order_acquire) : NULL;
    const bool shown = !quiet && rg_log_enabled(level);
    if (!shown && !tap)
        return;
    int saved_errno = errno;
    char line[LINE_MAX_BYTES];
    size_t room = sizeof line - 1; /* the newline */
    int n = snprintf(line, room, "%s: %s", rg_log_get_name(), level_prefixes[level]);
    size_t size = n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    const size_t name = size;
    errno = saved_errno; /* for %m */
    n = vsnprintf(line + size, room - size, format, args);
    if (n > 0)
        size += (size_t)n < room - size ? (size_t)n : room - size - 1;
    rg_printable_clean(line);
    if (tap)
        tap(level, line + name, size - name);
    line[size++] = '\n';
    if (shown)
        write_quietly(line, size);
    errno = saved_errno;
}

void rg_log(enum rg_log_level level, const char *format, ...)
{
    const int saved_errno = errno;
    bool (*gate)(enum rg_log_level) = atomic_load_explicit(&log_gate, memory_order_acquire);
    const bool quiet = gate && rg_log_enabled(level) && !gate(level);
    va_list args;
    va_start(args, format);
    errno = saved_errno;
    say(level, quiet, format, args);
    va_end(args);
}

void rg_log_always(enum rg_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(level, false, format, args);
    va_end(args);
}
