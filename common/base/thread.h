/*
 * thread.h - threads of our own inside somebody else's process.
 *
 * The application's signals are not ours to handle: such a thread starts with all signals blocked, so that a
 * handler of the application's never runs on it. Its stack has a megabyte at least, however little threads have by
 * default in this process (ulimit -s).
 */
#ifndef RG_COMMON_BASE_THREAD_H
#define RG_COMMON_BASE_THREAD_H

#include "common/base/status.h"

#include <pthread.h>
#include <stdbool.h>

/** Starts a thread, named `name` (up to 15 bytes) for debuggers. RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_thread_create(pthread_t *out, const char *name, void *(*run)(void *),
                                              void *arg);
/** The same for a thread that nobody waits for; false: it cannot be made. */
RG_MUST_CHECK bool rg_thread_start(const char *name, void *(*run)(void *), void *arg);

/** Starts a thread that runs until the process ends. */
RG_MUST_CHECK enum rg_status rg_thread_create_detached(const char *name, void *(*run)(void *), void *arg);

/**
 * Calls run(arg), which needs some hundred kilobytes of stack (names are looked up, TLS is begun). The stacks of a program's threads
 * and coroutines may have 16 KiB: then the calling thread goes to another stack meanwhile, so that it still has the locks that it has,
 * such as the loader's in constructors of a library that is opened. Signal handlers with a stack of their own wait for another thread.
 */
void rg_thread_with_room(void (*run)(void *), void *arg);

/**
 * Whether this process has threads besides the calling one and those that rg_thread_create made (of this library). Asks
 * the kernel, about a microsecond; true where it cannot tell.
 */
bool rg_thread_has_others(void);

/**
 * Says of the calling thread that it runs for a moment at a time: a kernel that can (Linux 6.12) then lets it run soon
 * after it is woken, also where others compute on the same core, and lets it run no more in sum. Its priority stays.
 */
void rg_thread_expect_little(void);

/** The calling thread's sleeps that have an end end when they shall, not up to 50 us later. Of our own threads alone. */
void rg_thread_sleep_precisely(void);

#endif
