/* internal.h - what mirror.c and members.c share. One thread. */
#ifndef RG_POOL_STATE_INTERNAL_H
#define RG_POOL_STATE_INTERNAL_H

#include "pool/state/mirror.h"

#include <stddef.h>

/* --- mirror.c --- */

/**
 * What a table has of an id. Each thing begins with its link and has its id at `offset`. The table is changed by adding and
 * removing alone, so that of a constant mirror may be looked into.
 */
void *rg_mirror_find(const struct rg_hash_table *table, const char *id, size_t offset);
/** Makes room for one more pointer in a list of `n`; false: no memory, or there are `max`. */
bool rg_mirror_grow(void *list, uint32_t n, uint32_t max);

/* --- values.c --- */

/** A part of a GPU of so much memory. False: it is not understood. */
bool rg_mirror_read_share(const json_t *value, uint64_t memory, struct rg_pool_share *out);

/* --- members.c --- */

/** The member of an id, also if only GPUs are known of it; NULL: there is none. */
struct rg_pool_member *rg_mirror_any_member(const struct rg_pool_mirror *mirror, const char *id);
/** What is told of a member, or of a GPU of one. Without memory it is as if it were not there. */
void rg_mirror_put_member(struct rg_pool_mirror *mirror, const char *id, json_t *value, int64_t created,
                          int64_t changed);
void rg_mirror_put_gpu(struct rg_pool_mirror *mirror, const char *id, uint32_t index, const json_t *value,
                       int64_t changed);
/** Removes members and GPUs that are not `seen`. */
void rg_mirror_sweep_members(struct rg_pool_mirror *mirror);

#endif
