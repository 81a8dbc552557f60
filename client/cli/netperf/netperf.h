/*
 * netperf.h - what remote-gpu netperf measured, and its picture.
 */
#ifndef RG_CLIENT_CLI_NETPERF_NETPERF_H
#define RG_CLIENT_CLI_NETPERF_NETPERF_H

#include "client/cli/base/perf_link.h"
#include "client/cli/base/settings.h"

#include <stdio.h>

enum { RG_NETPERF_POINTS = 16, RG_NETPERF_LINKS = 24 };

struct rg_netperf_point {
    size_t size;
    struct rg_latency latency;
    struct rg_bandwidth bandwidth;
};

struct rg_netperf_link {
    char name[96]; /* "tcp", "rdma 10.77.0.1" */
    enum rg_perf_link_kind kind;
    unsigned n;
    struct rg_netperf_point points[RG_NETPERF_POINTS];
    char failed[512]; /* why it could not be measured, or not to the end; "": it was */
};

struct rg_netperf {
    const char *server;
    bool encrypted; /* the bare socket is left out */
    unsigned n;
    struct rg_netperf_link links[RG_NETPERF_LINKS];
};

/** "64 B", "16 KiB". Returns `text`, which needs 16 bytes. */
const char *rg_netperf_size(size_t size, char *text);
/**
 * Writes an SVG picture: round trips and bandwidth by message size, a line a link. False: `out` has an error.
 */
bool rg_netperf_plot(const struct rg_netperf *all, FILE *out);

/** Measures the way to each server of a pool, shortly, and tells the pool. The exit status. */
int rg_netperf_pool(const struct rg_cli_settings *settings);

#endif
