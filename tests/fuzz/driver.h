/*
 * driver.h - a driver for the fuzzer of the worker: it does nothing, but looks at all memory that it is given, makes
 * objects, and host functions and waits are what one input says they are. operations.py makes the functions.
 */
#ifndef RG_TESTS_FUZZ_DRIVER_H
#define RG_TESTS_FUZZ_DRIVER_H

#include "generated/server/driver.h"
#include "tests/fuzz/fuzzer.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    FUZZ_DRIVER_REFUSES = 1,   /* every function that makes something */
    FUZZ_DRIVER_NOT_READY = 2, /* work is under way, as long as nobody waits for it */
    FUZZ_DRIVER_FAILED = 4,    /* contexts have failed */
    FUZZ_DRIVER_FULL = 8,      /* there is no device memory */
    FUZZ_DRIVER_HOST = 16,     /* host functions are called, at once */
};

/** Fills rg_driver; what it does is up to `mode` (FUZZ_DRIVER_…). */
void fuzz_driver_use(unsigned mode);
/** Changes what it does; any thread. */
void fuzz_driver_change(unsigned mode);
/** From now on all work is done, and who waits for a context waits until host functions have returned. */
void fuzz_driver_end(void);

/** Addresses that are no memory of the session's, of which every other one is. */
enum { FUZZ_DRIVER_HOLE = 4096, FUZZ_DRIVER_HOLE_END = 8192 };

/* For the generated functions. */
void fuzz_driver_fill(void);
bool fuzz_refuses(void);
void *fuzz_object(void);
void fuzz_read_text(const char *text);
void fuzz_write(void *data, size_t size);

#endif
