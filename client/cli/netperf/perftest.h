/*
 * perftest.h - what the programs of perftest (ib_send_lat, ib_write_bw, ib_read_bw) show on the way to a
 * server, beside the product's own figures: the server starts its end of each when asked over a connection of
 * purpose NETPERF.
 */
#ifndef RG_CLIENT_CLI_NETPERF_PERFTEST_H
#define RG_CLIENT_CLI_NETPERF_PERFTEST_H

#include "client/cli/netperf/netperf.h"

/**
 * Measures the way to `host`, an address of an RDMA device of `server`, for each of `n` sizes. Round trips
 * are twice what ib_send_lat tells; bandwidth is ib_write_bw's to the server and ib_read_bw's from it. What
 * could not be measured is said in out->failed.
 */
void rg_netperf_perftest(struct rg_netperf_link *out, const char *server, const char *host,
                         const size_t *sizes, unsigned n, bool quick, uint64_t timeout_ns);

#endif
