/* option.h - options of filters: "oneway=2ms,bandwidth=10Gb". */
#ifndef RG_TRANSPORT_FILTERS_OPTION_H
#define RG_TRANSPORT_FILTERS_OPTION_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

/** One "key=value" of a list with commas. */
struct rg_filter_option {
    char key[32];
    char value[64];
};
/**
 * Takes the next option off `*cursor`. False at the end of the list; `*status` is then RG_OK, or
 * RG_ERR_INVALID with the reason in `why`.
 */
bool rg_filter_option_next(const char **cursor, struct rg_filter_option *out, enum rg_status *status,
                           char *why, size_t why_size);

#endif
