/*
 * multirail.h - a session's connections over several networks: messages on the first, large bulk data on
 * rails.
 *
 * Like multipath (multipath/multipath.h, whose wire format it uses) it wraps a connection and sends bulk
 * data, of RG_MULTIRAIL_MIN bytes and more, by others, in pieces that the message announces. But the others
 * are rails: connections of transports that deliver (RG_CAP_DELIVERS), each by an adapter of its own. One
 * that breaks is dropped, what it has not delivered goes by the others, and it is opened again when that can
 * be. Only when none is left in the middle of a message the connection is lost. What is advertised, and GPUs'
 * memory, is so with all of them. Nothing is compressed.
 *
 * Both ends wrap their connection. Rails are numbered, on both sides alike.
 *
 * Failures: what a rail carries is checked against what the message promised: RG_ERR_PROTOCOL. Nothing is
 * delivered that is not what was sent.
 *
 * Threads: as any connection; for each rail one that receives, and one that opens them and gives back those
 * that were lost.
 */
#ifndef RG_TRANSPORT_MULTIRAIL_MULTIRAIL_H
#define RG_TRANSPORT_MULTIRAIL_MULTIRAIL_H

#include "common/base/limits.h"
#include "transport/transport.h"

#define RG_MULTIRAIL_MIN (512u << 10) /* smaller bulk data stays with its message */
#define RG_MULTIRAIL_ANY UINT16_MAX   /* the first rail that was never there */

struct rg_multirail_options {
    unsigned rails; /* at most RG_MULTIRAIL_MAX */
    bool adaptive;  /* they are used only if that makes transfers faster; else always */
    /**
     * The side that opens rails: makes number `index`, or returns NULL (then it is asked again later). Called
     * on a thread of its own, one call at a time, when bulk data travels, and again when the rail was lost.
     * NULL: the other side does this.
     */
    struct rg_conn *(*open)(void *user, unsigned index);
    void *user;
    void (*done)(void *user); /* it ends: nothing may be added any more; NULL: nobody wants to know */
};

/** Wraps `first`, which is its own from then on. RG_ERR_NO_MEMORY: `first` stays the caller's. */
RG_MUST_CHECK enum rg_status
rg_multirail_wrap(struct rg_conn *first, const struct rg_multirail_options *options, struct rg_conn **out);
/**
 * Adds rail number `index` (or RG_MULTIRAIL_ANY), or puts it in the place of the one that was lost, also if
 * this side has not noticed that. Fails where what has come by the lost one is still being taken
 * (RG_ERR_TIMEOUT), or its device cannot have memory that the others have (RG_ERR_UNSUPPORTED); it stays the
 * caller's. One thread at a time, any time before rg_conn_destroy.
 */
RG_MUST_CHECK enum rg_status rg_multirail_add(struct rg_conn *multirail, struct rg_conn *rail,
                                              unsigned index);
/**
 * Adds rails now instead of when they are worth it, if this side opens them, and waits until that is done.
 * Nothing happens to another kind of connection.
 */
void rg_multirail_open(struct rg_conn *conn);
/** How many rails there are; 0 of another kind of connection. */
unsigned rg_multirail_count(struct rg_conn *conn);

#endif
