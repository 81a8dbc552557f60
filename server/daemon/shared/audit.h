/*
 * audit.h - the audit log: a line for each session that was granted, each client that was refused, each token that was made,
 * each certificate that was given, each user and certificate that was revoked and each session that ended because of it, or because
 * its certificate expired, and for what operators and users do by commands and the status page. Who,
 * from where, what, why; never a secret.
 *
 *   audit: event=grant user="alice" serial=01ab from="10.0.0.7:40312" session=3 gpus=0,1 encrypted=yes
 *   audit: event=refuse user="" from="10.0.0.9:5123" encrypted=no why="this server takes nobody …"
 *   audit: event=token user="alice" from="uid 0"
 *
 * It goes to stderr whatever the level of the log; where stderr is systemd's journal, to the journal itself, with the fields
 * RG_EVENT, RG_USER, RG_SERIAL, RG_FROM, RG_SESSION, RG_GPUS, RG_ENCRYPTED and RG_WHY. Refusals, which anybody can cause, are
 * limited to RG_AUDIT_REFUSALS in ten seconds; what users do by the status page, and a pool's agent says that operators do, which can be
 * said without end, to RG_AUDIT_DEEDS of each event. The next line of an event then says how many were left out. Any thread.
 */
#ifndef RG_SERVER_DAEMON_SHARED_AUDIT_H
#define RG_SERVER_DAEMON_SHARED_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_AUDIT_REFUSALS 20u
#define RG_AUDIT_DEEDS    200u

enum rg_audit_event {
    RG_AUDIT_GRANT,
    RG_AUDIT_REFUSE,
    RG_AUDIT_JOIN,
    RG_AUDIT_RENEW,
    RG_AUDIT_REVOKE, /* without a session: by the operator, for all there may be */
    RG_AUDIT_TOKEN,
    RG_AUDIT_EXPIRE, /* a session has outlived its certificate */
    RG_AUDIT_LEASE,  /* a lease of the pool that an operator takes or renews for somebody: `from` is who */
    RG_AUDIT_QUOTA,  /* a session has outlived the GPU hours of its user, group or project */
    RG_AUDIT_LINK,   /* a link to the status page was made */
    RG_AUDIT_LOGIN,  /* somebody has used it */
    RG_AUDIT_DRAIN, /* who wants it: an operator's command, or somebody by way of the page; likewise those below */
    RG_AUDIT_UNDRAIN,
    RG_AUDIT_SUSPEND,
    RG_AUDIT_RESUME,
    RG_AUDIT_END,
    RG_AUDIT_EVENTS
};

struct rg_audit {
    enum rg_audit_event event;
    const char *user; /* "": nobody has been proved */
    const uint8_t *serial;
    size_t serial_size;
    const char *from;
    uint64_t session; /* 0: none */
    const char *gpus; /* NULL: it is not about any */
    bool encrypted;
    const char *why; /* NULL: no reason is needed */
};

/** The journal's socket. */
#define RG_AUDIT_JOURNAL "/run/systemd/journal/socket"

/**
 * Connects to the journal, if stderr goes there or `path` names its socket. Before privileges are given up: it may not
 * be reached afterwards. Without it lines go to stderr.
 */
void rg_audit_open(const char *path);
/** Says no grants: of a server that one user has started for one command. Refusals are said. */
void rg_audit_no_grants(void);
void rg_audit(const struct rg_audit *what);

#endif
