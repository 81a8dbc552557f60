/*
 * perf_link.h - measuring the way to a server: a connection of purpose NETPERF over a transport of choice,
 * and what is asked on it.
 *
 * The server's end is lib/remote-gpu/netperf; the messages are those of proto/netperf.h. What is measured
 * goes the way of a session: rg_conn_send and rg_conn_recv, payloads up to RG_PERF_LINK_INLINE in the message
 * itself (as commands are), larger ones as bulk data between memory that both ends registered. One thread a
 * link.
 */
#ifndef RG_CLIENT_CLI_BASE_PERF_LINK_H
#define RG_CLIENT_CLI_BASE_PERF_LINK_H

#include "client/credentials/credentials.h"
#include "common/base/status.h"
#include "proto/control/control.h"
#include "transport/transport.h"
#include "transport/upgrade/upgrade.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_PERF_LINK_INLINE 4096u
#define RG_PERF_LINK_MIN    64u
#define RG_PERF_LINK_MAX    (4u << 20)

enum rg_perf_link_kind {
    RG_PERF_LINK_RAW, /* the bare socket, without the product's framing */
    RG_PERF_LINK_TCP, /* where a session begins */
    RG_PERF_LINK_RDMA,
    RG_PERF_LINK_RAILS,    /* RDMA, bulk data by all adapters */
    RG_PERF_LINK_PERFTEST, /* perftest's programs (perftest.h); not to be opened */
};

struct rg_perf_link {
    enum rg_perf_link_kind kind;
    struct rg_conn *conn, *control;
    struct rg_credentials credentials; /* that the connection was made with */
    unsigned n_addresses;              /* RDMA addresses that the server has */
    uint32_t n_tcp_addresses;          /* the server's, by which bulk data of sessions over TCP may go … */
    char tcp_addresses[RG_CONTROL_ADDRESSES][RG_CONTROL_NUMBER];
    uint32_t tcp_rails[RG_CONTROL_ADDRESSES]; /* … and which of its interfaces has each */
    unsigned n_rails;                         /* RAILS: that carry bulk data; 0 or 1: no more than RDMA */
    char address[256]; /* RDMA: host of the one that this link goes to; "": it has none of that number */
    unsigned char *message, *bulk;
};

struct rg_latency {
    unsigned samples;
    double p50_us, p99_us, p999_us, min_us; /* of the round trip */
};

struct rg_bandwidth {
    double to_server, from_server; /* bytes a second */
};

/**
 * Opens a link; for RDMA to the server's address number `index` (of link->n_addresses, which are known once
 * one is open). RG_ERR_UNREACHABLE, RG_ERR_REFUSED and others with a sentence in `why`.
 */
RG_MUST_CHECK enum rg_status rg_perf_link_open(struct rg_perf_link *link, const char *server,
                                               enum rg_perf_link_kind kind, unsigned index,
                                               uint64_t timeout_ns, char *why, size_t why_size);
/**
 * Round trips of a message of `size` bytes each way (RG_PERF_LINK_MIN to RG_PERF_LINK_MAX) for about
 * `seconds`.
 */
RG_MUST_CHECK enum rg_status rg_perf_link_latency(struct rg_perf_link *link, size_t size, double seconds,
                                                  struct rg_latency *out);
/** A stream of messages of `size` bytes, first to the server, then from it, for about `seconds` each. */
RG_MUST_CHECK enum rg_status rg_perf_link_bandwidth(struct rg_perf_link *link, size_t size, double seconds,
                                                    struct rg_bandwidth *out);
struct rg_netperf_perftest;
/**
 * Has the server start its end of a program of perftest (proto/netperf.h). 0 and its port, or an errno:
 * EPROTO: it cannot.
 */
RG_MUST_CHECK int rg_perf_link_perftest(struct rg_perf_link *link, const struct rg_netperf_perftest *request,
                                        uint32_t *port);
/**
 * The filter ("delay:…") of a network that is described as --link takes it. RG_ERR_INVALID: `why` says what
 * is wrong.
 */
RG_MUST_CHECK enum rg_status rg_perf_link_filter(const char *description, char *filter, size_t filter_size,
                                                 char *why, size_t why_size);
void rg_perf_link_close(struct rg_perf_link *link); /* one that did not open is fine */

#endif
