/* filter_internal.h - what parsing, comparing and checking of filters share. */
#ifndef RG_POOL_SCHEDULE_FILTER_INTERNAL_H
#define RG_POOL_SCHEDULE_FILTER_INTERNAL_H

#include "pool/filter.h"

enum rg_pool_filter_kind { RG_POOL_TEXT, RG_POOL_FLAG, RG_POOL_VERSION, RG_POOL_INDEX, RG_POOL_SIZE };

/** What values the key has; labels are texts. */
enum rg_pool_filter_kind rg_pool_filter_kind_of(enum rg_pool_filter_key key);
/** "12.8", "570.86.15": up to RG_POOL_VERSION_PARTS numbers between points; false if it is none. */
bool rg_pool_version_parse(const char *text, uint32_t version[RG_POOL_VERSION_PARTS]);
/** A decimal number that is the whole of `text`. */
bool rg_pool_decimal_parse(const char *text, double *out);
/** Whether `text` is what `pattern` describes, in which * stands for any characters; ASCII case does not matter. */
bool rg_pool_text_matches(const char *pattern, const char *text);
/** The device id without its "GPU-" or "MIG-". */
const char *rg_pool_uuid_bare(const char *uuid);
/** Whether it is an instance of a GPU that MIG has divided: a session has one such, and nothing beside it on that server. */
bool rg_pool_is_instance(const struct rg_pool_device *device);
/** Negative, 0, positive as the first is below, at or above the second. */
int rg_pool_versions_compare(const uint32_t *a, const uint32_t *b);
/** Whether an order (of a value against the filter's) satisfies the operator. */
bool rg_pool_operator_holds(enum rg_pool_filter_operator op, int order);

#endif
