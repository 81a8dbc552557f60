/*
 * multipath.h - a session's connections: messages on the first, bulk data on connections of its own.
 *
 * A multipath is made around a connection that exists. Bulk data of at least RG_MULTIPATH_MIN bytes goes over
 * further connections ("channels") that are added to it as soon as there are any: then small messages do not
 * queue behind it, and several channels fill a link that one does not. The message says which channel carries
 * which piece of its bulk data, so the order of messages is that of the first connection, and a receiver
 * knows what must still come and from where. Pieces can be compressed (codec.h).
 *
 * Messages begin with a struct rg_message_header (proto/wire.h), by whose kind the multipath knows its own.
 *
 * Both ends wrap their connection (after a handshake that says that they will), and each channel is added on
 * both ends; channels are used by a side from the moment on when it has added them, and a receiver that is
 * told of a channel which it does not have yet waits for it. The side that connects opens them, by a function
 * of its owner's, when they are worth it.
 *
 * Failures: a channel that breaks is the end of the whole connection, since what was under way on it is lost:
 * RG_ERR_LOST. What a channel carries is checked against what the message promised: RG_ERR_PROTOCOL. Nothing
 * is delivered that is not what was sent.
 *
 * Threads: as any connection; rg_multipath_add may be called from any thread at any time before
 * rg_conn_destroy.
 */
#ifndef RG_TRANSPORT_MULTIPATH_MULTIPATH_H
#define RG_TRANSPORT_MULTIPATH_MULTIPATH_H

#include "transport/multipath/codec.h"
#include "transport/transport.h"

#define RG_MULTIPATH_CHANNELS 8            /* connections for bulk data, at most */
#define RG_MULTIPATH_MIN      (128u << 10) /* smaller bulk data stays with its message */

struct rg_multipath_options {
    unsigned channels;            /* how many may be added, at most RG_MULTIPATH_CHANNELS */
    bool adaptive;                /* of those use only as many as make transfers faster; else all */
    enum rg_compression compress; /* of what this side sends */
    unsigned codecs;              /* that the other side can unpack: bits as rg_codecs_here */
    /**
     * The side that opens channels: makes number `index`, or returns NULL (then it is not asked again, or after `again_ns`).
     * Called on a thread of its own, one call at a time, when bulk data travels. NULL: the other side does
     * this.
     */
    struct rg_conn *(*open)(void *user, unsigned index);
    uint64_t again_ns; /* 0: never */
    /** Which rail (struct rg_conn_statistics) the first connection is on, or with 1 + index a channel. NULL: all are on the first. */
    unsigned (*rail_of)(void *user, unsigned place);
    /** The channel is lost, and with it all; before anybody is told. NULL: nobody wants to know. */
    void (*lost)(void *user, unsigned index);
    void *user;
    void (*done)(
        void *user); /* the multipath ends: nothing may be added any more; NULL: nobody wants to know */
};

/**
 * Reads how many connections for bulk data the user wants: "auto" or "" (*adaptive, and *out is as many as
 * there may be), or a number up to RG_MULTIPATH_CHANNELS. RG_ERR_INVALID with a phrase in `why`.
 */
RG_MUST_CHECK enum rg_status rg_multipath_channels_parse(const char *text, unsigned *out, bool *adaptive,
                                                         char *why, size_t why_size);

/** What this machine can pack and unpack: bit 0 LZ4, bit 1 Zstandard. Loads the libraries. Any thread. */
unsigned rg_codecs_here(void);
/** Fills in how to compress: what was `asked` for (enum rg_compression), as far as both sides can do it. */
void rg_codecs_agree(unsigned asked, unsigned there, struct rg_multipath_options *out);

/** Wraps `first`, which the multipath owns from then on. RG_ERR_NO_MEMORY: `first` stays the caller's. */
RG_MUST_CHECK enum rg_status
rg_multipath_wrap(struct rg_conn *first, const struct rg_multipath_options *options, struct rg_conn **out);
/**
 * Adds a channel, which must not have carried anything. RG_ERR_LIMIT: there are enough; it stays the
 * caller's.
 */
RG_MUST_CHECK enum rg_status rg_multipath_add(struct rg_conn *multipath, struct rg_conn *channel);
/** How many channels there are; 0 of another kind of connection. */
unsigned rg_multipath_channels(const struct rg_conn *conn);

#endif
