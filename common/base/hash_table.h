/*
 * hash_table.h - things that are found by a hash of their key. The link is part of the thing, so that adding
 * and finding allocate nothing but a larger array of buckets when the table has doubled; where there is no
 * memory for that, it stays as it is. A zeroed table is empty.
 *
 *     for (struct rg_hash_link *at = rg_hash_table_first(&table, hash); at; at = rg_hash_table_next(at))
 *         if (its key is the one that is looked for) …
 *
 * The caller locks, and compares keys: all of the links with that very hash are returned, the latest first.
 */
#ifndef RG_COMMON_BASE_HASH_TABLE_H
#define RG_COMMON_BASE_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

/** To be the first member of what is kept. */
struct rg_hash_link {
    struct rg_hash_link *next; /* in its bucket */
    uint64_t hash;
};

struct rg_hash_table {
    struct rg_hash_link **buckets; /* 2^bits; NULL: all are in `few` */
    struct rg_hash_link *few;
    unsigned bits;
    size_t n;
};

/** FNV-1a of `size` bytes; `before`: of what precedes them, or RG_HASH_EMPTY. */
#define RG_HASH_EMPTY 0xcbf29ce484222325ull
static inline uint64_t rg_hash_bytes(uint64_t before, const void *data, size_t size)
{
    for (const unsigned char *at = data; size--; at++)
        before = (before ^ *at) * 0x100000001b3ull;
    return before;
}

/** The same of a text, without its end. */
uint64_t rg_hash_text(const char *text);

/** The bucket's first link, whatever its hash. */
static inline struct rg_hash_link **rg_hash_table_bucket(struct rg_hash_table *table, uint64_t hash)
{
    return table->buckets ? &table->buckets[hash * 0x9e3779b97f4a7c15ull >> (64 - table->bits)] : &table->few;
}

/** From `at` on in its bucket, the first link of that hash; NULL: there is none. */
static inline struct rg_hash_link *rg_hash_table_same(struct rg_hash_link *at, uint64_t hash)
{
    while (at && at->hash != hash)
        at = at->next;
    return at;
}

static inline struct rg_hash_link *rg_hash_table_first(struct rg_hash_table *table, uint64_t hash)
{
    return rg_hash_table_same(*rg_hash_table_bucket(table, hash), hash);
}

static inline struct rg_hash_link *rg_hash_table_next(const struct rg_hash_link *at)
{
    return rg_hash_table_same(at->next, at->hash);
}

/** Puts a link that is in no table into this one, before others of its hash. */
void rg_hash_table_add(struct rg_hash_table *table, struct rg_hash_link *link, uint64_t hash);
/** Takes out a link that is in the table. */
void rg_hash_table_remove(struct rg_hash_table *table, struct rg_hash_link *link);
/**
 * Goes through all: what follows `at`, in no order; NULL: the first, or behind the last. Nothing may be added
 * meanwhile.
 */
struct rg_hash_link *rg_hash_table_after(struct rg_hash_table *table, const struct rg_hash_link *at);
/** Takes out all of them, calls `drop` with each, and frees the buckets. */
void rg_hash_table_clear(struct rg_hash_table *table, void (*drop)(struct rg_hash_link *link));

#endif
