/*
 * monitor_protocol.h - what the frontend, which talks to strangers, may ask of the monitor, which may start workers.
 *
 * Both ends of one SEQPACKET socket: each packet is one struct of fixed size and, as its kind says, descriptors. There is no
 * length, no pointer and no text without an end in them that anybody would have to look for: the monitor checks the size of
 * the packet, the number of descriptors and the range of each number, ends the texts, and has parsed all there is. What the
 * client sent (its hello) and the keys of its connection are in files that the monitor hands on unread. The server's own key is the
 * monitor's alone: it signs what the server proves itself by in a handshake, of which the frontend gives it the hash.
 *
 * Happy path: the monitor sends SETTINGS; the frontend gives up its rights, answers READY, and asks. Each question has a
 * number, and each gets one answer with the same number; they may come in another order. What the frontend needs to know of
 * sessions and devices is on the board (board.h). A packet that is wrong is the frontend's end: the monitor kills it and
 * starts another; and so it does with one that hangs, which it finds out by a word that each is to answer (RG_TELL_BEAT).
 * The monitor never waits for the frontend.
 *
 * The process that answers HTTP (server/http/) speaks the same, and may ask less: READY, ALIVE, SIGN, LOOK, LIST, LOGIN, LOGOUT, ACT,
 * MANAGER, STOP_MANAGER. It gets no board: with each question it says who asks, and gets what that reader may see (snapshot.h).
 */
#ifndef RG_SERVER_DAEMON_SHARED_MONITOR_PROTOCOL_H
#define RG_SERVER_DAEMON_SHARED_MONITOR_PROTOCOL_H

#include "proto/accounts/usage.h"
#include "proto/control/control.h"
#include "server/handshake/shape.h"

#include <stdbool.h>
#include <stdint.h>

/** The frontend's end of the socket. */
#define RG_MONITOR_FD 3

/** Bytes of a certificate's serial number, at most (RFC 5280). */
enum { RG_MONITOR_SERIAL = 20 };

/** Bytes of the hash of a handshake, and of the signature over it, at most. */
enum { RG_MONITOR_HANDSHAKE = 48, RG_MONITOR_SIGNATURE = 1024 };
/** Bytes of a secret by which somebody shows the page who that is. */
enum { RG_PAGE_SECRET = 32 };

/** Descriptors with one packet: SETTINGS has most. */
enum { RG_MONITOR_FDS_MAX = 1 + RG_LISTENERS_MAX };

/** How far the machines are that can reach a listener, which decides on what is asked of them. */
enum rg_listener_reach {
    RG_REACH_UNIX = 1, /* processes of this machine, which the kernel identifies */
    RG_REACH_LOOPBACK, /* processes of this machine, and tunnels */
    RG_REACH_NETWORK,
};

/* --- from the frontend ------------------------------------------------------------------------------------ */

enum rg_monitor_question_kind {
    RG_ASK_READY = 1,    /* it serves; no answer */
    RG_ASK_START,        /* descriptors: connection, hello; of a connection by TLS its keys */
    RG_ASK_HAND_OVER,    /* descriptors: likewise */
    RG_ASK_CHECK,        /* whether the holder of the certificate may use the server */
    RG_ASK_STAY,         /* likewise, for a session of its own, which lasts as long from now on */
    RG_ASK_JOIN,         /* answer: a file with a struct rg_identity_grant */
    RG_ASK_RENEW,        /* likewise */
    RG_ASK_PROBE,        /* look at the devices; the board has the result when the answer comes */
    RG_ASK_MANAGER,      /* answer: a socket to a new process that answers management questions */
    RG_ASK_STOP_MANAGER, /* it does not answer; no answer */
    RG_ASK_USAGE,        /* with the connection; answer: a socket by which the packed answer comes */
    RG_ASK_QUOTA,        /* likewise, of `usage` the project; answer: a file with a struct rg_quota_answer */
    RG_ASK_ALIVE,        /* what RG_TELL_BEAT is answered by, with `refused`; no answer */
    RG_ASK_POOL, /* descriptors: connection, a file with the question; answer: a socket by which answers come */
    RG_ASK_CONNECT, /* descriptor: connection; answer: a socket that is being connected to another server */
    RG_ASK_LEASE,   /* whether there is a lease of the pool by which a session is to begin */
    RG_ASK_SIGN,    /* the server's key proves the server in a handshake: answer: the signature */
    RG_ASK_LOOK, /* the board is to show what is now; it does when the answer comes. HTTP's answer: a file with a snapshot */
    RG_ASK_LIST, /* the pool's members from number `first` of `page` on; answer: a socket by which the list comes */
    RG_ASK_LINK,  /* with the connection; answer: in `why` the page's address with a secret that works once */
    RG_ASK_LOGIN, /* against such a secret; answer: a file with a struct rg_login_grant */
    RG_ASK_LOGOUT, /* the cookie is over */
    RG_ASK_ACT,    /* do something to a session or the server; the answer comes when it is done */
    RG_ASK_LINKS, /* as RG_ASK_LIST: what was measured between machines and the pool's servers, behind `after` of `page` */
    RG_ASK_OWNS, /* with the connection: RG_OK if it is by root or the server's user, and of no container */
};

/** What the client has proved of itself. */
enum rg_proof {
    RG_PROOF_NONE = 1,
    RG_PROOF_USER, /* the kernel says whose process it is; the monitor asks it itself, by the connection */
    RG_PROOF_CERTIFICATE, /* by TLS, which the frontend has verified */
};

/** Whom the frontend has at the other end of a connection. */
struct rg_monitor_peer {
    enum rg_proof proof;
    uint32_t encrypted; /* 1: by TLS */
    char address[RG_CONTROL_TEXT];
    char name[RG_CONTROL_TEXT]; /* in the certificate */
    uint8_t serial[RG_MONITOR_SERIAL];
    uint32_t serial_size;
    int64_t not_after; /* when the certificate expires, seconds since 1970 */
};

struct rg_monitor_start {
    enum rg_purpose purpose; /* RG_PURPOSE_SESSION or RG_PURPOSE_NETPERF */
    uint32_t gpus;           /* how many; 0: all */
    uint32_t n_gpu_indices;
    uint32_t gpu_indices[RG_DEVICES_MAX];
    struct rg_share_wish share;
    struct rg_identity claimed; /* what the client says of itself: for people to read */
    uint64_t pool_lease;        /* the lease that it is begun by; 0: none */
    uint64_t beside;            /* a session by whose lease else, if it is of the same identity; 0: none */
    struct rg_shape shape;      /* what a warm worker must have been made for */
    uint64_t contexts;          /* as in the hello */
};

struct rg_monitor_hand_over {
    enum rg_purpose purpose; /* RG_PURPOSE_BULK, _RESUME, _PEER, _INTRODUCE or _INVITE */
    uint64_t session;
};

/** RG_ASK_CONNECT: for a session of the client's own. The address is a number: nothing is looked up. */
struct rg_monitor_connect {
    uint64_t session;
    uint32_t is_ipv6; /* 0 or 1 */
    uint8_t address[16];
    uint16_t port;
};

struct rg_monitor_stay {
    uint64_t session;
};

/** The last that the pool's agent is told by a client's socket whose client has closed its connection; else that was lost. */
#define RG_POOL_CLOSED "closed"

/** RG_ASK_POOL: how long the question is. RG_ASK_LEASE: which it is. */
struct rg_monitor_pool {
    uint32_t size;
    uint64_t lease;
};

/** By what somebody who reads the page or the API shows who that is. A certificate is in `peer`. */
enum rg_reader_proof {
    RG_READER_NONE = 1, /* by nothing, or by a certificate */
    RG_READER_COOKIE,   /* what RG_ASK_LOGIN gave */
    RG_READER_BEARER,   /* what stands in the operator's file (--http-token-file) */
};

/** What is done by way of the page. */
enum rg_page_action {
    RG_PAGE_DRAIN = 1,
    RG_PAGE_UNDRAIN,
    RG_PAGE_SUSPEND, /* until its next call */
    RG_PAGE_HOLD,    /* until it is resumed */
    RG_PAGE_RESUME,
    RG_PAGE_END,
};

/** RG_ASK_LOOK, _LIST, _LINKS, _LOGIN, _LOGOUT and _ACT of the process that answers HTTP. */
struct rg_monitor_page {
    enum rg_reader_proof proof;
    union {
        uint8_t secret[RG_PAGE_SECRET]; /* of the cookie; RG_ASK_LOGIN: of the link */
        char bearer[RG_CONTROL_TEXT];
    };
    uint8_t guard
        [RG_PAGE_SECRET]; /* RG_ASK_ACT with a cookie: the other half, which no browser sends by itself */
    uint32_t names;       /* RG_ASK_LOOK: 1: those sessions that the reader may see; 0: all, and of nobody */
    uint32_t health;      /* RG_ASK_LOOK: 1: by nobody, figures alone */
    uint32_t first;       /* RG_ASK_LIST */
    uint64_t after;       /* RG_ASK_LINKS: an id; 0: from the beginning */
    enum rg_page_action action; /* RG_ASK_ACT */
    uint64_t session;           /* likewise, of what is done to one */
};

/** RG_ASK_LOGIN: what was got for the secret of a link. */
struct rg_login_grant {
    uint8_t cookie[RG_PAGE_SECRET], guard[RG_PAGE_SECRET];
    uint32_t seconds; /* that it lasts */
};

/** RG_ASK_ALIVE: clients that were refused since the last time, by reason (board.h). */
struct rg_monitor_refused {
    uint32_t n[RG_REFUSALS];
};

/** RG_ASK_SIGN: the hash of a handshake of TLS 1.3 up to then; nothing else is signed. */
struct rg_monitor_sign {
    uint32_t generation; /* of the certificate that is shown */
    uint32_t digest;     /* enum rg_identity_digest */
    uint32_t hash_size;  /* 32 or 48 */
    uint8_t hash[RG_MONITOR_HANDSHAKE];
};

/** RG_ASK_JOIN, RG_ASK_RENEW: the frontend has seen to it that the client has the key's private half. */
struct rg_monitor_join {
    uint8_t secret[RG_JOIN_SECRET]; /* RG_ASK_JOIN */
    uint8_t public_key[RG_JOIN_PUBLIC_KEY];
};

struct rg_monitor_question {
    enum rg_monitor_question_kind kind;
    uint64_t number;
    struct rg_monitor_peer peer;
    union {
        struct rg_monitor_start start;
        struct rg_monitor_hand_over hand_over;
        struct rg_monitor_stay stay;
        struct rg_monitor_join join;
        struct rg_usage_question usage;
        struct rg_monitor_pool pool;
        struct rg_monitor_refused refused;
        struct rg_monitor_connect connect;
        struct rg_monitor_sign sign;
        struct rg_monitor_page page;
    };
};

/* --- from the monitor ------------------------------------------------------------------------------------- */

/** The first packet. Descriptors: the board (not of HTTP's), then the listeners. */
struct rg_monitor_settings {
    bool allow_unauthenticated;
    bool has_tls;      /* the second packet is RG_TELL_TLS */
    bool gives;        /* certificates, against tokens */
    uint32_t uid;      /* of the server's user */
    uint32_t unmapped; /* which user stands for those who are not known by number; 0: none */
    uint32_t sandbox;  /* enum rg_sandbox_mode */
    uint32_t measures; /* of it, those that workers take */
    uint32_t drop_uid; /* which user the frontend becomes; 0: it stays who it is */
    char pool[64];     /* that the server is in; "": none */
    uint32_t n_listeners;
    struct {
        enum rg_listener_reach reach;
        char address[RG_CONTROL_TEXT];
    } listeners[RG_LISTENERS_MAX];
};

enum rg_monitor_word_kind {
    RG_TELL_ANSWER = 1,
    RG_TELL_DRAIN, /* no new sessions: the server is about to stop */
    RG_TELL_TLS,   /* descriptor: a file with what TLS needs, for new handshakes */
    RG_TELL_BEAT,  /* say that you live */
};

/** To one question. `status` is RG_OK, or why not: then code and why are what to tell the client. */
struct rg_monitor_answer {
    uint64_t number;
    enum rg_status status;
    enum rg_refusal_code code;
    uint32_t signature_size; /* RG_ASK_SIGN: not 0 if `status` is RG_OK */
    union {
        char why[RG_CONTROL_REASON];
        uint8_t signature[RG_MONITOR_SIGNATURE];
    };
};

/** PEM texts, one behind the other. The key stays with the monitor (RG_ASK_SIGN). */
struct rg_monitor_tls {
    uint32_t authority_size, certificate_size;
    uint32_t generation; /* of the certificate */
};

/** All packets but the first. */
struct rg_monitor_word {
    enum rg_monitor_word_kind kind;
    union {
        struct rg_monitor_answer answer;
        struct rg_monitor_tls tls;
    };
};

/** Questions without an answer at once: so many answers fit into the socket, so the monitor need never wait. */
enum { RG_MONITOR_QUESTIONS_AT_ONCE = 32 };
/** Of these, about leases: what the pool has to answer, which may take its time or hang, leaves room for all else. */
enum { RG_MONITOR_LEASES_AT_ONCE = RG_MONITOR_QUESTIONS_AT_ONCE / 2 };

#endif
