/* hash_table.c - see hash_table.h. */
#include "common/base/hash_table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 64, ENTRIES_A_BUCKET = 2 };

static struct rg_hash_entry **bucket_of(const struct rg_hash_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->n_buckets - 1)];
}

static void put(struct rg_hash_table *table, struct rg_hash_entry *entry)
{
    struct rg_hash_entry **bucket = bucket_of(table, entry->hash);
    entry->next = *bucket;
    *bucket = entry;
}

static void grow(struct rg_hash_table *table)
{
    const struct rg_hash_table old = *table;
    const size_t n = old.n_buckets ? old.n_buckets * 4 : FIRST_BUCKETS;
    struct rg_hash_entry **buckets = calloc(n, sizeof(struct rg_hash_entry *));
    if (!buckets)
        return;
    table->buckets = buckets;
    table->n_buckets = n;
    for (size_t i = 0; i < old.n_buckets; i++)
        for (struct rg_hash_entry *entry = old.buckets[i], *next; entry; entry = next) {
            next = entry->next;
            put(table, entry);
        }
    free(old.buckets);
}

bool rg_hash_insert(struct rg_hash_table *table, struct rg_hash_entry *entry, uint64_t hash)
{
    if (!table->fixed && table->count >= table->n_buckets * ENTRIES_A_BUCKET)
        grow(table);
    if (!table->n_buckets)
        return false;
    entry->hash = hash;
    put(table, entry);
    table->count++;
    return true;
}

bool rg_hash_remove(struct rg_hash_table *table, struct rg_hash_entry *entry)
{
    if (!table->n_buckets)
        return false;
    struct rg_hash_entry **link = bucket_of(table, entry->hash);
    while (*link && *link != entry)
        link = &(*link)->next;
    if (!*link)
        return false;
    *link = entry->next;
    table->count--;
    return true;
}

struct rg_hash_entry *rg_hash_walk(const struct rg_hash_table *table, struct rg_hash_walk *walk)
{
    struct rg_hash_entry *entry = walk->inside ? walk->next : NULL;
    while (!entry && walk->bucket < table->n_buckets)
        entry = table->buckets[walk->bucket++];
    walk->inside = entry != NULL;
    walk->next = entry ? entry->next : NULL;
    return entry;
}

void rg_hash_clear(struct rg_hash_table *table)
{
    table->count = 0;
    if (table->fixed) {
        memset(table->buckets, 0, table->n_buckets * sizeof(struct rg_hash_entry *));
        return;
    }
    free(table->buckets);
    *table = (struct rg_hash_table){0};
}
