/* query_cache.c - which answers are found again, and what makes them forgotten. */
#include "client/cache/query_cache.h"
#include "client/core/call.h"
#include "client/core/optimisations.h"
#include "client/core/thread.h"

#include <criterion/criterion.h>

/* A question that needs a context and one that does not. */
#define IN_CONTEXT RG_OP_cuCtxGetLimit
#define ANYWHERE   RG_OP_cuDeviceGetP2PAttribute

static uint64_t context;
static CUresult allowed;
bool rg_optimise[RG_OPT_COUNT];

uint64_t rg_context_current_owner(void)
{
    return context;
}

CUresult rg_call_allowed(unsigned traits)
{
    (void)traits;
    return allowed;
}

static void begin(void)
{
    context = 5;
    allowed = CUDA_SUCCESS;
    rg_optimise[RG_OPT_QUERY_CACHE] = true;
}

TestSuite(query_cache, .init = begin);

static struct rg_cached_query query;

static bool find(enum rg_op op, enum rg_query_cache_group group, int parameter)
{
    rg_query_cache_begin(&query, op, group);
    rg_query_cache_by(&query, &parameter, sizeof parameter);
    return rg_query_cache_find(&query);
}

/* Asks, and has the answer kept. */
static void answer(enum rg_op op, enum rg_query_cache_group group, int parameter, int value)
{
    cr_assert(!find(op, group, parameter));
    rg_query_cache_out(&query, &value, sizeof value);
    rg_query_cache_add(&query);
}

static int value(void)
{
    int out = 0;
    rg_query_cache_get(&query, &out, sizeof out);
    return out;
}

Test(query_cache, finds_by_operation_and_parameters)
{
    answer(ANYWHERE, RG_QUERY_CACHE_EVER, 1, 10);
    answer(ANYWHERE, RG_QUERY_CACHE_EVER, 2, 20);
    cr_assert(find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
    cr_assert_eq(value(), 10);
    cr_assert(find(ANYWHERE, RG_QUERY_CACHE_EVER, 2));
    cr_assert_eq(value(), 20);
    cr_assert(!find(ANYWHERE, RG_QUERY_CACHE_EVER, 3));
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_EVER, 1));
}

Test(query_cache, is_of_the_current_context_where_that_matters)
{
    cr_assert(rg_op_traits[IN_CONTEXT] & RG_TRAIT_CONTEXT);
    cr_assert(!(rg_op_traits[ANYWHERE] & RG_TRAIT_CONTEXT));
    answer(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1, 10);
    answer(ANYWHERE, RG_QUERY_CACHE_EVER, 1, 30);
    context = 6;
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
    cr_assert(find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
    context = 5;
    cr_assert(find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
}

Test(query_cache, forgets_what_a_call_may_have_changed)
{
    answer(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1, 10);
    answer(IN_CONTEXT, RG_QUERY_CACHE_CACHE, 2, 20);
    rg_query_cache_change(RG_QUERY_CACHE_LIMIT);
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
    cr_assert(find(IN_CONTEXT, RG_QUERY_CACHE_CACHE, 2));
    rg_query_cache_context_ended();
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_CACHE, 2));
}

/* It was asked before the change and is answered after it: nobody knows whether it still holds. */
Test(query_cache, does_not_believe_an_answer_that_a_change_overtook)
{
    const int late = 10;
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
    rg_query_cache_out(&query, &late, sizeof late);
    rg_query_cache_change(RG_QUERY_CACHE_LIMIT);
    rg_query_cache_add(&query);
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
}

Test(query_cache, answers_no_call_that_is_not_allowed)
{
    answer(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1, 10);
    allowed = CUDA_ERROR_INVALID_CONTEXT;
    cr_assert(!find(IN_CONTEXT, RG_QUERY_CACHE_LIMIT, 1));
}

Test(query_cache, keeps_whole_answers_alone)
{
    cr_assert(!find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
    rg_query_cache_out(&query, NULL, sizeof(int));
    rg_query_cache_add(&query);
    cr_assert(!find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
    rg_query_cache_not(&query);
    rg_query_cache_out(&query, &(int){1}, sizeof(int));
    rg_query_cache_add(&query);
    cr_assert(!find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
}

Test(query_cache, keeps_nothing_that_is_too_long)
{
    static unsigned char key[RG_QUERY_CACHE_KEY];
    for (int i = 0; i < 2; i++) {
        rg_query_cache_begin(&query, ANYWHERE, RG_QUERY_CACHE_EVER);
        rg_query_cache_by(&query, key, sizeof key);
        cr_assert(!rg_query_cache_find(&query));
        rg_query_cache_out(&query, &i, sizeof i);
        rg_query_cache_add(&query);
    }
}

Test(query_cache, is_off_with_its_optimisation)
{
    answer(ANYWHERE, RG_QUERY_CACHE_EVER, 1, 10);
    rg_optimise[RG_OPT_QUERY_CACHE] = false;
    cr_assert(!find(ANYWHERE, RG_QUERY_CACHE_EVER, 1));
}
