/*
 * agent.h - the pool's agent: the one process of a server that talks to etcd.
 *
 * It holds this server's place in the pool (membership.c, self.c), grants GPUs to the clients that are connected to this server
 * (request.c, grants.c, commit.c), and frees what was granted of this server's own GPUs (own.c). All members do the same with the same
 * state: there is no manager. What makes it true is etcd: each change that matters is a transaction that compares what it was
 * decided on.
 *
 * Happy path of a request: nobody waits, so grants.c runs the scheduling policy (pool/schedule.h) over the pool and this request, and
 * commit.c carries out what it decides; the client is told; its connection is what holds the lease from then on. Where others wait, or
 * what it needs is not free, or others were faster, request.c puts it under requests/; the watch brings it back, with everything else;
 * grants.c decides about all of it, as every member with clients that wait does, and commit.c carries out what is decided about requests of
 * its own. A member at rest does not know all of the pool: scope.c says what it is told, and what follows; decider.c who decides for its clients.
 *
 * Failures: without etcd nothing is granted, clients are told why, and the monitor stops letting sessions begin before others
 * could be given the GPUs. A transaction that fails changes nothing, and is decided anew on the state as it has become. One
 * thread.
 */
#ifndef RG_SERVER_POOL_AGENT_H
#define RG_SERVER_POOL_AGENT_H

#include "pool/etcd/etcd.h"
#include "pool/schedule.h"
#include "pool/state/mirror.h"
#include "server/daemon/shared/board.h"
#include "server/pool/ask.h"
#include "server/pool/protocol.h"

struct rg_picture; /* picture.h */

#define RG_AGENT_TTL_S   10u
#define RG_AGENT_TTL_NS  (RG_AGENT_TTL_S * 1000000000ull)
#define RG_AGENT_BEAT_NS 2500000000ull /* between two signs of life; each may take a try at every endpoint */

enum rg_membership_state {
    RG_MEMBER_OUT,     /* nothing is under way */
    RG_MEMBER_JOINING, /* an etcd lease, then the keys bound to it, are asked for */
    RG_MEMBER_IN,
};

struct rg_membership {
    enum rg_membership_state state;
    int64_t etcd_lease;
    uint64_t sent_ns; /* when what is under way was sent: etcd counts from later */
    uint64_t valid_until_ns, next_ns;
    bool leaving;                 /* until etcd has answered */
    bool beating, writing, dirty; /* `dirty`: the server's own key is to be written again */
    bool draining;                /* what is wanted */
    bool drained_told;
    bool version_known;
    int64_t joined;        /* revision of the transaction: what is older knows nothing of it */
    uint32_t left;         /* of settings.dead, a bit each: those that are not in the pool any more */
    uint32_t parting;      /* likewise, by its place: that etcd is about to forget */
    bool alone;            /* since it has joined: no other has a GPU of this server's */
    char why[RG_ETCD_WHY]; /* what is wrong; "": nothing */
    uint64_t said[2 * RG_ETCD_ENDPOINTS_MAX]; /* hashes of what the log has of it: each member's may differ */
    uint32_t n_said;
};

/** A lease of GPUs here. */
struct rg_own_lease {
    char id[RG_POOL_ID];
    json_t *value; /* as it stood last; NULL: it was never seen */
    uint32_t sessions;
    bool told, gone_told;
    bool here; /* it has a part of a GPU of ours */
    /* the number by which the monitor was told to suspend its sessions (0: it was not), the one that it has answered, and how */
    uint32_t preempted, answered;
    enum rg_agent_suspension suspension;
    uint64_t idle_ns; /* since when nobody holds it and no session runs by it; 0: it is not so */
};

struct rg_own {
    struct rg_own_lease **leases;
    uint32_t n;
    bool freeing;  /* a transaction is under way */
    int64_t freed; /* revision of the last: an older state still says what it has taken back */
    uint64_t again_ns, due_ns;
    uint64_t seen; /* of agent->own_changes */
};

#define RG_SCOPE_KEY 32u
#define RG_SCOPE_OWN                                                                                         \
    5u /* ranges: its keys, its use, the requests and leases that it has handed on, to whom */
#define RG_SCOPE_KEYS (RG_ETCD_RANGES_MAX - RG_SCOPE_OWN)

/** So many digits of its server's id does the id of a request begin with that is handed on. */
#define RG_POOL_ID_START 4u

/** What of the pool is watched; see scope.c. */
struct rg_agent_scope {
    bool narrow;  /* what concerns this server alone */
    bool reading; /* what was asked for last has not been told yet */
    bool begun;   /* it is being told */
    bool read;    /* what was told last was all that is watched */
    bool again;   /* it is to be read again */
    bool behind;  /* something is to be watched that is not yet */
    bool lingers;
    uint32_t changes; /* since it was read, or since a client asked */
    bool own;         /* what is being told concerns what is done with this server's own GPUs */
    char keys[RG_SCOPE_KEYS][RG_SCOPE_KEY];
    uint32_t n;          /* of `keys` */
    uint64_t seen;       /* of agent->own_changes, when it was found out what is to be watched */
    uint64_t watched_ns; /* when something else was watched last */
};

/** Who decides for servers at rest; see decider.c. */
struct rg_agent_decider {
    char server[RG_POOL_ID], run[RG_POOL_ID]; /* as etcd tells; "": nobody does */
    int64_t changed;                          /* likewise */
    bool writing;                             /* a transaction is under way */
    uint64_t again_ns;
};

/** Leases that are suspended for requests of higher priority; see preemption.c. */
struct rg_agent_preemption {
    uint32_t number; /* the last by which the monitor was told to suspend something */
    bool writing;    /* a transaction is under way */
    int64_t written; /* revision of the last */
    uint64_t again_ns;
};

/** A session that is to begin by a lease that has not been seen yet. */
struct rg_agent_check {
    struct rg_agent_check *next;
    struct rg_agent *agent;
    uint64_t number;
    char lease[RG_POOL_ID];
    int64_t revision; /* the state must have become so new; 0: etcd has not answered yet */
    bool names_us;    /* the lease has a GPU of this server */
    uint64_t until_ns;
};

/** What users and projects have used of this server's GPUs, which comes to usage/ID; see usage.c. */
struct rg_agent_usage {
    struct rg_pool_account *accounts; /* their names are ours */
    uint32_t n;
    struct rg_agent_rate *rates; /* who has how much since `charged_ns` */
    uint32_t n_rates;
    uint64_t charged_ns, written_ns;
    bool loaded;   /* what an agent before this one has written is in it */
    bool dirty;    /* something is not written yet */
    bool hurried;  /* a lease has ended: it is written soon */
    bool writing;  /* a transaction is under way */
    uint64_t seen; /* of agent->own_changes */
};

/** Which certificates are accepted may change while clients wait or hold leases; see stays.c. */
struct rg_agent_stays {
    uint64_t rechecks; /* that the monitor has asked for */
    uint64_t asked;    /* the number of the client that it is asked about; 0: of none */
};

#define RG_AGENT_HISTORY 60u /* points: an hour */

struct rg_agent_history_point {
    uint8_t granted;  /* per cent of the memory of all GPUs */
    uint32_t waiting; /* requests */
};

struct rg_agent_history {
    uint64_t due_ns;
    bool asking; /* etcd is asked for what another server has counted */
    bool asks;   /* nobody has: all of the pool is needed */
    int64_t changed;
    struct rg_agent_queue queue; /* as it was counted last */
    uint32_t n;                  /* that were made so far; the last RG_AGENT_HISTORY of them are kept */
    struct rg_agent_history_point points[RG_AGENT_HISTORY];
};

struct rg_agent {
    struct rg_agent_settings settings;
    const struct rg_board *board;
    struct rg_etcd *etcd;
    struct rg_pool_mirror mirror;
    char prefix[96];      /* "/remote-gpu/pools/NAME/" */
    char id[RG_POOL_ID];  /* of the server */
    char run[RG_POOL_ID]; /* of this process: leases that it holds for clients are nobody's without it */
    struct rg_membership membership;
    struct rg_agent_scope scope;
    struct rg_agent_decider decider;
    struct rg_own own;
    struct rg_agent_preemption preemption;
    struct rg_agent_usage usage;
    struct rg_agent_history history;
    struct rg_agent_stays stays;
    struct rg_agent_ask **asks;
    uint32_t n_asks;
    struct rg_agent_check *checks;
    uint64_t judgements;  /* numbers of them */
    uint64_t changes;     /* counts whatever may lead to another decision */
    uint64_t own_changes; /* likewise, about this server's own GPUs */
    uint32_t granting;    /* transactions that are under way */
    int64_t granted;      /* revision of the latest: an older state still has what it has given away */
    uint64_t decided;     /* of `changes` */
    bool rewound;         /* etcd has another past than before, and not all parts know it yet */
    uint64_t settles_ns;  /* then: when all servers have said what they have */
    uint64_t look_ns;     /* when to decide again without a change */
    json_t **undo;        /* keys to be removed, whatever it takes */
    uint32_t n_undo;
    bool undoing;
    uint64_t undo_ns;
    bool ended; /* the monitor has gone */
};

/* agent.c */
/** Tells the monitor. */
void rg_agent_tell(struct rg_agent *agent, const struct rg_agent_answer *answer);
/** Something has changed that etcd does not tell of. */
void rg_agent_changed(struct rg_agent *agent);
/** Seconds since 1970 by etcd's clock where this machine's is wrong. */
int64_t rg_agent_time(const struct rg_agent *agent);
/** Whether the server is in the pool, and knows what the pool knows of it. */
bool rg_agent_is_in(const struct rg_agent *agent);
/** "servers/ID" with the pool's prefix, base64; NULL: no memory. The functions below make theirs of it, also of NULL. */
json_t *rg_agent_key(const struct rg_agent *agent, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** A comparison of a key's revision of its last change; 0: it must not be there. */
json_t *rg_agent_compare(int64_t changed, json_t *key);
/** An operation that puts a value at a key, bound to an etcd lease (0: none); the value becomes the function's. */
json_t *rg_agent_put(json_t *key, json_t *value, int64_t etcd_lease);
json_t *rg_agent_remove(json_t *key);
/** The value among the key-values that etcd answered, as an object with its "changed"; NULL: there is none. */
json_t *rg_agent_value(const json_t *kvs, int64_t *changed);
/** Removes a key whatever it takes: again, until etcd has done it. */
void rg_agent_undo(struct rg_agent *agent, json_t *key);
/** Goes on with that. Returns when to come again. */
uint64_t rg_agent_undo_look(struct rg_agent *agent);
/** Asks etcd for a lease of its own, to which keys can be bound that are to last so long; `done` finds its number as "ID". */
void rg_agent_get_time(struct rg_agent *agent, uint64_t seconds, rg_etcd_done *done, void *data);
/** Gives an etcd lease back to which nothing is bound; one that cannot be given back now ends with its time. 0 is none. */
void rg_agent_revoke(struct rg_agent *agent, int64_t etcd_lease);

/* scope.c */
/** Asks for what is needed of the pool now. Returns when to come again. */
uint64_t rg_scope_look(struct rg_agent *agent);
/** Whether what concerns this server is known and kept true. */
bool rg_scope_is_settled(const struct rg_agent *agent);
/** Whether all of the pool is. */
bool rg_scope_is_whole(const struct rg_agent *agent);
/** Has what is watched read again. */
void rg_scope_again(struct rg_agent *agent);
/** What the watch calls, with the agent as data. */
void rg_scope_reset(void *data);
void rg_scope_put(void *data, const struct rg_etcd_pair *pair);
void rg_scope_removed(void *data, const char *key);
void rg_scope_told(void *data, int64_t revision);
void rg_scope_rewound(void *data);
/** Whether etcd has got another past so lately that servers may not have said yet what they have. */
bool rg_scope_is_settling(const struct rg_agent *agent);

/* decider.c */
#define RG_DECIDER_KEY "decider"
/** What etcd has of it; NULL: nothing. */
void rg_decider_told(struct rg_agent *agent, const struct rg_etcd_pair *pair);
/** Whether this agent decides for servers at rest. */
bool rg_decider_is_us(const struct rg_agent *agent);
/** Whether a request is one of those. */
bool rg_decider_decides(const struct rg_agent *agent, const struct rg_pool_entry *request);
/** Whether there is one. */
bool rg_decider_is_asked(const struct rg_agent *agent);
/** Claims it for a server that is asked, or gives it back for one that is not any more. Returns when to come again. */
uint64_t rg_decider_look(struct rg_agent *agent);

/* handing.c */
/** Whether a question for GPUs can be handed to the decider. */
bool rg_handing_can(const struct rg_agent *agent, const json_t *question);
/** Does that, with the request that was read. */
void rg_handing_begin(struct rg_agent_ask *ask);
/** Stands for the client of a request that was handed to this server until it is carried out. NULL: there is no memory, or no room. */
struct rg_agent_ask *rg_handing_stand_in(struct rg_agent *agent, const struct rg_pool_entry *request);
/** Goes on with what was handed to another. Returns when to come again. */
uint64_t rg_handing_look(struct rg_agent *agent);

/* checks.c */
/** A session is to begin by a lease: the monitor is answered once it is known whether there is one. */
void rg_checks_take(struct rg_agent *agent, const struct rg_agent_word *word);
/** Answers those whose lease has been told, or must have been. */
void rg_checks_look(struct rg_agent *agent);

/* self.c */
/** The value of this server's own key. */
json_t *rg_self_server(const struct rg_agent *agent);
/** Adds this server's GPUs, with what is granted of them, to a transaction. */
void rg_self_add_gpus(struct rg_agent *agent, json_t *compare, json_t *puts);
/** Likewise the leases that last as long as this server is there: they are bound to its new etcd lease. */
void rg_self_add_leases(struct rg_agent *agent, json_t *compare, json_t *puts);

/* predecessors.c */
/** Whether the server cannot come into the pool yet: a run of it that has died is leaving, or another server has its GPUs. */
bool rg_predecessors_hinder(struct rg_agent *agent);
/** Whether another server has come with its GPUs at the same moment: the later one goes. */
void rg_predecessors_check(struct rg_agent *agent);

/* membership.c */
/** Does what is due. Returns when to come again. */
uint64_t rg_membership_look(struct rg_agent *agent);
void rg_membership_drain(struct rg_agent *agent, bool on);
/** The server is not in the pool, for `why`, and does not try to be for so long. */
void rg_membership_out(struct rg_agent *agent, const char *why, uint64_t pause_ns);
/** Leaves the pool at once. */
void rg_membership_leave(struct rg_agent *agent);

/* own.c */
/** Sees to leases of this server's GPUs after something has changed. Returns when to come again. */
uint64_t rg_own_look(struct rg_agent *agent);
void rg_own_sessions(struct rg_agent *agent, const struct rg_agent_lease *lease, uint32_t n,
                     enum rg_agent_suspension suspension);
struct rg_own_lease *rg_own_find(const struct rg_own *own, const char *id);
void rg_own_fini(struct rg_own *own);

/* preemption.c */
/** Whether the sessions of a lease here are to be suspended. */
bool rg_preemption_is_wanted(const struct rg_agent *agent, const char *lease);
/** How a lease of that value stands, as far as its GPUs are known: suspended if any part of it is. */
enum rg_pool_share_state rg_preemption_state(const struct rg_agent *agent, const char *lease,
                                             const json_t *value);
/** Whether a lease here is suspended, and waits for its GPUs. */
bool rg_preemption_waits(const struct rg_agent *agent);
/** Whether any lease of the pool, as far as it is known here, is suspended or about to be. */
bool rg_preemption_is_under_way(const struct rg_agent *agent);
/** Has leases suspended for a request, as the policy proposes. */
void rg_preemption_propose(struct rg_agent *agent, const struct rg_picture *picture,
                           const struct rg_pool_outcome *outcome, const struct rg_pool_proposal *proposal);
/** Gives a lease its GPUs here again, which are free. */
void rg_preemption_return(struct rg_agent *agent, const char *lease);
/** Writes what the monitor has said of leases here that are to be suspended. Returns when to come again. */
uint64_t rg_preemption_look(struct rg_agent *agent);
/** Adds to why a request waits that a lease could not be suspended for it. `now`: nanoseconds since 1970. */
void rg_preemption_explain(const struct rg_picture *picture, const struct rg_pool_request *request,
                           uint64_t now, char *why, size_t size);

/* usage.c */
/** Charges what is held of this server's GPUs, and writes it if it is time. Returns when to come again. */
uint64_t rg_agent_usage_look(struct rg_agent *agent);
void rg_agent_usage_fini(struct rg_agent_usage *usage);

/* usage_told.c */
/**
 * What the pool knows of somebody's use, in GPU milliseconds: {"users": {…}, "projects": {…}, "more": …}, of all for an operator, those behind
 * the names that the question has. NULL: no memory.
 */
json_t *rg_agent_usage_json(const struct rg_agent *agent, const char *key, bool is_operator,
                            const json_t *question);

/** "alice", "uid:1000", "unauthenticated 127.0.0.1": what people call a user by whose key it is (server/daemon/grant/who.h). */
void rg_agent_user_name(const char *key, char *out, size_t size);

/* links_told.c */
/** What was measured from machines whose ids come behind `after`, in their order: one's own, or all. NULL: no memory. */
json_t *rg_links_told(const struct rg_agent *agent, const char *key, bool is_operator, const char *after);

/* history.c */
/** Requests that wait in the pool, as far as this server knows. */
struct rg_agent_queue rg_agent_history_queue(const struct rg_agent *agent);
/** Makes the point that is due. Returns when to come again. */
uint64_t rg_agent_history_look(struct rg_agent *agent);
/** {"seconds": from point to point, "granted_percent": [oldest, …], "waiting": […]}; NULL: no memory. */
json_t *rg_agent_history_json(const struct rg_agent *agent);

/* grants.c */
/** Decides about the requests of this server's clients. Returns when to come again. */
uint64_t rg_grants_look(struct rg_agent *agent);
/** Grants a request at once that is not in the queue, where nobody else is either and the GPUs are free. False: nothing was begun. */
RG_MUST_CHECK bool rg_grants_at_once(struct rg_agent_ask *ask);
/** Whether a request could ever be granted; `why` says why not. */
RG_MUST_CHECK bool rg_grants_admissible(const struct rg_agent *agent, const json_t *request, char *why,
                                        size_t why_size);

/* listing.c */
/** What a client may know of the pool, from the member of that number on; `machine`: the client's, "" if it is not said. */
json_t *rg_listing_pool(const struct rg_agent *agent, const char *key, bool is_operator, uint64_t from,
                        const char *machine);
/** Leases that a client may know of, those whose ids come behind `after`, in their order. */
json_t *rg_listing_leases(const struct rg_agent *agent, const char *key, bool is_operator, const char *after);

#endif
