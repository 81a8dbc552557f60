/*
 * ends.h - both ends of a connection that outlives its links, in this process, and traffic between
 * them.
 *
 * The connecting end makes a new link through the pair's listener and tells how many messages have arrived;
 * the other accepts it and answers.
 */
#ifndef RG_TESTS_TRANSPORT_LASTING_ENDS_H
#define RG_TESTS_TRANSPORT_LASTING_ENDS_H

#include "tests/transport/support.h"
#include "transport/resumable/internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define LASTING_ADDRESS "127.0.0.1:0" /* of links, and of tethers */

struct end {
    struct rg_listener *listener;
    const char *filters; /* of links made again */
    unsigned channels;   /* they are multipath, of so many more */
    bool connects;
    const struct pair_security *security;
    atomic_bool refuses;                /* no more links */
    atomic_bool waits;                  /* none while this is set */
    _Atomic(struct rg_conn *) upgraded; /* what the next link is, instead of one that is made; NULL */
    struct rg_conn *upgraded_control;   /* set before */
    atomic_uint lost, resumed, gave_up;
    atomic_int peer; /* enum rg_resumable_peer: what was known of it when a link was wanted the last time */
};

struct ends {
    struct pair pair;
    struct end a, b;
};

/** How links are protected that are made from now on; NULL: not at all. */
extern const struct pair_security *ends_security;

/** Operations of struct rg_resumable_options; the user is a struct end. */
enum rg_status renew(void *user, struct rg_resumable_loss *loss, uint64_t received, struct rg_conn **out,
                     struct rg_conn **control_conn, uint64_t *peer_received);
void report(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss);

/** Opens both ends; bundles of `channels` connections besides the first, if that is not 0. */
void ends_open_at(struct ends *ends, const char *at, const char *filters, unsigned channels,
                  uint64_t patience_ns);
/** The same at LASTING_ADDRESS. */
void ends_open(struct ends *ends, const char *filters, unsigned channels, uint64_t patience_ns);
/**
 * A link that shows nothing of its end, as that of RDMA, with rails if there are to be some, and a control
 * connection that does.
 */
void tethered_open(struct ends *ends, struct pair *control_conn, const char *filters, unsigned rails,
                   const char *rail_filters, const char *last_filters);

struct flow {
    struct rg_conn *conn;
    uint64_t messages, first_seed;
    unsigned larger; /* bulk data, so many times */
};

/**
 * Threads: all messages of a flow, whose sizes and bytes follow from their numbers; sent, or received and
 * checked.
 */
void *send_all(void *arg);
void *receive_all(void *arg);
/**
 * Traffic both ways at once, with bulk data `larger` times as large again; returns how many links were lost.
 */
unsigned run_between(struct ends *ends, uint64_t messages, unsigned larger);
/** The same between ends that it opens and closes. */
unsigned run_traffic(const char *filters, unsigned channels, uint64_t messages);
/** Receives an acknowledgement that comes by itself from the resumable connection behind `conn`: what that has received. */
uint64_t receive_word(struct rg_conn *conn);

#define RUN(test) (printf("%s\n", #test), fflush(stdout), test())

#endif
