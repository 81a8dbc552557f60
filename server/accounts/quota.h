/*
 * quota.h - quotas: what a user, a group or a project may have at once and in a day or month; reading them from the rules, and
 * deciding by them.
 *
 *     {"sessions": 4, "gpus": 2, "memory": "40G", "gpu-hours-day": 8, "gpu-hours-month": 100.5}
 *
 * Pure functions. The texts of refusals end with a short code in brackets, which stays the same whatever becomes of the words:
 * [quota-sessions], [quota-gpus], [quota-memory], [quota-gpu-hours-day], [quota-gpu-hours-month], [quota-unknown].
 */
#ifndef RG_SERVER_ACCOUNTS_QUOTA_H
#define RG_SERVER_ACCOUNTS_QUOTA_H

#include "common/base/status.h"
#include "proto/accounts/usage.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_QUOTA_HOUR_NS 3600000000000ull

/** RG_QUOTA_UNLIMITED: nothing was said. */
struct rg_quota {
    uint64_t allowed[RG_QUOTAS];
};

/** No limits. */
void rg_quota_init(struct rg_quota *quota);
/** Reads one; what it does not say stays as it was. RG_ERR_INVALID with a phrase that names the key. */
RG_MUST_CHECK enum rg_status rg_quota_parse(const json_t *json, struct rg_quota *quota, char *why,
                                            size_t why_size);
bool rg_quota_is_limited(const struct rg_quota *quota);
/** Whether it limits GPU hours, for which there must be accounts. */
bool rg_quota_limits_hours(const struct rg_quota *quota);

/** What is decided on. */
struct rg_quota_case {
    enum rg_quota_scope scope;
    const char *name;
    const struct rg_quota *quota;
    uint64_t used[RG_QUOTAS];
    bool of_pool;                 /* what is used is so in all of the pool, by leases */
    bool used_known;              /* GPU hours from before the server started are in it */
    int64_t day_ends, month_ends; /* seconds since 1970 */
};

/** Whether a session that needs `wanted` (of sessions, GPUs, memory) may begin. RG_ERR_REFUSED with the sentence for the client. */
RG_MUST_CHECK enum rg_status rg_quota_check(const struct rg_quota_case *decided,
                                            const uint64_t wanted[RG_QUOTAS], char *why, size_t why_size);
/** Whether GPU hours are used up, so that running sessions are to be told; `why` is the sentence. */
bool rg_quota_is_exhausted(const struct rg_quota_case *decided, char *why, size_t why_size);

/** What becomes of running sessions whose GPU hours are used up. */
struct rg_quota_exhausted {
    bool end;          /* they are ended; else only warned */
    uint64_t grace_ns; /* after they were warned */
};
/** {"action": "warn"|"end", "grace": "10min"} */
RG_MUST_CHECK enum rg_status rg_quota_parse_exhausted(const json_t *json, struct rg_quota_exhausted *out,
                                                      char *why, size_t why_size);

#endif
