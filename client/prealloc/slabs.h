/*
 * slabs.h - blocks of memory that are ready, by what is allocated: what prealloc.c takes from and give_back.c
 * returns.
 *
 * Two locks, in this order: `order` is held while a block is taken or given back and until the record of that
 * is appended, so that records about a slab are in the order of what happens to it; `lock` guards the slabs,
 * is a leaf but for that of futures, and is all that a reader takes.
 */
#ifndef RG_CLIENT_PREALLOC_SLABS_H
#define RG_CLIENT_PREALLOC_SLABS_H

#include "client/core/session.h"
#include "client/prealloc/prealloc.h"
#include "common/base/hash_table.h"

#include <pthread.h>
#include <stdatomic.h>

#define RG_SLAB_REFUSED 64u /* after a refusal, this many allocations ask before it is tried again */

struct rg_future;

struct rg_slab {
    struct rg_hash_link link;
    struct rg_prealloc_key key;
    struct rg_session *session;
    uint64_t context;
    uint32_t thread;  /* of per-thread default streams; else 0 */
    uint64_t slab_id; /* 0: nothing is ready or due */
    unsigned asked;   /* times that the worker was asked for one */
    unsigned target, due, n;
    unsigned refused;         /* allocations until it is tried again */
    uint64_t used;            /* when it was needed last */
    bool hinted;              /* what is ready was hinted, and `used` is ahead of the time */
    struct rg_future *future; /* the answer with the blocks that were hinted, until it has come */
    struct rg_prealloc_block blocks[RG_PREALLOC_MAX];
};

extern struct rg_slabs {
    pthread_mutex_t order, lock;
    struct rg_hash_table table;
    atomic_uint live[RG_SERVERS_MAX]; /* slabs with an id */
    atomic_uint awaited;              /* slabs with a future */
} rg_slabs;

/* With `lock` held: */

/** NULL: there is none. */
struct rg_slab *rg_slabs_find(const struct rg_prealloc_key *key, uint64_t context);
struct rg_slab *rg_slabs_find_id(const struct rg_session *session, uint64_t slab_id);
/**
 * The next of all, NULL: the first, or behind the last. Before `at` is removed, what follows it is to be
 * asked for.
 */
struct rg_slab *rg_slabs_after(const struct rg_slab *at);
/** The answer has come, or the slab ends. */
void rg_slab_drop_future(struct rg_slab *slab);

/* With both: */

/** The slab of what was asked for in the current context, made if there is none; NULL: there are too many. */
struct rg_slab *rg_slabs_add(const struct rg_prealloc_key *key, struct rg_session *session);
void rg_slabs_remove(struct rg_slab *slab);

#endif
