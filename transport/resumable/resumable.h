/*
 * resumable.h - a connection that outlives the connections it is made of.
 *
 * It wraps a connection (the link) and looks like one. Each side numbers its messages, keeps what the other
 * has not acknowledged, and when the link is lost goes on over a new one: the sides tell each other how many
 * messages have arrived as a whole, and send again what is missing. Nothing is lost and nothing arrives
 * twice; calls that are inside wait meanwhile, and nobody above notices but by the clock. A message of which
 * the bulk data has come in part is sent again whole; what had been taken is passed over.
 *
 * An end is meant if a word of this side's (GOAWAY) came before it; anything else is a loss. A link that has
 * no descriptor (transport rdma) does not show whether its peer ended it or is out of reach, and takes with
 * it what it has not sent when its process ends. The control connection, the connection that the session
 * began on, does neither: the word is said there, and its end is the link's.
 *
 * A link that shows its end does not tell whether the peer's process has gone or something between has cut it: a
 * process that ends with something unread makes its kernel reset the link, as a firewall does. A control connection
 * carries nothing, so the kernel of a process that ends always closes it in order, and who lives resets it. Beside such a
 * link it stays from one link to the next (enum rg_resumable_peer).
 *
 * How a new link is had is the user's matter (`renew`): the client connects and shows the session's token,
 * the worker waits for the daemon to hand it a connection (server/handshake/resume.h).
 *
 * On the wire every message begins with struct rg_resumable_header. Acknowledgements travel with messages; a
 * receiver that has not sent any for RG_RESUMABLE_ACK_BYTES sends one by itself, and one in return for one that comes by
 * itself, if much is to be acknowledged: so who wants its memory back asks. What is kept: a message's
 * own bytes always, its bulk data from when the sending call returns until it is acknowledged; before that it
 * is the caller's memory that is sent from again. If more memory than RG_RESUMABLE_UNACKNOWLEDGED_MAX holds
 * what is not acknowledged, senders wait for it, for a time; beyond RG_RESUMABLE_UNACKNOWLEDGED_LIMIT nothing
 * is kept any more until the peer has caught up, and a loss in that state is final.
 *
 * Threads: as a connection's; and one of its own, which looks after the link (it sleeps in poll).
 */
#ifndef RG_TRANSPORT_RESUMABLE_RESUMABLE_H
#define RG_TRANSPORT_RESUMABLE_RESUMABLE_H

#include "common/base/limits.h"
#include "transport/transport.h"

/* What a user of such a connection must leave of RG_MESSAGE_MAX. */
#define RG_RESUMABLE_HEADER     16u
#define RG_RESUMABLE_SETTLED_MS 1000u
#define RG_RESUMABLE_ACK_BYTES  (4u << 20)
#define RG_RESUMABLE_ACK_COUNT  256u

enum rg_resumable_kind { RG_RESUMABLE_DATA = 1, RG_RESUMABLE_ACK = 2, RG_RESUMABLE_GOAWAY = 3 };

struct rg_resumable_header {
    uint32_t kind; /* enum rg_resumable_kind */
    uint32_t reserved;
    uint64_t received; /* messages (DATA) of the peer that have arrived as a whole */
};

/** What a control connection tells of the peer's process. */
enum rg_resumable_peer {
    RG_PEER_UNKNOWN, /* there is none */
    RG_PEER_GONE,    /* its kernel has closed it, which a living one never does: it resets it */
    RG_PEER_LIVES,   /* as far as is known: it is open, or something between has reset it */
};

/** What is known about a loss, for whoever renews and reports. */
struct rg_resumable_loss {
    enum rg_status status; /* what the link said */
    bool ended;            /* the peer's machine ended it; else nothing has been heard */
    enum rg_resumable_peer peer;
    int control_fd; /* during `renew`: of the control connection; -1: there is none. rg_resumable_peer asks it */
    uint64_t since_ns; /* rg_now_ns */
    uint64_t until_ns; /* when it is given up */
    char why[256];     /* of the last attempt: for people */
};

enum rg_resumable_event {
    RG_RESUMABLE_LOST,    /* and the first attempt to renew it was in vain */
    RG_RESUMABLE_RESUMED, /* also where that was not reported */
    RG_RESUMABLE_GAVE_UP, /* the connection has ended */
};

struct rg_resumable_options {
    void *user;
    uint64_t patience_ns;
    bool reads; /* somebody always comes back to receive: what came before an end is read, however late */
    /**
     * One attempt to get a new link: tells the peer how many messages have arrived here, and learns the same
     * of it. *control_conn, NULL before: its control connection, if it has one. RG_ERR_REFUSED: there is no use in trying again. Anything else but RG_OK: it is tried again
     * until `until_ns`, soon. Called by the connection's own thread.
     */
    enum rg_status (*renew)(void *user, struct rg_resumable_loss *loss, uint64_t received,
                            struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received);
    /**
     * A link that shows its end has been in use for RG_RESUMABLE_SETTLED_MS: rg_resumable_set_control may be called. By the
     * same thread, which must not wait. NULL: nobody wants to know.
     */
    void (*settled)(void *user);
    /** The link will be destroyed; by the same thread. NULL: nobody wants to know. */
    void (*dropped)(void *user);
    /** Tells people; by the same thread. */
    void (*report)(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss);
};

/**
 * Makes a resumable connection of `link`, which becomes its own, as does `control_conn` (NULL, or a
 * connection without traffic whose end means the link's). Both sides must do so at the same place of their
 * conversation. NULL: out of memory or threads; both stay the caller's.
 */
struct rg_conn *rg_resumable_create(struct rg_conn *link, struct rg_conn *control_conn,
                                    const struct rg_resumable_options *options);
/**
 * From now on a loss is the end; also one that has happened. Nothing happens to another kind of connection.
 * Any thread.
 */
void rg_resumable_set_final(struct rg_conn *conn);
/**
 * Lets the peer know that an end of the connection is meant from now on, if that can be done without waiting
 * for long.
 */
void rg_resumable_goaway(struct rg_conn *conn);
/**
 * The same by a connection that is to end where the peer has made, or makes, a resumable one of its end (or
 * by that one's control connection).
 */
void rg_resumable_renounce(struct rg_conn *conn);
/**
 * Gives the connection a control connection, which becomes its own, or another one for that which it has. Any thread.
 */
void rg_resumable_set_control(struct rg_conn *conn, struct rg_conn *control_conn);
/** What a control connection's descriptor tells now. -1: nothing. */
enum rg_resumable_peer rg_resumable_peer(int control_fd);
/**
 * Gives up the link, as if it had failed: also where there is a better one to be had. Any thread.
 */
void rg_resumable_drop(struct rg_conn *conn);

#endif
