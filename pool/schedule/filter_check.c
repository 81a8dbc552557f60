/*
 * filter_check.c - filters that no GPU can satisfy together, whatever the pool.
 *
 * Two filters of the same key exclude each other if no value satisfies both. For ordered values it is enough to look
 * at pairs: if each pair leaves something, so do all lower and upper bounds and one equality together, but for
 * values taken out by != between bounds that leave nothing else, which is not looked for.
 */
#include "pool/schedule/filter_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The order of the values of two filters of one key that is not a text. */
static int values_order(const struct rg_pool_filter *a, const struct rg_pool_filter *b)
{
    switch (rg_pool_filter_kind_of(a->key)) {
    case RG_POOL_VERSION:
        return rg_pool_versions_compare(a->version, b->version);
    case RG_POOL_TEXT: /* ordered labels */
        return (a->decimal > b->decimal) - (a->decimal < b->decimal);
    default:
        return (a->number > b->number) - (a->number < b->number);
    }
}

static bool lower_bound(enum rg_pool_filter_operator op)
{
    return op == RG_POOL_MORE || op == RG_POOL_AT_LEAST;
}

static bool upper_bound(enum rg_pool_filter_operator op)
{
    return op == RG_POOL_LESS || op == RG_POOL_AT_MOST;
}

/* Whether nothing lies between two bounds of opposite direction. */
static bool bounds_exclude(const struct rg_pool_filter *lower, const struct rg_pool_filter *upper)
{
    const int order = values_order(lower, upper);
    if (order == 0)
        return lower->op == RG_POOL_MORE || upper->op == RG_POOL_LESS;
    /* Whole numbers: nothing lies above 3 and below 4. */
    const enum rg_pool_filter_kind kind = rg_pool_filter_kind_of(lower->key);
    if (order < 0 && (kind == RG_POOL_SIZE || kind == RG_POOL_INDEX))
        return lower->op == RG_POOL_MORE && upper->op == RG_POOL_LESS && upper->number - lower->number == 1;
    return order > 0;
}

static const char *comparable(const struct rg_pool_filter *filter)
{
    return filter->key == RG_POOL_DEVICE_ID ? rg_pool_uuid_bare(filter->value) : filter->value;
}

/* Of filters with = and != on texts: patterns may overlap in ways that are not looked for. */
static bool texts_exclude(const struct rg_pool_filter *a, const struct rg_pool_filter *b)
{
    const bool a_literal = !strchr(a->value, '*'), b_literal = !strchr(b->value, '*');
    if (a->op == RG_POOL_EQUAL && b->op == RG_POOL_EQUAL) {
        if (a_literal && b_literal)
            return strcasecmp(comparable(a), comparable(b)) != 0;
        if (a_literal)
            return !rg_pool_text_matches(comparable(b), comparable(a));
        return b_literal && !rg_pool_text_matches(comparable(a), comparable(b));
    }
    if (a->op == RG_POOL_EQUAL && b->op == RG_POOL_UNEQUAL)
        return (a_literal && rg_pool_text_matches(comparable(b), comparable(a))) ||
               strcasecmp(comparable(a), comparable(b)) == 0;
    return false;
}

/* An equality is asked of the other's value; two of != exclude each other for has-rdma alone. */
static bool one_way(const struct rg_pool_filter *a, const struct rg_pool_filter *b)
{
    const bool ordered_b = lower_bound(b->op) || upper_bound(b->op);
    if (rg_pool_filter_kind_of(a->key) == RG_POOL_TEXT) {
        if (lower_bound(a->op) && upper_bound(b->op))
            return bounds_exclude(a, b);
        double number;
        if (a->op == RG_POOL_EQUAL && ordered_b && !strchr(a->value, '*'))
            return !rg_pool_decimal_parse(a->value, &number) ||
                   !rg_pool_operator_holds(b->op, (number > b->decimal) - (number < b->decimal));
        return texts_exclude(a, b);
    }
    if (a->op == RG_POOL_EQUAL)
        return !rg_pool_operator_holds(b->op, values_order(a, b));
    if (a->op == RG_POOL_UNEQUAL && b->op == RG_POOL_UNEQUAL)
        return a->key == RG_POOL_SERVER_HAS_RDMA && a->number != b->number;
    return lower_bound(a->op) && upper_bound(b->op) && bounds_exclude(a, b);
}

/* What a filter leaves out, as "all but 40G", "80G and above". */
static void say_excluded(const struct rg_pool_filter *filter, char *out, size_t size)
{
    static const struct {
        const char *before, *behind;
    } words[] = {
        [RG_POOL_EQUAL] = {"all but ", ""},  [RG_POOL_UNEQUAL] = {"", ""},
        [RG_POOL_LESS] = {"", " and above"}, [RG_POOL_AT_MOST] = {"all above ", ""},
        [RG_POOL_MORE] = {"", " and below"}, [RG_POOL_AT_LEAST] = {"all below ", ""},
    };
    snprintf(out, size, "%s%s%s", words[filter->op].before, filter->value, words[filter->op].behind);
}

static enum rg_status contradict(const struct rg_pool_filter *one, const struct rg_pool_filter *other,
                                 char *why, size_t why_size)
{
    char excluded[2][RG_POOL_FILTER_TEXT + 16];
    say_excluded(one, excluded[0], sizeof excluded[0]);
    say_excluded(other, excluded[1], sizeof excluded[1]);
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "no GPU can satisfy both filters '%s', which excludes %s, and '%s', which excludes %s: "
                     "remove or change one of them",
                     one->text, excluded[0], other->text, excluded[1]);
}

/* No size or index is below 0. */
static bool alone_empty(const struct rg_pool_filter *filter)
{
    const enum rg_pool_filter_kind kind = rg_pool_filter_kind_of(filter->key);
    return (kind == RG_POOL_SIZE || kind == RG_POOL_INDEX) && filter->op == RG_POOL_LESS &&
           filter->number == 0;
}

enum rg_status rg_pool_filters_check(const struct rg_pool_filter *filters, uint32_t n, char *why,
                                     size_t why_size)
{
    for (uint32_t i = 0; i < n; i++) {
        if (alone_empty(&filters[i]))
            return RG_FAILED(RG_ERR_INVALID, why, why_size,
                             "no GPU can satisfy the filter '%s': nothing is below 0; remove or change it",
                             filters[i].text);
        for (uint32_t j = 0; j < i; j++) {
            if (filters[i].key != filters[j].key || strcmp(filters[i].label, filters[j].label) != 0)
                continue;
            if (one_way(&filters[i], &filters[j]) || one_way(&filters[j], &filters[i]))
                return contradict(&filters[j], &filters[i], why, why_size);
        }
    }
    return RG_OK;
}
