/*
 * prepare.h - the worker's driver: loaded into rg_driver where the client wants device memory to be, initialised, with contexts.
 *
 * Once for the process, before it has other threads. What was prepared holds nothing of a client: a worker may do it before it
 * has one (warm.h).
 */
#ifndef RG_SERVER_HANDSHAKE_PREPARE_H
#define RG_SERVER_HANDSHAKE_PREPARE_H

#include "common/base/status.h"
#include "generated/server/driver.h"
#include "server/handshake/hello.h"
#include "server/handshake/shape.h"

/** Loads and initialises the driver for the devices of `hello`. Anything but RG_OK: `why` is what to tell the client. */
RG_MUST_CHECK enum rg_status rg_prepare_driver(const struct rg_hello *hello, const struct rg_shape *shape,
                                               char *why, size_t why_size);
/** What it was prepared for; NULL: it was not. */
const struct rg_shape *rg_prepared_shape(void);
/** cuDriverGetVersion's. */
uint32_t rg_prepared_version(void);

/**
 * Makes the primary contexts of the devices of `wanted` ready, a bit each, besides those that are. What fails is left to the call
 * that asks for it.
 */
void rg_prepare_contexts(uint64_t wanted, uint32_t n_devices);
/** Those that are: retained once, for nobody yet. */
uint64_t rg_prepared_contexts(void);

/** Whether a call of the driver's succeeded; if not, `why` says which failed and how. */
bool rg_prepare_check(CUresult result, const char *call, char *why, size_t why_size);

#endif
