/*
 * internal.h - the inside of a multipath: multipath.c (its channels and operations), send.c, receive.c. What
 * it has in common with multirail is in fanout.h.
 */
#ifndef RG_TRANSPORT_MULTIPATH_INTERNAL_H
#define RG_TRANSPORT_MULTIPATH_INTERNAL_H

#include "common/sync/adaptive.h"
#include "transport/multipath/compression_policy.h"
#include "transport/multipath/fanout.h"
#include "transport/multipath/multipath.h"

struct path {
    struct rg_channel base;
    unsigned char *plain, *packed;      /* the sender's; RG_PIECE bytes each; NULL: not needed yet */
    struct iovec parts[RG_FANOUT_ROWS]; /* the sender's, whose stack may be little */
    unsigned char *unpacked, *arrived;  /* the receiver's, likewise */
    bool is_unpacked;                   /* the current piece was compressed, and is in `unpacked` */
};

struct multipath {
    struct rg_fanout f;
    struct rg_multipath_options options;
    struct path paths[RG_FANOUT_CHANNELS];
    /* opening; the lock */
    bool opening, gave_up;
    uint64_t gave_up_ns;
    bool opener_started; /* there is a thread to be joined */
    pthread_t opener;
    /* sending */
    struct rg_trial more_channels; /* by the sender whose turn it is: whether one more is faster */
    struct rg_compression_policy policy;
    _Atomic uint64_t compressed_from, compressed_to; /* bytes */
};

extern const struct rg_fanout_kind rg_multipath_kind; /* send.c */

/*
 * multipath.c: more bulk data goes over the first connection, or somebody wants channels: opens some if this
 * side does that.
 */
void rg_multipath_want(struct multipath *m, unsigned channels, uint64_t bulk_on_first);
/* A channel when it has been added; NULL: all ends before, or it does not come. */
struct path *rg_multipath_path(struct multipath *m, unsigned index);

/* send.c */
enum rg_status rg_multipath_send(struct rg_conn *conn, struct rg_send *send);
enum rg_status rg_multipath_send_detached(struct rg_conn *conn, struct rg_send *send);

/* receive.c */
enum rg_status rg_multipath_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_multipath_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);

#endif
