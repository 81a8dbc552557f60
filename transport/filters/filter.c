/* filter.c - chains of filters: taken apart, checked before a connection exists, wrapped around it when it
 * does. */
#include "transport/filters/filter.h"

#include "transport/operations.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct rg_filter *const filters[] = {&rg_filter_delay, &rg_filter_fault};
enum { N_FILTERS = sizeof filters / sizeof filters[0] };

static void complete_filters(void)
{
    for (int i = 0; i < N_FILTERS; i++)
        rg_transport_complete(filters[i]->ops, true);
}

bool rg_option_next(const char **cursor, struct rg_option *out, enum rg_status *status, char *why,
                    size_t why_size)
{
    *status = RG_OK;
    if (**cursor == '\0')
        return false;
    size_t length = strcspn(*cursor, ",");
    size_t key_length = strcspn(*cursor, "=,");
    size_t value_length = key_length < length ? length - key_length - 1 : 0;
    if (key_length == 0 || value_length == 0 || key_length >= sizeof out->key ||
        value_length >= sizeof out->value) {
        rg_explain(why, why_size, "'%.*s' is not an option (like key=value)", (int)length, *cursor);
        *status = RG_ERR_INVALID;
        return false;
    }
    memcpy(out->key, *cursor, key_length);
    out->key[key_length] = '\0';
    memcpy(out->value, *cursor + key_length + 1, value_length);
    out->value[value_length] = '\0';
    *cursor += length;
    if (**cursor == ',')
        (*cursor)++;
    return true;
}

static const struct rg_filter *find_filter(const char *name, size_t length)
{
    for (int i = 0; i < N_FILTERS; i++)
        if (strlen(filters[i]->name) == length && memcmp(filters[i]->name, name, length) == 0)
            return filters[i];
    return NULL;
}

enum rg_status rg_filter_chain_parse(const char *text, struct rg_filter_chain *out, char *why,
                                     size_t why_size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, complete_filters);

    struct rg_filter_chain chain = {0};
    for (const char *cur = text ? text : ""; *cur;) {
        size_t length = strcspn(cur, ";");
        size_t name_length = strcspn(cur, ":;");
        const struct rg_filter *filter = find_filter(cur, name_length);
        if (!filter) {
            rg_explain(why, why_size, "there is no filter '%.*s'", (int)name_length, cur);
            return RG_ERR_INVALID;
        }
        if (chain.count == RG_FILTERS_MAX) {
            rg_explain(why, why_size, "more than %d filters", RG_FILTERS_MAX);
            return RG_ERR_INVALID;
        }
        char *options = chain.links[chain.count].options;
        size_t options_length = name_length < length ? length - name_length - 1 : 0;
        if (options_length >= RG_FILTER_OPTIONS_MAX) {
            rg_explain(why, why_size, "the options of filter %s are too long", filter->name);
            return RG_ERR_INVALID;
        }
        if (options_length > 0)
            memcpy(options, cur + name_length + 1, options_length);
        options[options_length] = '\0';
        char reason[160];
        if (filter->check(options, reason, sizeof reason) != RG_OK) {
            rg_explain(why, why_size, "filter %s: %s", filter->name, reason);
            return RG_ERR_INVALID;
        }
        chain.links[chain.count++].filter = filter;
        cur += length;
        if (*cur == ';')
            cur++;
    }
    *out = chain;
    return RG_OK;
}

enum rg_status rg_filter_chain_apply(const struct rg_filter_chain *chain, struct rg_conn **conn)
{
    for (int i = chain->count - 1; i >= 0; i--) {
        const struct rg_filter *filter = chain->links[i].filter;
        struct rg_conn *next = *conn, *wrapped = NULL;
        enum rg_status status = filter->wrap(next, chain->links[i].options, &wrapped);
        if (status != RG_OK) {
            rg_error("filter %s: %s", filter->name, rg_status_string(status));
            rg_conn_destroy(next);
            *conn = NULL;
            return status;
        }
        wrapped->ops = filter->ops;
        snprintf(wrapped->transport, sizeof wrapped->transport, "%.15s+%.31s", filter->name, next->transport);
        memcpy(wrapped->peer, next->peer, sizeof wrapped->peer);
        *conn = wrapped;
    }
    return RG_OK;
}
