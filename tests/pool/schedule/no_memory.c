/* no_memory.c - each allocation of a decision fails in turn: it says so, and has decided nothing. */
#include "tests/check.h"
#include "tests/pool/schedule/pool.h"

#include <stdlib.h>
#include <string.h>

static unsigned left = UINT32_MAX; /* allocations until one fails */

static bool fails(void)
{
    return left != UINT32_MAX && left-- == 0;
}

/* The linker puts these in the place of calloc and reallocarray (--wrap). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return fails() ? NULL : __real_reallocarray(old, n, size);
}

int main(void)
{
    struct pool *pool = pool_new();
    pool->policy.preempt = true;
    for (uint32_t s = 0; s < 8; s++)
        pool_server(pool, 8, 80 * GIB);
    for (uint32_t d = 0; d < 32; d++)
        pool_lease(pool, d, 1, 0, RG_POOL_UNKNOWN)->suspendable = true;
    for (uint32_t r = 0; r < 256; r++) {
        struct rg_pool_request *request = pool_ask(pool, "u", 1 + r % 8, r % 3 * GIB);
        request->several_servers = r % 2;
        request->priority = 1;
    }
    unsigned n = 0;
    for (;; n++) {
        char why[128] = "";
        left = n;
        const enum rg_status status =
            rg_pool_schedule(&pool->snapshot, &pool->policy, NOW, &pool->outcome, why, sizeof why);
        const bool none_failed = left != UINT32_MAX;
        left = UINT32_MAX;
        if (status == RG_OK) {
            CHECK(none_failed);
            break;
        }
        CHECK(status == RG_ERR_NO_MEMORY);
        CHECK(strstr(why, "no memory"));
        CHECK(!pool->outcome.grants && !pool->outcome.waiting && !pool->outcome.parts &&
              !pool->outcome.n_grants);
    }
    CHECK(n > 10); /* it does allocate */
    CHECK(pool->outcome.n_grants + pool->outcome.n_waiting == 256 && pool->outcome.n_proposals);
    pool_end(pool);
    return 0;
}
