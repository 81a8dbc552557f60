/* outcome.c - an outcome's arrays, whose sizes are powers of two. */
#include "pool/schedule/outcome.h"

#include <stdlib.h>
#include <string.h>

/* Room for one more in an array of n; false: no memory. */
static bool grow(void *array, uint32_t n, size_t size)
{
    if (n & (n - 1)) /* not full: the room is the next power of two */
        return true;
    void **place = array;
    void *grown = reallocarray(*place, n ? 2 * (size_t)n : 1, size);
    if (!grown)
        return false;
    *place = grown;
    return true;
}

enum rg_status rg_pool_outcome_grant(struct rg_pool_outcome *outcome, const struct rg_pool_grant *grant)
{
    if (!grow(&outcome->grants, outcome->n_grants, sizeof *grant))
        return RG_ERR_NO_MEMORY;
    outcome->grants[outcome->n_grants++] = *grant;
    return RG_OK;
}

enum rg_status rg_pool_outcome_part(struct rg_pool_outcome *outcome, const struct rg_pool_part *part)
{
    if (!grow(&outcome->parts, outcome->n_parts, sizeof *part))
        return RG_ERR_NO_MEMORY;
    outcome->parts[outcome->n_parts++] = *part;
    return RG_OK;
}

enum rg_status rg_pool_outcome_waiting(struct rg_pool_outcome *outcome, const struct rg_pool_waiting *waiting)
{
    if (!grow(&outcome->waiting, outcome->n_waiting, sizeof *waiting))
        return RG_ERR_NO_MEMORY;
    outcome->waiting[outcome->n_waiting++] = *waiting;
    return RG_OK;
}

enum rg_status rg_pool_outcome_propose(struct rg_pool_outcome *outcome, uint32_t request,
                                       const uint32_t *leases, uint32_t n)
{
    const uint32_t first = outcome->n_suspend;
    for (uint32_t i = 0; i < n; i++) {
        if (!grow(&outcome->suspend, outcome->n_suspend, sizeof *outcome->suspend))
            return RG_ERR_NO_MEMORY;
        outcome->suspend[outcome->n_suspend++] = leases[i];
    }
    if (!grow(&outcome->proposals, outcome->n_proposals, sizeof *outcome->proposals))
        return RG_ERR_NO_MEMORY;
    outcome->proposals[outcome->n_proposals++] =
        (struct rg_pool_proposal){.request = request, .first = first, .n = n};
    return RG_OK;
}

void rg_pool_outcome_clear(struct rg_pool_outcome *outcome)
{
    free(outcome->grants);
    free(outcome->parts);
    free(outcome->waiting);
    free(outcome->proposals);
    free(outcome->suspend);
    memset(outcome, 0, sizeof *outcome);
}
