/*
 * pool_process.h - the monitor's side of the pool's agent (server/pool/agent.h): the process, and what it has told of leases.
 *
 * Happy path: rg_pool_start once; then rg_pool_revive now and then, rg_pool_receive when the socket polls readable, rg_pool_reap
 * after SIGCHLD, rg_pool_count after sessions have begun or ended; rg_pool_stop. The monitor decides itself whether a session may
 * begin, by what the agent has told of its lease and of how long this server's place in the pool lasts: an agent that hangs, or
 * an etcd that cannot be reached, lets nobody in once others could have the GPUs. Sessions that run go on. Main thread.
 */
#ifndef RG_SERVER_DAEMON_POOL_POOL_PROCESS_H
#define RG_SERVER_DAEMON_POOL_POOL_PROCESS_H

#include "server/daemon/pool/runs.h"
#include "server/daemon/sessions/sessions.h"
#include "server/daemon/settings/settings.h"
#include "server/pool/protocol.h"

#define RG_POOL_PAUSE_NS 1000000000ull /* between two agents */
#define RG_POOL_LAST_MS  3000u         /* the agent leaves the pool within */
#define RG_POOL_SPARE_NS 1500000000ull /* sessions stop to begin so long before the server's place is over */
/* Sessions that wait for their lease: as many as the frontend asks about at once. */
#define RG_POOL_CHECKS ((uint32_t)RG_MONITOR_LEASES_AT_ONCE)

struct rg_pool_known {
    struct rg_agent_lease lease;
    uint32_t sessions; /* as the agent was told; likewise: */
    enum rg_agent_suspension suspension;
    uint32_t preempted;    /* the number of what that has come of */
    uint64_t preempted_ns; /* since when its sessions are to be suspended */
    bool gone;
};

struct rg_pool_process {
    bool wanted;
    struct rg_sandboxes *sandboxes;
    struct rg_sandbox_lease *lease;
    struct rg_agent_settings settings;
    struct rg_pool_runs runs;
    const struct rg_text_list *operators; /* names of certificates; the settings' */
    int board, texts; /* descriptors of the agent's: the board (the caller's), PEM texts */
    pid_t pid;        /* 0: there is none */
    int socket;       /* -1: likewise */
    uint64_t not_before_ns;
    uint64_t valid_until_ns; /* of this server's place */
    char why[RG_CONTROL_REASON / 2];
    struct rg_agent_queue queue;
    struct rg_pool_known *leases;
    uint32_t n_leases;
    struct {
        uint64_t question; /* 0: unused */
        uint64_t number;
    } checks[RG_POOL_CHECKS];
    uint64_t next_number;
    bool draining, drained; /* what is wanted; what the pool knows */
    /* whoever waits for a lease is answered */
    void (*checked)(void *data, uint64_t question, bool there, const char *why);
    /* whether quotas and rules allow a lease, and with which priority; `out` starts with its number alone */
    void (*judge)(void *data, const struct rg_agent_judge *judge, struct rg_agent_judged *out);
    /* whether a client's certificate is still accepted; likewise */
    bool (*stays)(void *data, const struct rg_agent_client *client, char *why, size_t why_size);
    /* a lease is over */
    void (*gone)(void *data, uint64_t lease);
    void *data;
};

/** Whether the settings ask for a pool and make sense; false: it was said what is wrong. `wanted`: whether one is wanted. */
RG_MUST_CHECK bool rg_pool_check_settings(const struct rg_daemon_settings *settings, bool *wanted);
/**
 * Starts the agent. `address`: the first that the server listens on; `state`: the state folder, NULL: there is none. The callbacks and
 * `data` must be set. False: it was said why not.
 */
RG_MUST_CHECK bool rg_pool_start(struct rg_pool_process *pool, struct rg_sandboxes *sandboxes,
                                 const struct rg_daemon_settings *settings, const char *address,
                                 const char *state, int board, bool rdma);
/** Reads the certificates for etcd again; if they are others, the agent gets them. What cannot be read is said, and stays as it was. */
void rg_pool_reload(struct rg_pool_process *pool, const struct rg_daemon_settings *settings);
/** Starts another agent where there is none, if it is time. Returns when it will be; UINT64_MAX: there is one, or none is wanted. */
uint64_t rg_pool_revive(struct rg_pool_process *pool);
void rg_pool_reap(struct rg_pool_process *pool);
void rg_pool_receive(struct rg_pool_process *pool);
/** Which certificates are accepted has changed: the agent asks about each of its clients. */
void rg_pool_recheck(struct rg_pool_process *pool);
/** Has sessions of leases suspended that are to be, and tells the agent of that, and how many sessions run by each lease. */
void rg_pool_count(struct rg_pool_process *pool, struct rg_sessions *sessions);
/** Tells it whether this server takes new leases. */
void rg_pool_drain(struct rg_pool_process *pool, bool on);
void rg_pool_stop(struct rg_pool_process *pool);

/** Hands a client's question on: `socket` is what the agent answers by. False: it cannot take it now. */
RG_MUST_CHECK bool rg_pool_ask(struct rg_pool_process *pool, const struct rg_agent_word *word, int socket,
                               int question);
/**
 * Whether a lease is known here. RG_OK: it is; RG_ERR_TIMEOUT: the agent is asked, and `checked` will be called with the
 * question; RG_ERR_REFUSED: `why` says why it cannot be.
 */
RG_MUST_CHECK enum rg_status rg_pool_check(struct rg_pool_process *pool, uint64_t lease, uint64_t question,
                                           char *why, size_t why_size);
/** What a lease is for, as who took it said; "": nothing was said, or it is not known. */
const char *rg_pool_job(const struct rg_pool_process *pool, uint64_t lease);
/** Whether its number is no secret: it is of somebody who proves that. Whoever proves nothing has a lease by knowing its number. */
bool rg_pool_is_proved(const struct rg_pool_process *pool, uint64_t lease);
/** Whether a certificate of that name is an operator's. */
bool rg_pool_names_operator(const struct rg_pool_process *pool, const char *name);
/** Nobody waits for answers any more. */
void rg_pool_forget(struct rg_pool_process *pool);
/**
 * Whether a session may begin by its lease, or, where that has no GPU here, by the lease `beside` (0: none): then `start` asks for the lease's GPUs and memory and no more. RG_ERR_REFUSED with
 * what to tell the client in `answer`.
 */
RG_MUST_CHECK enum rg_status rg_pool_admit(const struct rg_pool_process *pool, const struct rg_who *who,
                                           const char *key, uint64_t beside, struct rg_monitor_start *start,
                                           struct rg_monitor_answer *answer);

#endif
