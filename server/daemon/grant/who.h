/*
 * who.h - who a client is, as far as the monitor is concerned, and whether it may use the server at all.
 *
 * What the kernel can tell of a connection the monitor asks it itself: whose process is at the other end of a unix socket, and
 * whether other machines can be there. That somebody has a certificate's key is what the frontend says; that the certificate
 * is known, not expired and not revoked is found out here. Main thread.
 */
#ifndef RG_SERVER_DAEMON_GRANT_WHO_H
#define RG_SERVER_DAEMON_GRANT_WHO_H

#include "server/daemon/shared/monitor_protocol.h"
#include "server/identity/identity.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

struct rg_who {
    enum rg_proof proof;
    bool encrypted;
    char name[RG_CONTROL_TEXT]; /* "alice", "uid 1000 (alice)"; "": nobody has been proved */
    uid_t uid;                  /* RG_PROOF_USER: which user it is, whatever is known of the name */
    bool
        contained; /* RG_PROOF_USER: root, or the server's user, of a container: none of this machine's (contained.h) */
    uint8_t serial[RG_MONITOR_SERIAL];
    uint32_t serial_size;
    int64_t not_after; /* RG_PROOF_CERTIFICATE: when it expires, seconds since 1970 */
    struct rg_identity_limits limits;
};

/** What the server accepts. */
struct rg_who_policy {
    bool allow_unauthenticated;
    struct rg_identity_store *identity; /* NULL: nobody has a certificate */
    uid_t uid;                          /* of the server's user, who may come by unix sockets, as root may */
    uid_t unmapped;                     /* rg_who_unmapped */
    unsigned n_sockets;
    struct rg_who_socket {
        struct sockaddr_un name;
        socklen_t size;
    } sockets[RG_LISTENERS_MAX]; /* the unix sockets that it listens on */
};

/** A user of this machine, whom the kernel has named. */
void rg_who_user(uid_t uid, struct rg_who *out);
/**
 * The user that the kernel names in place of all those whom this process's user namespace has not, as in a rootless container: it may be
 * any number of users, and so proves nothing. 0: the namespace has every user. Asks /proc.
 */
uid_t rg_who_unmapped(void);
/** Notes that it listens on a socket, of whatever kind: at most RG_LISTENERS_MAX of them. */
void rg_who_listens(struct rg_who_policy *policy, int socket);

/** RG_ERR_REFUSED with what to tell the client in `answer`. */
RG_MUST_CHECK enum rg_status rg_who_is(const struct rg_who_policy *policy, const struct rg_monitor_peer *peer,
                                       int connection, struct rg_who *out, struct rg_monitor_answer *answer);
/** Whether the certificate, if it is one, is still accepted; false with the sentence for the client. */
bool rg_who_may_stay(const struct rg_who_policy *policy, const struct rg_who *who, char *why,
                     size_t why_size);
/** Whether it is root or the user `owner` of this machine, and not of a container. */
bool rg_who_owns(const struct rg_who *who, uid_t owner);
/** Whether a connection is by the same as a session, and no worse protected. */
bool rg_who_is_same(const struct rg_who *session, const struct rg_who *connection);
/** Whether a certificate's time is over. */
bool rg_who_has_expired(const struct rg_who *who);
/** What stays the same for one user, whichever sessions and names it has: "3 alice", "2 1000"; of nobody, by address. */
void rg_who_key(const struct rg_who *who, const char *address, char *out, size_t size);
/** "alice", "uid 0 (root)", "unauthenticated": for logs. */
const char *rg_who_text(const struct rg_who *who);

#endif
