/*
 * stub_driver.h - a driver that does nothing, for tests of the worker: what a test needs beyond that it sets
 * in rg_driver itself.
 */
#ifndef RG_TESTS_SERVER_STUB_DRIVER_H
#define RG_TESTS_SERVER_STUB_DRIVER_H

#include "generated/server/driver.h"

#include <stdatomic.h>
#include <stdbool.h>

CUresult stub_succeed(void);
CUresult stub_fail(void); /* CUDA_ERROR_NOT_SUPPORTED */

/**
 * Every function of the driver is `all`, but these: contexts, streams and events are made, each another one;
 * of a device there is one primary context; pinned memory is the heap's; the current device is 0; a gigabyte
 * of memory lies behind each address; a module has three functions, and functions have no parameters; streams and events are done
 * unless the stub is busy.
 */
void stub_driver_use(CUresult (*all)(void));
extern atomic_bool stub_busy;

/** What a function of a test's that can be held up calls: returns when it is not, or no longer. */
void stub_pass(void);
/** Holds up who passes from now on, or lets all pass. */
void stub_hold(bool held);
/** Waits until at least so many are held up. */
void stub_wait_held(unsigned n);

/** From now on host functions and callbacks are called, and streams wait for words and write them, on threads, those of a stream one after another. */
void stub_driver_call_host(void);
/** Waits until those that were put into streams have returned. */
void stub_driver_wait(void);
/** Contexts have failed: host functions are not called any more. */
extern atomic_bool stub_failed;

#endif
