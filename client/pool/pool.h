/*
 * pool.h - leases of a pool: asked for, found, renewed, released, and shown; for the command and for programs that ask for others.
 *
 * Any server of the pool is asked, by a connection for each question (client/query/pool.h). Happy path of a program that takes a
 * lease for somebody, as an operator of the pool: rg_pool_request with `user` and an `id` of its own choice, rg_pool_renew before it
 * expires, rg_pool_release. Asked again by the same id and wish, for which it may have died or lost its connection meanwhile, it gets
 * the same lease.
 *
 * Failures: a struct rg_pool_failure says what happened in a sentence, and by a code, which stays as it is:
 *
 *   lease-not-operator, lease-user, lease-id, lease-question, lease-gpus, lease-devices, lease-device-unknown, lease-project, lease-priority,
 *   lease-time
 *                       the question is wrong, or not yours to ask
 *   lease-taken         the id is of a lease with another wish
 *   lease-busy          somebody else does something with the id at this moment: try again
 *   lease-clients       the server answers too many at this moment, of one user or in all: ask another one
 *   lease-requests      as many requests of the user wait in the pool as may
 *   lease-impossible    the pool, as it is now, could never grant it
 *   lease-not-free      not now, and no waiting was wanted; lease-waited: not in the time of waiting
 *   lease-gone, lease-not-yours, lease-not-kept
 *                       there is no such lease; it is somebody else's; it has no time that could be renewed
 *   links-too-many      what was measured from so many machines is not kept
 *   quota-…             as for sessions (docs/accounting.md)
 *   pool-unreachable    the server cannot reach etcd now, or nothing answers: try again, or ask another server
 *
 * One thread for each call.
 */
#ifndef RG_CLIENT_POOL_POOL_H
#define RG_CLIENT_POOL_POOL_H

#include "client/query/pool.h"
#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_POOL_FOR_EVER UINT64_MAX

/** What is asked for; zeroed: a whole GPU for whoever asks, now or not at all, as long as the connection lasts. */
struct rg_pool_wish {
    unsigned gpus; /* 0: as many as devices are named, else 1 */
    uint64_t memory;
    uint32_t fraction;          /* millionths of each GPU's memory */
    const char *const *filters; /* n_filters of them (pool/filter.h) */
    size_t n_filters;
    const char *const *devices; /* UUIDs of n_devices GPUs: these and no others, wherever they are */
    size_t n_devices;
    const char *const
        *tolerations; /* n_tolerations taints of servers that do not matter: NAME or NAME=VALUE */
    size_t n_tolerations;
    bool spread;         /* several servers will do */
    const char *project; /* NULL: none */
    const char *user;    /* whose it is to be; NULL: of whoever asks. Of others for operators alone */
    /* what this machine is called, by which the way from it may have been measured (rg_pool_tell_links); NULL */
    const char *machine;
    const char
        *job; /* what it is for, for people and metrics: a batch system's number; NULL: nothing is said */
    const char *id;       /* 16 hexadecimal digits, for operators alone; NULL: the pool's choice */
    const char *priority; /* low, normal or high; NULL: as the rules of the server that is asked say */
    bool kept;            /* for `seconds`, until it is released */
    uint64_t seconds;
    bool waits; /* in the queue, for `wait_seconds` */
    uint64_t wait_seconds;
    uint64_t timeout_ns; /* to connect */
    /* called whenever the place in the queue or the reason for waiting has changed; NULL is fine */
    void (*waiting)(void *data, int position, int of, int64_t since, const char *why);
    void *data;
};

/** GPUs that were granted. */
struct rg_pool_lease_of {
    char id[24];
    char hold[24];   /* by what its connection holds it; "": it needs none, or the server does not say */
    char user[256];  /* for people; "": nobody was proved */
    char *servers;   /* addresses with commas between them, for REMOTE_GPU_SERVER */
    char *variable;  /* of REMOTE_GPU_LEASE */
    json_t *gpus;    /* [{"server": id, "address": …, "index": N, "uuid": …, "memory": bytes}] */
    int64_t expires; /* seconds since 1970; 0: with its connection */
    unsigned n_gpus, n_servers;
    struct rg_pool_talk talk; /* it is held by this connection; of a kept lease there is none */
};

struct rg_pool_failure {
    enum rg_status status; /* RG_ERR_REFUSED: the pool said no; RG_ERR_UNREACHABLE, …: nobody said anything */
    char code[32];         /* "": there is none */
    char why[1600];        /* with the code in brackets at its end */
};

/** Asks `server`, a member of the pool, and waits as the wish says. False: `failure`. */
RG_MUST_CHECK bool rg_pool_request(const char *server, const struct rg_pool_wish *wish,
                                   struct rg_pool_lease_of *out, struct rg_pool_failure *failure);
/** Finds a lease that is one's own, or any as an operator. */
RG_MUST_CHECK bool rg_pool_find(const char *server, const char *id, uint64_t timeout_ns,
                                struct rg_pool_lease_of *out, struct rg_pool_failure *failure);
/**
 * Holds a lease again, whose connection was lost, by a connection of its own: until rg_pool_lease_fini. `before`: as it was granted or held
 * last; if another holds it by now, that is refused (lease-busy).
 */
RG_MUST_CHECK bool rg_pool_hold(const char *server, const struct rg_pool_lease_of *before,
                                uint64_t timeout_ns, struct rg_pool_lease_of *out,
                                struct rg_pool_failure *failure);
/** Keeps a lease for so many seconds from now on, whatever its time was before. */
RG_MUST_CHECK bool rg_pool_renew(const char *server, const char *id, uint64_t seconds, uint64_t timeout_ns,
                                 int64_t *expires, struct rg_pool_failure *failure);
RG_MUST_CHECK bool rg_pool_release(const char *server, const char *id, uint64_t timeout_ns,
                                   struct rg_pool_failure *failure);
/** Frees it; a lease that is held by its connection is given back by that. */
void rg_pool_lease_fini(struct rg_pool_lease_of *lease);

/**
 * What the pool remembers of use, by which fair shares go: {"pool": NAME, "half_life": seconds, "held": {"leases", "gpus", "memory"},
 * "users": {NAME: GPU milliseconds, decayed}, "projects": {…}}; of oneself and `project` ("" for none), as an operator of all. NULL:
 * `failure`.
 */
json_t *rg_pool_usage(const char *server, const char *project, uint64_t timeout_ns,
                      struct rg_pool_failure *failure);

/**
 * What a server's pool has, whole: {"pool": NAME, "servers": […], "requests": […], "leases": […], …} (docs/pool.md); requests and
 * leases are one's own, or all for an operator; what was measured is that between `machine` (NULL: none) and the servers. NULL: `failure`.
 */
json_t *rg_pool_list(const char *server, const char *machine, uint64_t timeout_ns,
                     struct rg_pool_failure *failure);
/** What this machine is called in a pool. Returns `out`. */
const char *rg_pool_machine(char *out, size_t size);
/**
 * Tells the pool what was measured between this machine and its servers, {ADDRESS: [round trip in nanoseconds, bytes a second]}: one's
 * requests from here go to near servers from then on.
 */
RG_MUST_CHECK bool rg_pool_tell_links(const char *server, const char *machine, const json_t *figures,
                                      uint64_t timeout_ns, struct rg_pool_failure *failure);

#endif
