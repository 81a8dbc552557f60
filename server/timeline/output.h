/*
 * output.h - what kernels print belongs on the client's terminal.
 *
 * The driver writes device printf to this process's standard output, and failed assertions to its standard error. Both are pipes
 * here; a thread reads them and sends RG_NOTICE_OUTPUT, so that the driver never blocks on them, and a call that synchronises
 * drains them before its reply, so that the text is there when the call returns.
 *
 * On standard error there is also what the driver says to who runs the server, and a library's last words. Only what is meant for
 * the program (assertions, and the software device's lines about kernels that it cannot run) goes to the client; all else goes
 * to the log as the driver's words, a line each and within the limit of lines: a kernel can make the driver say anything. The log of
 * the process itself never comes by the pipe.
 */
#ifndef RG_SERVER_TIMELINE_OUTPUT_H
#define RG_SERVER_TIMELINE_OUTPUT_H

#include "server/core/worker.h"

/** The ends of the pipes. */
struct rg_output_pipes {
    int out, errors; /* read ends */
    int errors_in;   /* what descriptor 2 will be */
    int log;         /* what it was */
};
/** Replaces descriptor 1 by a pipe, before the driver is loaded, and makes ready what is needed for descriptor 2. */
RG_MUST_CHECK enum rg_status rg_output_redirect(struct rg_output_pipes *pipes);
/**
 * Replaces descriptor 2 as well, and sends what comes out of the pipes (closed with the worker) from now on. What the driver said
 * as it was loaded has gone to the log.
 */
RG_MUST_CHECK enum rg_status rg_output_start(struct rg_worker *worker, const struct rg_output_pipes *pipes);
/** Sends what is in the pipes now. Any thread. */
void rg_output_drain(struct rg_worker *worker);
/** The process ends: what is still in the pipe of standard error goes to the log, a few lines at most. Async-signal-safe. */
void rg_output_end(void);

#endif
