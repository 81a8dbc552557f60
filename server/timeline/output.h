/*
 * output.h - what kernels print belongs on the client's terminal.
 *
 * The driver writes device printf to this process's standard output. That is a pipe here, made before the
 * driver is loaded; a thread reads it and sends RG_NOTICE_OUTPUT, so that the driver never blocks on it, and
 * a call that synchronises drains it before its reply, so that the text is there when the call returns.
 */
#ifndef RG_SERVER_TIMELINE_OUTPUT_H
#define RG_SERVER_TIMELINE_OUTPUT_H

#include "server/core/worker.h"

/** Replaces descriptor 1 by a pipe; *out: its read end. */
RG_MUST_CHECK enum rg_status rg_output_redirect(int *out);
/** Sends what comes out of `fd` (closed with the worker) from now on. */
RG_MUST_CHECK enum rg_status rg_output_start(struct rg_worker *worker, int fd);
/** Sends what is in the pipe now. Any thread. */
void rg_output_drain(struct rg_worker *worker);

#endif
