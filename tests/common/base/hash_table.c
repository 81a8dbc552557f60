/* hash_table.c - all that was added is found, by its very hash, and what was removed is not, however the
 * table grew. */
#include "common/base/hash_table.h"

#include <criterion/criterion.h>

#define N 3000

struct thing {
    struct rg_hash_link link;
    unsigned key;
};

static struct thing things[N];

static struct thing *find(struct rg_hash_table *table, unsigned key)
{
    for (struct rg_hash_link *at = rg_hash_table_first(table, key / 3); at; at = rg_hash_table_next(at)) {
        cr_assert_eq(at->hash, key / 3);
        if (((struct thing *)at)->key == key)
            return (struct thing *)at;
    }
    return NULL;
}

static unsigned n_dropped;

static void drop(struct rg_hash_link *link)
{
    (void)link;
    n_dropped++;
}

Test(hash_table, finds_what_is_there)
{
    struct rg_hash_table table = {0};
    cr_assert_null(find(&table, 0));
    for (unsigned i = 0; i < N; i++) {
        things[i].key = i;
        rg_hash_table_add(&table, &things[i].link, i / 3); /* three have the same hash */
        cr_assert_eq(find(&table, i), &things[i]);
        cr_assert_null(find(&table, i + 1));
    }
    for (unsigned hash = 0; hash < N / 3; hash++) /* the latest of them first */
        cr_assert_eq(rg_hash_table_first(&table, hash), &things[3 * hash + 2].link);
    for (unsigned i = 0; i < N; i += 2)
        rg_hash_table_remove(&table, &things[i].link);
    for (unsigned i = 0; i < N; i++)
        cr_assert_eq(find(&table, i), i % 2 ? &things[i] : NULL);
    unsigned n = 0;
    for (struct rg_hash_link *at = rg_hash_table_after(&table, NULL); at;
         at = rg_hash_table_after(&table, at)) {
        cr_assert_eq(((struct thing *)at)->key % 2, 1);
        n++;
    }
    cr_assert_eq(n, N / 2);
    cr_assert_eq(table.n, N / 2);
    rg_hash_table_clear(&table, drop);
    cr_assert_eq(n_dropped, N / 2);
    cr_assert_null(find(&table, 1));
}

Test(hash_table, hashes_tell_texts_apart)
{
    cr_assert_neq(rg_hash_text("ab"), rg_hash_text("ba"));
    cr_assert_eq(rg_hash_text("ab"), rg_hash_bytes(rg_hash_bytes(RG_HASH_EMPTY, "a", 1), "b", 1));
}
