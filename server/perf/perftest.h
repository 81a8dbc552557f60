/*
 * perftest.h - the server's end of perftest's programs, for the process that answers measurements.
 *
 * The program is looked for on PATH, gets nothing but numbers within limits, and dies with this process.
 */
#ifndef RG_SERVER_PERF_PERFTEST_H
#define RG_SERVER_PERF_PERFTEST_H

#include "common/base/status.h"
#include "proto/netperf.h"

#include <sys/types.h>

/**
 * Starts what is asked for instead of what runs (*pid; 0: nothing) and says how that went. RG_ERR_LIMIT: the
 * request breaks the limits.
 */
RG_MUST_CHECK enum rg_status rg_perftest_start(pid_t *pid, const struct rg_netperf_perftest *request,
                                               struct rg_netperf_started *out);
/** Ends what runs, if anything does. */
void rg_perftest_stop(pid_t *pid);

#endif
