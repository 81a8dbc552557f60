/*
 * mirror.h - the pool as it stands in etcd: a copy of what lies below its prefix, which a watch keeps true.
 *
 * Keys, below /remote-gpu/pools/NAME/, and their values in JSON (docs/pool.md):
 *
 *   servers/ID          a member; bound to its etcd lease, so that it vanishes with it
 *   servers/ID/gpus/N   one of its GPUs, and what is granted of it, also to leases that are suspended; bound to the same
 *   requests/ID         somebody who waits; bound to the member that the client is connected to
 *   leases/ID           what was granted to whom; bound to the first of its servers, or to its own time
 *   usage/ID            what users and projects have used of the GPUs of that server; stays when it has gone: {"as_of": seconds since
 *                       1970, "users": {NAME: GPU milliseconds}, "projects": {…}}
 *   links/ID            what a user has measured between a machine and the servers; bound to its own time: {"user": …, "machine": …,
 *                       "as_of": seconds since 1970, "servers": {ADDRESS: [nanoseconds, bytes a second]}}
 *
 *   summary             how much is granted and waits, for servers that do not watch it all; no part of the mirror
 *
 * A grant changes GPUs, a request and a lease in one transaction that compares their revisions (`changed`), so what is told
 * between two calls of rg_pool_mirror_whole is consistent. A value that is not understood is as if it were not there, and is
 * said. One thread; pointers hold until the next change.
 */
#ifndef RG_POOL_STATE_MIRROR_H
#define RG_POOL_STATE_MIRROR_H

#include "common/base/hash_table.h"
#include "common/base/json_value.h"
#include "common/base/limits.h"
#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_POOL_ID   20  /* bytes of an id with its end: 16 hexadecimal digits */
#define RG_POOL_TEXT 128 /* of names */

enum rg_pool_share_state {
    RG_POOL_SHARE_ACTIVE,
    RG_POOL_SHARE_SUSPENDING, /* its sessions are to be suspended: until they are, it has its part */
    RG_POOL_SHARE_SUSPENDED,  /* they are: its part is others' to have, and the lease comes back to it */
};

/** Why a lease could not be suspended. */
enum rg_pool_share_refusal {
    RG_POOL_SHARE_UNREFUSED,
    RG_POOL_SHARE_BUSY,   /* a session did not come to rest */
    RG_POOL_SHARE_SHARED, /* others have a part in a session's memory */
    RG_POOL_SHARE_DRIVER, /* the driver cannot, or refuses */
    RG_POOL_SHARE_REFUSALS,
};

/** So much of a GPU for a lease. Those of a GPU that are not suspended have no more together than it has. */
struct rg_pool_share {
    char lease[RG_POOL_ID];
    uint64_t memory;
    enum rg_pool_share_state state;
    enum rg_pool_share_refusal refused; /* ACTIVE: the last that came of suspending it */
    uint64_t since;                     /* in this state, seconds since 1970; 0: since it was granted */
};

struct rg_pool_gpu {
    bool seen;
    int64_t changed;
    uint32_t index; /* as its server counts */
    char uuid[48], name[RG_POOL_TEXT];
    uint64_t memory;
    int numa_node, nvlink_group, pcie_group; /* -1: not known */
    uint32_t n_shares;
    struct rg_pool_share shares[RG_POOL_SHARES_MAX];
};

struct rg_pool_member {
    struct rg_hash_link link; /* of its id */
    bool seen;
    char id[RG_POOL_ID];
    json_t *value; /* NULL: only GPUs are known of it yet */
    int64_t created, changed, etcd_lease;
    const char *address, *host, *cuda, *driver, *agent; /* within `value`; NULL: not known */
    bool rdma, draining;
    bool suspends;   /* leases of its GPUs may be suspended for requests of higher priority, */
    uint64_t rest_s; /* once they have had them for so many seconds */
    uint32_t n_gpus;
    struct rg_pool_gpu *gpus[RG_DEVICES_MAX]; /* in the order of their indices */
};

/** A request, a lease, what a server says of use, what was measured. */
struct rg_pool_entry {
    struct rg_hash_link link; /* of its id */
    bool seen;
    char id[RG_POOL_ID]; /* of use: of the server */
    json_t *value;
    int64_t created, changed;
};

struct rg_pool_mirror {
    struct rg_pool_member **members;
    struct rg_pool_entry **requests; /* in the order in which they came */
    struct rg_pool_entry **leases, **usage, **links;
    uint32_t n_members, n_requests, n_leases, n_usage, n_links;
    /* the same by their ids: a decision looks up each lease of the pool */
    struct rg_hash_table members_by_id, requests_by_id, leases_by_id, usage_by_id, links_by_id;
    int64_t revision; /* 0: nothing is known yet */
    uint32_t
        marked; /* what has things in it that were removed, or not told yet; rg_pool_mirror_whole looks there */
};

/** Gives back all; it is as if zeroed then. */
void rg_pool_mirror_fini(struct rg_pool_mirror *mirror);

/** What rg_etcd_watch tells; keys without the pool's prefix. */
void rg_pool_mirror_reset(struct rg_pool_mirror *mirror);
void rg_pool_mirror_put(struct rg_pool_mirror *mirror, const char *key, const char *value, int64_t created,
                        int64_t changed);
void rg_pool_mirror_remove(struct rg_pool_mirror *mirror, const char *key);
void rg_pool_mirror_whole(struct rg_pool_mirror *mirror, int64_t revision);

/** NULL: there is none of that id; of a member, or its value is not known. */
struct rg_pool_member *rg_pool_mirror_member(const struct rg_pool_mirror *mirror, const char *id);
struct rg_pool_entry *rg_pool_mirror_request(const struct rg_pool_mirror *mirror, const char *id);
struct rg_pool_entry *rg_pool_mirror_lease(const struct rg_pool_mirror *mirror, const char *id);
struct rg_pool_entry *rg_pool_mirror_usage(const struct rg_pool_mirror *mirror, const char *id);
struct rg_pool_entry *rg_pool_mirror_links(const struct rg_pool_mirror *mirror, const char *id);
struct rg_pool_gpu *rg_pool_mirror_gpu(const struct rg_pool_member *member, uint32_t index);

/** What leases have of a GPU that are not suspended. */
uint64_t rg_pool_gpu_held(const struct rg_pool_gpu *gpu);
/** "suspending", "suspended"; "" of an active one. Static storage. */
const char *rg_pool_share_state_name(enum rg_pool_share_state state);
/** A GPU's value: what rg_pool_mirror_put takes apart. NULL: no memory. */
json_t *rg_pool_gpu_json(const struct rg_pool_gpu *gpu);
/** Adds to a GPU's object (NULL is fine) where it is, as far as that is known: "numa", "nvlink", "pcie". */
void rg_pool_gpu_places(const struct rg_pool_gpu *gpu, json_t *out);
/** Whether it is an id as we make them. */
bool rg_pool_is_id(const char *text);
/** A new one, random: whoever knows a lease's may use it as far as nobody has proved who they are. */
RG_MUST_CHECK bool rg_pool_make_id(char out[RG_POOL_ID]);

#endif
