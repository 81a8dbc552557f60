/*
 * delay_link.h - the link that filter delay makes believe: what it carries, and when a message has crossed it.
 *
 * Connections of this process that have the filter with the same options share a link, as fair queueing would have it: a small message of a
 * connection that has nothing else under way does not wait for the data of others. Each connection also has a clock of its own for each
 * direction (a flow).
 *
 * Threads: a flow is whoever's alone that sends in its direction. Shared links have a lock.
 */
#ifndef RG_TRANSPORT_FILTERS_DELAY_LINK_H
#define RG_TRANSPORT_FILTERS_DELAY_LINK_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum rg_delay_direction { RG_DELAY_OUT, RG_DELAY_IN };

struct rg_delay_options {
    uint64_t oneway_ns;
    uint64_t bytes_per_second; /* of the link; 0: no limit */
    uint64_t flow_per_second;  /* of each connection; 0: no limit */
};

/** One direction of a connection. */
struct rg_delay_flow {
    uint64_t free_ns; /* when the last byte so far has left */
};

struct rg_delay_link;

/** Reads "oneway=…,bandwidth=…,flow=…"; *out is set on success alone, else `why` tells. */
RG_MUST_CHECK enum rg_status rg_delay_options_read(const char *text, struct rg_delay_options *out, char *why,
                                                   size_t why_size);
/** The link of connections with these options; NULL: out of memory. */
struct rg_delay_link *rg_delay_link_join(const char *options);
/** NULL is none. */
void rg_delay_link_leave(struct rg_delay_link *link);
/**
 * When the last byte of a message of so many bytes that is sent now has left; *go_on: when its sender may go on. `link` NULL: no limit in
 * common.
 */
uint64_t rg_delay_departure(struct rg_delay_link *link, struct rg_delay_flow *flow,
                            const struct rg_delay_options *options, enum rg_delay_direction direction,
                            uint64_t size, uint64_t *go_on);

#define RG_DELAY_UNSENT_LEAST (128 << 10) /* bytes that a sender may be ahead of a slow link */

#endif
