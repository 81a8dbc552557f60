/* hash_table.c - the hash table: what was inserted is found, also where everything collides, and nothing else. */
#include "common/base/hash_table.h"

#include <criterion/criterion.h>
#include <string.h>

struct thing {
    uint64_t key;
    struct rg_hash_entry entry;
};

static struct thing *find(const struct rg_hash_table *table, uint64_t key)
{
    return RG_ENTRY_OF(rg_hash_find(table, rg_hash_u64(key)), struct thing, entry);
}

static void fill_and_empty(struct rg_hash_table *table)
{
    enum { N = 1000 };
    static struct thing things[N];
    cr_assert_null(find(table, 0));
    for (uint64_t i = 0; i < N; i++) {
        things[i].key = i * 4096; /* as addresses are */
        cr_assert(rg_hash_insert(table, &things[i].entry, rg_hash_u64(things[i].key)));
    }
    cr_assert_eq(table->count, N);
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(find(table, i * 4096), &things[i]);
    cr_assert_null(find(table, 1));
    for (uint64_t i = 0; i < N; i += 2) {
        cr_assert(rg_hash_remove(table, &things[i].entry));
        cr_assert_not(rg_hash_remove(table, &things[i].entry));
    }
    for (uint64_t i = 0; i < N; i++)
        cr_assert_eq(find(table, i * 4096), i % 2 ? &things[i] : NULL);
    size_t seen = 0;
    struct rg_hash_walk walk = {0};
    for (struct rg_hash_entry *at; (at = rg_hash_walk(table, &walk)); seen++)
        cr_assert(rg_hash_remove(table, at));
    cr_assert_eq(seen, N / 2);
    cr_assert_eq(table->count, 0);
    cr_assert(rg_hash_insert(table, &things[0].entry, 1));
    rg_hash_clear(table);
    cr_assert_eq(table->count, 0);
    cr_assert_null(rg_hash_find(table, 1));
}

Test(hash_table, a_table_that_grows)
{
    struct rg_hash_table table = {0};
    fill_and_empty(&table);
}

static RG_HASH_TABLE(fixed, 16);

Test(hash_table, a_table_of_fixed_buckets)
{
    fill_and_empty(&fixed);
    cr_assert_eq(fixed.n_buckets, 16);
}

Test(hash_table, equal_hashes_stand_side_by_side)
{
    struct rg_hash_table table = {0};
    struct thing things[3] = {{.key = 1}, {.key = 2}, {.key = 3}};
    for (int i = 0; i < 3; i++)
        cr_assert(rg_hash_insert(&table, &things[i].entry, 7));
    uint64_t sum = 0;
    RG_HASH_EACH_OF(at, &table, 7)
    sum += RG_ENTRY_OF(at, struct thing, entry)->key;
    cr_assert_eq(sum, 6);
    cr_assert(rg_hash_remove(&table, &things[1].entry));
    sum = 0;
    RG_HASH_EACH_OF(at, &table, 7)
    sum = 10 * sum + RG_ENTRY_OF(at, struct thing, entry)->key;
    cr_assert_eq(sum, 31);
    rg_hash_clear(&table);
}

Test(hash_table, bytes_are_hashed_part_by_part)
{
    const uint64_t whole = rg_hash_bytes(RG_HASH_START, "abcdef", 6);
    cr_assert_eq(rg_hash_bytes(rg_hash_bytes(RG_HASH_START, "abc", 3), "def", 3), whole);
    cr_assert_neq(rg_hash_bytes(RG_HASH_START, "abcdeg", 6), whole);
}
