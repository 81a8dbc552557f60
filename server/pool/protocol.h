/*
 * protocol.h - what the monitor and the pool's agent, which alone talks to etcd, tell each other.
 *
 * Both ends of one SEQPACKET socket, packets of fixed size with descriptors. First the monitor sends a struct
 * rg_agent_settings (descriptors: the board, and a file with PEM texts if there are any), then words both ways. Neither waits for
 * the other. What a client asks of the pool the monitor hands on unread, with who that is and a socket by which the agent
 * answers; nothing that comes from a client is taken apart by the monitor.
 *
 * What is said in times is rg_now_ns(), the same clock for all processes of a machine.
 */
#ifndef RG_SERVER_POOL_PROTOCOL_H
#define RG_SERVER_POOL_PROTOCOL_H

#include "common/base/limits.h"
#include "pool/etcd/etcd.h"
#include "proto/control/control.h"
#include "server/daemon/shared/monitor_protocol.h"

#include <stdbool.h>
#include <stdint.h>

/** The agent's end of the socket. */
#define RG_AGENT_FD 3

enum {
    RG_AGENT_URL = 256,
    RG_AGENT_URLS_MAX = RG_ETCD_ENDPOINTS_MAX,
    RG_AGENT_LABELS_MAX = 32,
    RG_AGENT_WHO = 2 * RG_CONTROL_TEXT,
    RG_AGENT_JOB = RG_CONTROL_TEXT,
    RG_AGENT_DEAD = 16
};

/** The sizes of texts by which etcd is talked to, one behind the other; 0: there is none. All but the password are PEM. */
struct rg_agent_texts {
    uint32_t ca, certificate, key, password;
};

struct rg_agent_settings {
    char pool[64];
    char etcd_user[64]; /* "": none */
    uint32_t n_endpoints, n_labels, n_taints;
    char endpoints[RG_AGENT_URLS_MAX][RG_AGENT_URL];
    char labels[RG_AGENT_LABELS_MAX][RG_CONTROL_TEXT]; /* "KEY=VALUE" */
    char taints[RG_AGENT_LABELS_MAX][RG_CONTROL_TEXT]; /* "KEY" or "KEY=VALUE" */
    char address[RG_CONTROL_TEXT];                     /* by which clients reach this server */
    uint64_t server; /* this run of the server: its id in the pool, whichever agent speaks for it */
    uint64_t dead[RG_AGENT_DEAD]; /* runs before this one that have died for sure */
    uint32_t n_dead, draining, rdma;
    uint32_t
        rules; /* the server has some, by which the priority of a request goes that does not ask for any */
    uint32_t suspends;        /* leases of its GPUs may be suspended for requests of higher priority, */
    uint32_t rest_s;          /* once they have had them for so many seconds */
    struct rg_etcd_seen seen; /* by the agent before this one */
    struct rg_agent_texts texts;
};

/** A lease of GPUs of this server. */
struct rg_agent_lease {
    uint64_t lease;
    uint64_t gpus;   /* this server's, a bit each by ordinal */
    uint64_t memory; /* of each GPU, at most; 0: the whole of it */
    uint32_t bearer; /* whoever proves nothing may use it by knowing it, whosever it is */
    char key[RG_AGENT_WHO], name[RG_CONTROL_TEXT]; /* whose it is, as with RG_AGENT_ASK */
    char job[RG_AGENT_JOB];                        /* what it is for; "": nothing was said */
    /* 0: it is not suspended, and is not to be; else its sessions are to be suspended, another number each time */
    uint32_t preempted;
};

/** What has come of suspending a lease's sessions here. */
enum rg_agent_suspension {
    RG_AGENT_PENDING, /* nothing yet, or it is not wanted */
    RG_AGENT_SUSPENDED,
    RG_AGENT_BUSY,   /* one did not come to rest */
    RG_AGENT_SHARED, /* others have a part in the memory of one */
    RG_AGENT_DRIVER, /* the driver cannot suspend one, or refuses */
};

/** By which certificate a client has come, as the monitor has it. */
struct rg_agent_certificate {
    uint8_t serial[RG_MONITOR_SERIAL];
    uint32_t serial_size; /* 0: by none */
    int64_t not_after;    /* when it expires, seconds since 1970 */
};

/* --- from the monitor --------------------------------------------------------------------------------------- */

enum rg_agent_word_kind {
    RG_AGENT_ASK = 1,  /* descriptors: the socket to answer by, a file with the question */
    RG_AGENT_CHECK,    /* whether there is such a lease here: a session is to begin */
    RG_AGENT_SESSIONS, /* so many sessions run here by a lease, and whether they are suspended */
    RG_AGENT_DRAIN,
    RG_AGENT_JUDGED, /* whether quotas and rules allow what RG_AGENT_JUDGE has asked, and with which priority */
    RG_AGENT_FILES,   /* descriptor: other PEM texts, by which etcd is talked to from now on */
    RG_AGENT_RECHECK, /* which certificates are accepted has changed: each client's is to be asked about */
    RG_AGENT_STAYS,   /* whether a client may stay that RG_AGENT_CLIENT has asked about */
};

struct rg_agent_judged {
    uint64_t number;
    uint32_t good;
    enum rg_share_priority priority; /* of the lease; DEFAULT: it stays as it is */
    uint32_t preempts;               /* leases of lower priority may be suspended for it */
    uint32_t counts; /* it is not good, since that depends on what is held already, which was not counted */
    char why[RG_CONTROL_REASON / 2]; /* a sentence with its code, if it is not good */
};

struct rg_agent_word {
    enum rg_agent_word_kind kind;
    union {
        struct {
            char key[RG_AGENT_WHO];     /* who it is (server/daemon/grant/who.h) */
            char name[RG_CONTROL_TEXT]; /* for people; "": nobody has been proved */
            uint32_t is_operator;       /* may see, take, renew and give back leases of others */
            uint32_t unproved;          /* the server takes clients that prove nothing */
            uint32_t max_gpus;          /* 0: no limit */
            uint32_t size;              /* of the question */
            struct rg_agent_certificate certificate;
        } ask;
        struct {
            uint64_t number, lease;
        } check;
        struct {
            struct rg_agent_lease lease; /* as the monitor was told it */
            uint32_t n;
            enum rg_agent_suspension suspension; /* of what lease.preempted wants */
        } sessions;
        struct {
            uint32_t on;
        } drain;
        struct {
            uint64_t number;
            uint32_t good;
            char why[RG_CONTROL_REASON / 2]; /* a sentence with its code, if it is not */
        } stays;
        struct rg_agent_judged judged;
        struct rg_agent_texts files;
    };
};

/* --- from the agent ------------------------------------------------------------------------------------------ */

enum rg_agent_answer_kind {
    RG_AGENT_STANDING = 1, /* how long sessions may begin */
    RG_AGENT_LEASE,        /* there is a lease of GPUs here; or, whether it is suspended, has changed */
    RG_AGENT_GONE,         /* there is no more: its sessions end */
    RG_AGENT_CHECKED,
    RG_AGENT_JUDGE,   /* whether quotas allow a lease, or that it goes on */
    RG_AGENT_DRAINED, /* the pool knows that this server takes nothing new, or is back */
    RG_AGENT_CLIENT,  /* whether a client that waits, or holds a lease, may stay */
};

/**
 * A lease that is to be kept: what its owner and project hold already is what the pool knows, of all servers. Of one that ends with its
 * client only whether its owner is of the project.
 */
struct rg_agent_judge {
    uint64_t number;
    char key[RG_AGENT_WHO], project[RG_CONTROL_TEXT]; /* whose it is to be */
    char name[RG_CONTROL_TEXT], by[RG_CONTROL_TEXT];  /* for the audit log: whose, and who asks */
    uint64_t lease;                                   /* 0: it gets its number later */
    uint32_t renews;                                  /* it is there, and is to last longer */
    uint32_t project_alone;                           /* its sessions are judged as they begin */
    uint32_t uncounted; /* what is held already is not known, and is counted only if a quota is about it */
    uint32_t gpus;
    uint64_t memory; /* of all its GPUs together; 0: not known yet */
    uint64_t held_gpus, held_memory, project_gpus, project_memory;
    enum rg_share_priority priority; /* that is asked for */
};

struct rg_agent_client {
    uint64_t number;
    char name[RG_CONTROL_TEXT]; /* in its certificate */
    struct rg_agent_certificate certificate;
};

/** The pool's queue, as this server knows it. */
struct rg_agent_queue {
    uint32_t requests, gpus; /* that wait, and how many GPUs they wait for */
    uint64_t longest_s;      /* for how long the first of them has waited */
};

struct rg_agent_answer {
    enum rg_agent_answer_kind kind;
    struct rg_etcd_seen seen; /* of etcd's past, for an agent after this one */
    union {
        struct {
            uint64_t
                valid_until_ns; /* the pool may give this server's GPUs to others afterwards; 0: it is not in it */
            char why[RG_CONTROL_REASON / 2]; /* why it is not, or not for longer; "": all is well */
            struct rg_agent_queue queue;
        } standing;
        struct rg_agent_lease lease;
        struct rg_agent_judge judge;
        struct rg_agent_client client;
        struct {
            uint64_t lease;
        } gone;
        struct {
            uint64_t number;
            uint32_t there;
            char why[RG_CONTROL_REASON / 2];
        } checked;
        struct {
            uint32_t on;
        } drained;
    };
};

#endif
