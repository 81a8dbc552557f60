/*
 * filter_chain.c - chains of filters: taken apart, checked before a connection exists, wrapped around it when
 * it does.
 */
#include "transport/connect/connect.h"
#include "transport/connect/registry.h"

#include <stdio.h>
#include <string.h>

enum rg_status rg_filter_chain_parse(const char *text, struct rg_filter_chain *out, char *why,
                                     size_t why_size)
{
    struct rg_filter_chain chain = {0};
    for (const char *cur = text ? text : ""; *cur;) {
        size_t length = strcspn(cur, ";");
        size_t name_length = strcspn(cur, ":;");
        const struct rg_filter *filter = rg_filter_find(cur, name_length);
        if (!filter)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "there is no filter '%.*s'", (int)name_length,
                             cur);
        if (chain.count == RG_FILTERS_MAX)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "more than %d filters", RG_FILTERS_MAX);
        char *options = chain.links[chain.count].options;
        size_t options_length = name_length < length ? length - name_length - 1 : 0;
        if (options_length >= RG_FILTER_OPTIONS_MAX)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "the options of filter %s are too long",
                             filter->name);
        if (options_length > 0)
            memcpy(options, cur + name_length + 1, options_length);
        options[options_length] = '\0';
        char reason[160];
        if (filter->check(options, reason, sizeof reason) != RG_OK)
            return RG_FAILED(RG_ERR_INVALID, why, why_size, "filter %s: %s", filter->name, reason);
        chain.links[chain.count++].filter = filter;
        cur += length;
        if (*cur == ';')
            cur++;
    }
    *out = chain;
    return RG_OK;
}

enum rg_status rg_transport_check_filters(const char *text, char *why, size_t why_size)
{
    struct rg_filter_chain chain;
    return rg_filter_chain_parse(text, &chain, why, why_size);
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
