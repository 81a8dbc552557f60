/* hash_table.c - see hash_table.h. A bucket has two links on average at most. */
#include "common/base/hash_table.h"

#include <stdlib.h>
#include <string.h>

#define FEW        8 /* in one list */
#define BITS_FIRST 4

uint64_t rg_hash_text(const char *text)
{
    return rg_hash_bytes(RG_HASH_EMPTY, text, strlen(text));
}

static void put(struct rg_hash_table *table, struct rg_hash_link *link)
{
    struct rg_hash_link **bucket = rg_hash_table_bucket(table, link->hash);
    link->next = *bucket;
    *bucket = link;
}

/* Behind what its bucket has, so that the latest of equal hashes stays first. */
static void append(struct rg_hash_table *table, struct rg_hash_link *link)
{
    struct rg_hash_link **end = rg_hash_table_bucket(table, link->hash);
    while (*end)
        end = &(*end)->next;
    link->next = NULL;
    *end = link;
}

static void grow(struct rg_hash_table *table)
{
    struct rg_hash_table larger = {.bits = table->buckets ? table->bits + 1 : BITS_FIRST, .n = table->n};
    larger.buckets = calloc((size_t)1 << larger.bits, sizeof *larger.buckets);
    for (struct rg_hash_link *at = larger.buckets ? rg_hash_table_after(table, NULL) : NULL, *after; at;
         at = after) {
        after = rg_hash_table_after(table, at);
        append(&larger, at);
    }
    if (larger.buckets) {
        free(table->buckets);
        *table = larger;
    }
}

void rg_hash_table_add(struct rg_hash_table *table, struct rg_hash_link *link, uint64_t hash)
{
    if (table->n >= (table->buckets ? (size_t)2 << table->bits : FEW))
        grow(table);
    link->hash = hash;
    put(table, link);
    table->n++;
}

void rg_hash_table_remove(struct rg_hash_table *table, struct rg_hash_link *link)
{
    struct rg_hash_link **at = rg_hash_table_bucket(table, link->hash);
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    table->n--;
}

struct rg_hash_link *rg_hash_table_after(struct rg_hash_table *table, const struct rg_hash_link *at)
{
    if (at && at->next)
        return at->next;
    if (!table->buckets)
        return at ? NULL : table->few;
    struct rg_hash_link **const end = table->buckets + ((size_t)1 << table->bits);
    for (struct rg_hash_link **bucket = at ? rg_hash_table_bucket(table, at->hash) + 1 : table->buckets;
         bucket < end; bucket++)
        if (*bucket)
            return *bucket;
    return NULL;
}

void rg_hash_table_clear(struct rg_hash_table *table, void (*drop)(struct rg_hash_link *link))
{
    for (struct rg_hash_link *at = rg_hash_table_after(table, NULL), *after; at; at = after) {
        after = rg_hash_table_after(table, at);
        drop(at);
    }
    free(table->buckets);
    *table = (struct rg_hash_table){0};
}
