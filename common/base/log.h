/*
 * log.h - messages of remote-gpu's own: one line each on stderr, "remote-gpu: …" (stdout is the
 * application's).
 *
 * The level comes from REMOTE_GPU_LOG=error|warn|info|debug (default: warn). A line is written by one
 * write(2), so lines of several threads and processes do not mix. Any thread; async-signal-unsafe.
 */
#ifndef RG_COMMON_BASE_LOG_H
#define RG_COMMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum rg_log_level { RG_LOG_ERROR, RG_LOG_WARN, RG_LOG_INFO, RG_LOG_DEBUG };

/** The name before the colon; default "remote-gpu". `name` must stay valid (a literal). */
void rg_log_name(const char *name);
void rg_log_set_level(enum rg_log_level level);
/** "error", "warn", "info", "debug". False: none of them. */
bool rg_log_set_level_by_name(const char *name);
enum rg_log_level rg_log_get_level(void);
/** What rg_log_name was given last, not copied. Any thread. */
const char *rg_log_get_name(void);
/** Whether a message of that level would be shown; asked before what only a message needs is computed. */
bool rg_log_enabled(enum rg_log_level level);
/**
 * From now on `tap` is given each warning and error, shown or not, without the name before it: one function a process,
 * called on the thread that logs.
 */
void rg_log_tap(void (*tap)(enum rg_log_level level, const char *text, size_t size));
/** From now on rg_log shows only lines that `gate` lets through: one function a process, called on the thread that logs. */
void rg_log_gate(bool (*gate)(enum rg_log_level level));
/** Lines go to descriptor `fd` from now on, which stays open; at first to 2. */
void rg_log_set_fd(int fd);
void rg_log(enum rg_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** The same, without asking a gate: for what is said once. */
void rg_log_always(enum rg_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define rg_error(...) rg_log(RG_LOG_ERROR, __VA_ARGS__)
#define rg_warn(...)  rg_log(RG_LOG_WARN, __VA_ARGS__)
#define rg_info(...)  rg_log(RG_LOG_INFO, __VA_ARGS__)
/* arguments are evaluated only if the level is on */
#define rg_debug(...)                                                                                        \
    do {                                                                                                     \
        if (rg_log_enabled(RG_LOG_DEBUG))                                                                    \
            rg_log(RG_LOG_DEBUG, __VA_ARGS__);                                                               \
    } while (0)

#endif
