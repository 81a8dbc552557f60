/*
 * hash_table.h - the one hash table: its entries are members of what is stored, and chained where they collide.
 *
 *   struct thing { struct rg_hash_entry entry; uint64_t id; … };
 *   static RG_HASH_TABLE(things, 256);
 *
 *   rg_hash_insert(&things, &thing->entry, rg_hash_u64(thing->id));
 *   struct rg_hash_entry *found = rg_hash_find(&things, rg_hash_u64(id));
 *   struct thing *thing = RG_ENTRY_OF(found, struct thing, entry);
 *
 * rg_hash_u64 is a bijection: who finds an entry by it has found the key. Other keys are hashed by rg_hash_bytes, part by
 * part, and compared by the caller:
 *
 *   RG_HASH_EACH_OF(found, &things, hash)
 *       if (is_it(RG_ENTRY_OF(found, struct thing, entry), key)) …
 *
 * Looking up, inserting and removing allocate nothing, but that a table without buckets of its own (zeroed) makes them when
 * something is inserted, and more when its chains grow; where there is no memory for more, longer chains will do.
 *
 * The caller locks.
 */
#ifndef RG_COMMON_BASE_HASH_TABLE_H
#define RG_COMMON_BASE_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_hash_entry {
    struct rg_hash_entry *next; /* in its bucket */
    uint64_t hash;
};

/** Zeroed: an empty one that grows. */
struct rg_hash_table {
    struct rg_hash_entry **buckets;
    size_t n_buckets; /* a power of two; 0: none yet */
    size_t count;
    bool fixed; /* the buckets are the owner's */
};

/** Defines a table with `n` buckets, a power of two, that never grows. */
#define RG_HASH_TABLE(name, n)                                                                               \
    struct rg_hash_table name = {                                                                            \
        .buckets = (struct rg_hash_entry *[n]){NULL}, .n_buckets = (n), .fixed = true}

/** What `entry`, a pointer to member `member` of `type`, is in; NULL of NULL. */
#define RG_ENTRY_OF(entry, type, member)                                                                     \
    __extension__({                                                                                          \
        void *const rg_entry_ = (entry);                                                                     \
        rg_entry_ ? (type *)(void *)((char *)rg_entry_ - offsetof(type, member)) : NULL;                     \
    })

/** Different for different keys. */
static inline uint64_t rg_hash_u64(uint64_t key)
{
    key = (key ^ key >> 32) * 0x9E3779B97F4A7C15ull;
    return key ^ key >> 32;
}
#define RG_HASH_START 0xCBF29CE484222325ull /* FNV-1a */
/** Goes on from `hash`, RG_HASH_START at first. */
static inline uint64_t rg_hash_bytes(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001B3ull;
    return hash;
}

/** The first entry of this hash among `entry` and those behind it; NULL: there is none. */
static inline struct rg_hash_entry *rg_hash_next(struct rg_hash_entry *entry, uint64_t hash)
{
    while (entry && entry->hash != hash)
        entry = entry->next;
    return entry;
}
/** The entry of this hash that was inserted last, or NULL. */
static inline struct rg_hash_entry *rg_hash_find(const struct rg_hash_table *table, uint64_t hash)
{
    return table->n_buckets ? rg_hash_next(table->buckets[hash & (table->n_buckets - 1)], hash) : NULL;
}
/** All entries of a hash, one after the other; none may be removed meanwhile. */
#define RG_HASH_EACH_OF(at, table, of_hash)                                                                  \
    for (struct rg_hash_entry *at = rg_hash_find(table, of_hash); at; at = rg_hash_next(at->next, of_hash))

/** False: there was no memory for the first buckets (never of a table that has its own). Equal hashes may stand side by side. */
bool rg_hash_insert(struct rg_hash_table *table, struct rg_hash_entry *entry, uint64_t hash);
/** False: it was not in the table. */
bool rg_hash_remove(struct rg_hash_table *table, struct rg_hash_entry *entry);

/** Where a walk is; zeroed at its beginning. */
struct rg_hash_walk {
    size_t bucket;
    struct rg_hash_entry *next;
    bool inside; /* `next` is what follows in this bucket */
};
/** The next entry in no order, or NULL; the one before may have been removed, nothing else changed meanwhile. */
struct rg_hash_entry *rg_hash_walk(const struct rg_hash_table *table, struct rg_hash_walk *walk);

/** Forgets the entries, which are the caller's, and gives back what buckets were allocated. */
void rg_hash_clear(struct rg_hash_table *table);

#endif
