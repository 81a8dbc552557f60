/* ranges.h - ranges of keys as etcd is asked for them: with a prefix in front. One thread. */
#ifndef RG_POOL_ETCD_RANGES_H
#define RG_POOL_ETCD_RANGES_H

#include "pool/etcd/etcd.h"

/** A range; both texts with the prefix. */
struct rg_etcd_keys {
    char *first, *end; /* NULL: one key */
};

/** The ranges below a prefix, the caller's until rg_etcd_keys_free; `n` 0: one, all that is below it. NULL: no memory. */
struct rg_etcd_keys *rg_etcd_keys_new(const char *prefix, const struct rg_etcd_range *ranges, uint32_t n);
/** NULL is fine. */
void rg_etcd_keys_free(struct rg_etcd_keys *keys, uint32_t n);
/** A range as a member of what etcd is asked; NULL: no memory. */
json_t *rg_etcd_keys_json(const struct rg_etcd_keys *keys);

#endif
