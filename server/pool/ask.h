/*
 * ask.h - a client that asks something of the pool, or holds a lease: what is known of it, and the functions by which it comes from its
 * question to its answers. See agent.h, of which this is a part. One thread.
 */
#ifndef RG_SERVER_POOL_ASK_H
#define RG_SERVER_POOL_ASK_H

#include "pool/etcd/etcd.h"
#include "pool/schedule.h"
#include "pool/state/mirror.h"
#include "server/pool/protocol.h"

struct rg_agent;   /* agent.h */
struct rg_picture; /* picture.h */

enum rg_ask_state {
    RG_ASK_LOOKING,  /* all of the pool is being read for its question */
    RG_ASK_JUDGING,  /* the monitor is asked for quotas */
    RG_ASK_QUEUEING, /* its request is being written */
    RG_ASK_WAITING,
    RG_ASK_GRANTING, /* a transaction is under way */
    RG_ASK_AGAIN,    /* others were faster; what they have done is about to be told */
    RG_ASK_HOLDING,  /* it has a lease as long as it is connected */
    RG_ASK_LOST,     /* so was its client's connection; etcd, which has not answered, is told of it again */
    RG_ASK_ENDING,   /* an answer is being waited for that ends it */
};

/** A client that asks, or holds. */
struct rg_agent_ask {
    struct rg_agent *agent;
    enum rg_ask_state state;
    int socket;        /* -1: it has gone, and what is under way is to be undone */
    json_t *question;  /* while LOOKING; while it is handed to another, for when it has to be asked anew */
    bool whole;        /* it takes all of the pool */
    uint32_t max_gpus; /* likewise */
    uint64_t since_ns; /* likewise; while AGAIN, LOST */
    char key[RG_AGENT_WHO], name[RG_CONTROL_TEXT];         /* who asks */
    char owner[RG_AGENT_WHO], owner_name[RG_CONTROL_TEXT]; /* whose the lease is to be */
    bool is_operator, unproved, bearer;
    enum rg_share_priority priority; /* that is asked for */
    struct rg_agent_certificate certificate;
    uint64_t rechecked; /* the recheck that it was asked about in, or after which it came */
    uint64_t client;    /* the number by which the monitor was asked about it */
    uint64_t number;    /* of what the monitor is asked; 0: nothing */
    void (*judged)(struct rg_agent_ask *ask); /* what goes on when it has agreed */
    char id[RG_POOL_ID];                      /* of its request */
    char lease[RG_POOL_ID];
    /* what a lease says that this connection holds, and no other; before, what its client held it by */
    char hold[RG_POOL_ID];
    bool chosen;     /* the client has chosen both: it knows its lease whether it was told of it or not */
    bool unsure;     /* a transaction may have made its lease, and has not been answered */
    bool handed;     /* another server may make its lease: `hold` and its request say for whom */
    bool keeps;      /* likewise, a lease that is to be kept: its request says that it is not (keeping.c) */
    bool counts;     /* whether it may be granted depends on what is held in all of the pool */
    bool gives_back; /* its client has ended, and the lease is being removed */
    bool stands_in;  /* it is what another server has handed to this one, while that is carried out */
    bool at_once;    /* it is being granted without having been in the queue */
    bool counted;    /* it has been in the queue, and is none too many of its owner's */
    uint32_t
        tries; /* likewise: how often others were faster; of giving a lease back: how often it was tried */
    json_t *request;  /* the value of its request; of a renewal, the lease's */
    int64_t written;  /* the state must be as new to have its request; while AGAIN, what others have done */
    int64_t changed;  /* the lease's revision: while HOLDING as it was written for it, else as it was read */
    int64_t created;  /* of a lease that is given back: the revision of its beginning */
    uint64_t seconds; /* of a renewal: how long from now on */
    int64_t etcd_lease_before; /* likewise: what the lease was bound to; 0: not known */
    bool waits;                /* it is content to wait */
    uint64_t until_ns;         /* how long; UINT64_MAX: for ever */
    json_t *grant;             /* what it is told once the transaction has succeeded */
    int64_t etcd_lease;        /* its lease's own; 0: none */
    char said[512];            /* the last that it was told of its waiting */
    uint64_t suspends_ns;      /* since when others are suspended for it; 0: they are not */
    uint64_t
        behind_ns; /* since when it lets others go first that are to have a part of the same GPU; 0: it does not */
};

/* commit.c */
/** Carries out that a client gets what was decided; the outcome is told to it, or the request is decided on again. */
void rg_commit_grant(struct rg_agent_ask *ask, const struct rg_picture *picture,
                     const struct rg_pool_outcome *outcome, const struct rg_pool_grant *decided);
/** The lease is there, with that value: the client is told, and holds it from now on, unless it is kept. The ask may be no more. */
void rg_commit_finish(struct rg_agent_ask *ask, const json_t *value);

/* keeping.c */
/** A lease that is to be kept was granted as one that ends with its client: it gets its time, and then the client is told. */
void rg_keeping_begin(struct rg_agent_ask *ask, const json_t *value);

/* wish.c */
/** Reads what a question asks for into ask->request. False: the client was refused, and the ask is no more. */
RG_MUST_CHECK bool rg_wish_read(struct rg_agent_ask *ask, const json_t *question, uint32_t max_gpus);
/** Whether a lease, or a request, is of the same wish. */
bool rg_wish_is_same(const json_t *one, const json_t *other);

/* leases.c */
/** Has etcd asked for the lease that a question is about. */
void rg_leases_look_up(struct rg_agent_ask *ask, const json_t *question, rg_etcd_done *done);
/** In `done`: the lease that was looked up, the caller's, if whoever asks may know it. NULL: it was refused, and the ask is no more. */
json_t *rg_leases_looked_up(struct rg_agent_ask *ask, enum rg_status status, const json_t *reply,
                            const char *why);
/** Binds the ask's lease, whose value is to be `value`, to the ask's lease of etcd, unless it has changed. */
void rg_leases_bind(struct rg_agent_ask *ask, json_t *value, rg_etcd_done *done);
/** In `done`: whether that was done. */
bool rg_leases_is_bound(const struct rg_agent_ask *ask, const json_t *reply);
void rg_leases_find(struct rg_agent_ask *ask, const json_t *question);
void rg_leases_release(struct rg_agent_ask *ask, const json_t *question);
void rg_leases_renew(struct rg_agent_ask *ask, const json_t *question);
/**
 * How many of a lease's GPUs are of servers that are in the pool, and how much memory it has of them: one that was started anew is another
 * server, and has none of what was kept there. It takes all of the pool.
 */
uint32_t rg_leases_there(const struct rg_agent *agent, const json_t *value, uint64_t *memory);
/** What a client is told that has a lease: as granted. NULL: no memory. */
json_t *rg_leases_granted(const char *id, const json_t *value);

/* hold.c */
#define RG_HOLD_LOST "the connection of its client was lost"
/** A client holds a lease by this connection from now on, whose connection was lost. */
void rg_hold_resume(struct rg_agent_ask *ask, const json_t *question);
/** A client does not hold its lease by this connection any more, for `why`: the lease is left to its sessions, and `ask` ends. */
void rg_hold_entrust(struct rg_agent_ask *ask, const char *why);
/** The client of a lease that ends with it has ended: the lease is removed, unless another connection holds it by now; `ask` ends. */
void rg_hold_give_back(struct rg_agent_ask *ask);
/** Goes on with either where etcd has not answered. Returns when to come again; UINT64_MAX: it is under way. */
uint64_t rg_hold_look(struct rg_agent_ask *ask);
/** What a client is told that holds a lease by this connection: as granted, and by what it holds it. NULL: no memory. */
json_t *rg_hold_granted(const struct rg_agent_ask *ask, const json_t *value);

/* quotas.c */
/** Asks the monitor whether quotas and rules allow it; then `judged` is called, or the client is refused. */
void rg_quotas_judge(struct rg_agent_ask *ask, bool renews, void (*judged)(struct rg_agent_ask *ask));
void rg_quotas_judged(struct rg_agent *agent, const struct rg_agent_word *word);

/* stays.c */
/** Each client's certificate may have been revoked: the monitor is asked. */
void rg_stays_recheck(struct rg_agent *agent);
void rg_stays_told(struct rg_agent *agent, const struct rg_agent_word *word);
/** Asks about the next client, and lets go of leases whose holders' certificates have expired. Returns when to come again. */
uint64_t rg_stays_look(struct rg_agent *agent);

/* links.c */
/** What a client has measured between its machine and servers is written for its later requests. */
void rg_links_take(struct rg_agent_ask *ask, const json_t *question);

/* asks.c */
void rg_asks_take(struct rg_agent *agent, const struct rg_agent_word *word, int socket, int question);
/** Answers those for whose questions the pool was to be read. Returns when to come again. */
uint64_t rg_asks_look(struct rg_agent *agent);

/* ask.c */
/** Adds one, which ends by rg_ask_end. False: no memory. */
RG_MUST_CHECK bool rg_ask_add(struct rg_agent *agent, struct rg_agent_ask *ask);
/** Tells the client; false: it has gone. */
bool rg_ask_tell(struct rg_agent_ask *ask, const json_t *answer);
/** Tells the client for the last time, and ends. The answer becomes the function's; NULL: there was no memory for one. */
void rg_ask_answer(struct rg_agent_ask *ask, json_t *answer);
/** Tells the client that it cannot be, and ends. */
void rg_ask_refuse(struct rg_agent_ask *ask, const char *why);
/** The same with a short code, which stays whatever becomes of the words. */
void rg_ask_refuse_as(struct rg_agent_ask *ask, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Whether it is whoever asks that a request or lease belongs to, or an operator asks. */
bool rg_ask_may(const struct rg_agent_ask *ask, const json_t *value);
/** Has all of the pool read for its question, which was to be handed to another server: it is served anew then (asks.c). */
void rg_ask_read(struct rg_agent_ask *ask);
/** Frees it; nothing of it is under way. */
void rg_ask_end(struct rg_agent_ask *ask);

/* request.c */
/** A client wants GPUs. */
void rg_request_take(struct rg_agent_ask *ask, const json_t *question);
/** Has it granted at once, or writes it to the queue. */
void rg_ask_go(struct rg_agent_ask *ask);
/** Goes on with one that others were faster than, once it is told what they have done up to a revision. */
void rg_ask_again(struct rg_agent_ask *ask, int64_t revision);
/** Writes it to the queue, unless it or its lease is there, or its owner has as many there as one may have. */
void rg_ask_queue(struct rg_agent_ask *ask);
/**
 * Whether its owner has as many requests as one may have in the queue: before it, if it is there. What others write at the same moment is
 * seen when all of it is told.
 */
bool rg_ask_is_one_too_many(const struct rg_agent_ask *ask);
/** Tells its client so, and ends. */
void rg_ask_refuse_one_too_many(struct rg_agent_ask *ask);
/** What its lease may be in etcd is to be removed. */
void rg_ask_undo_lease(const struct rg_agent_ask *ask);
/** Its request is, and the lease that may have come of it. */
void rg_ask_undo(const struct rg_agent_ask *ask);
/** The client has gone. */
void rg_ask_leave(struct rg_agent_ask *ask);

#endif
