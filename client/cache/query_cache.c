/* query_cache.c - a hash table of answers. See query_cache.h. */
#include "client/cache/query_cache.h"

#include "client/core/call.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"
#include "common/base/hash_table.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8192u /* answers; when there are more all are forgotten */

struct answer {
    struct rg_hash_link link;
    unsigned epoch;
    uint16_t key_size, size;
    unsigned char bytes[]; /* the key, then the answer */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table answers;
static atomic_uint epochs[RG_QUERY_CACHE_GROUPS];

void rg_query_cache_begin(struct rg_cached_query *query, enum rg_op op, enum rg_query_cache_group group)
{
    const uint64_t context = rg_op_traits[op] & RG_TRAIT_CONTEXT ? rg_context_current_owner() : 0;
    query->group = group;
    query->needs = rg_op_traits[op] & RG_TRAIT_CONTEXT;
    query->epoch = atomic_load(&epochs[group]);
    query->fits = rg_optimise[RG_OPT_QUERY_CACHE];
    query->key_size = query->answer_size = query->read = 0;
    rg_query_cache_by(query, &op, sizeof op);
    rg_query_cache_by(query, &context, sizeof context);
}

void rg_query_cache_by(struct rg_cached_query *query, const void *part, size_t size)
{
    if (!query->fits || size > sizeof query->key - query->key_size - 1) {
        query->fits = false;
        return;
    }
    query->key[query->key_size++] = part != NULL;
    if (part && size) {
        memcpy(query->key + query->key_size, part, size);
        query->key_size += size;
    }
}

static uint64_t hash_of(const struct rg_cached_query *query)
{
    return rg_hash_bytes(RG_HASH_EMPTY, query->key, query->key_size);
}

/* The lock is held. */
static struct answer *find(const struct rg_cached_query *query, uint64_t hash)
{
    struct rg_hash_link *at = rg_hash_table_first(&answers, hash);
    for (; at; at = rg_hash_table_next(at)) {
        struct answer *answer = (struct answer *)at;
        if (answer->key_size == query->key_size && memcmp(answer->bytes, query->key, query->key_size) == 0)
            return answer;
    }
    return NULL;
}

bool rg_query_cache_find(struct rg_cached_query *query)
{
    if (!query->fits || rg_call_allowed(query->needs) != CUDA_SUCCESS)
        return false;
    const uint64_t hash = hash_of(query);
    RG_SCOPED_LOCK(&lock);
    const struct answer *answer = find(query, hash);
    const bool known = answer && answer->epoch == query->epoch;
    if (known) {
        memcpy(query->answer, answer->bytes + answer->key_size, answer->size);
        query->answer_size = answer->size;
    }
    return known;
}

void rg_query_cache_get(struct rg_cached_query *query, void *to, size_t size)
{
    if (to)
        memcpy(to, query->answer + query->read, size);
    query->read += size;
}

void rg_query_cache_out(struct rg_cached_query *query, const void *output, size_t size)
{
    if (!query->fits || !output || size > sizeof query->answer - query->answer_size) {
        query->fits = false;
        return;
    }
    memcpy(query->answer + query->answer_size, output, size);
    query->answer_size += size;
}

static void drop(struct rg_hash_link *answer)
{
    free(answer);
}

void rg_query_cache_add(const struct rg_cached_query *query)
{
    if (!query->fits)
        return;
    struct answer *answer = malloc(sizeof *answer + query->key_size + query->answer_size);
    if (!answer)
        return; /* it will be asked for again */
    const uint64_t hash = hash_of(query);
    answer->epoch = query->epoch;
    answer->key_size = (uint16_t)query->key_size;
    answer->size = (uint16_t)query->answer_size;
    memcpy(answer->bytes, query->key, query->key_size);
    memcpy(answer->bytes + query->key_size, query->answer, query->answer_size);
    pthread_mutex_lock(&lock);
    if (answers.n == MOST)
        rg_hash_table_clear(&answers, drop);
    struct answer *old = find(query, hash);
    if (old)
        rg_hash_table_remove(&answers, &old->link);
    rg_hash_table_add(&answers, &answer->link, hash);
    pthread_mutex_unlock(&lock);
    free(old);
}

void rg_query_cache_change(enum rg_query_cache_group group)
{
    atomic_fetch_add(&epochs[group], 1);
}

void rg_query_cache_context_ended(void)
{
    for (unsigned i = 0; i < RG_QUERY_CACHE_GROUPS; i++)
        rg_query_cache_change((enum rg_query_cache_group)i);
}
