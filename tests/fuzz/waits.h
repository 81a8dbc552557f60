/*
 * waits.h - time that passes at once, for targets whose threads wait for each other (rg_fuzzer … THREADS WAITS, or FIBERS).
 *
 * Where all threads of an input wait on conditions, nothing happens until one of the waits ends by the clock. So the clock that the target
 * sees goes on to that moment, and what would take half a minute takes no time. Where no wait would end, or many have ended without
 * progress, the input is stuck, and what the target has given for that is called: to end a connection, which ends the waits.
 *
 * Time goes on as ever while a thread runs, which is also one that sleeps in a system call or waits for a lock. Counted are the thread that
 * calls fuzz_waits_begin and those that are started between that and fuzz_waits_end.
 */
#ifndef RG_TESTS_FUZZ_WAITS_H
#define RG_TESTS_FUZZ_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* Weak: a target without WAITS or FIBERS calls none of them. */
#define FUZZ_WAITS __attribute__((weak))

/** An input begins. `stuck` is called by any of its threads, which holds no lock of the target's. */
FUZZ_WAITS void fuzz_waits_begin(void (*stuck)(void));
/** With FIBERS: in which order threads go on where they might, from now on. */
FUZZ_WAITS void fuzz_waits_order(uint64_t seed);
/** The input has come further. Any thread. */
FUZZ_WAITS void fuzz_waits_progress(void);
/** The input has ended, and with it its threads. */
FUZZ_WAITS void fuzz_waits_end(void);

/* --- for threads.c, which has these only in targets with WAITS; any thread ------------------------------------------------ */

/** Whether this thread is one of an input's. */
FUZZ_WAITS bool fuzz_waits_counts(void);
/** This thread is, or is not, from now on. */
FUZZ_WAITS void fuzz_waits_count(bool counts);
/** One more thread runs. */
FUZZ_WAITS void fuzz_waits_enter(void);
/** One fewer runs. */
FUZZ_WAITS void fuzz_waits_leave(void);

#endif
