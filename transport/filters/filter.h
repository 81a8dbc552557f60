/*
 * filter.h - a chain of filters as written by a person:
 * "delay:oneway=2ms,bandwidth=10Gb;fault:send_close_after=3".
 */
#ifndef RG_TRANSPORT_FILTERS_FILTER_H
#define RG_TRANSPORT_FILTERS_FILTER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { RG_FILTERS_MAX = 4, RG_FILTER_OPTIONS_MAX = 256 };

struct rg_conn;
struct rg_filter;

/** Filters with their options, outermost first. */
struct rg_filter_chain {
    int count;
    struct {
        const struct rg_filter *filter;
        char options[RG_FILTER_OPTIONS_MAX];
    } links[RG_FILTERS_MAX];
};

/** Parses and checks `text`; NULL or "" is an empty chain. RG_ERR_INVALID with the reason in `why`. */
RG_MUST_CHECK enum rg_status rg_filter_chain_parse(const char *text, struct rg_filter_chain *out, char *why,
                                                   size_t why_size);
/** Wraps *conn into the chain, replacing it. On failure the connection is destroyed and *conn is NULL. */
RG_MUST_CHECK enum rg_status rg_filter_chain_apply(const struct rg_filter_chain *chain,
                                                   struct rg_conn **conn);

/** One "key=value" of a list with commas. */
struct rg_option {
    char key[32];
    char value[64];
};
/**
 * Takes the next option off `*cursor`. False at the end of the list; `*status` is then RG_OK, or
 * RG_ERR_INVALID with the reason in `why`.
 */
bool rg_option_next(const char **cursor, struct rg_option *out, enum rg_status *status, char *why,
                    size_t why_size);

#endif
