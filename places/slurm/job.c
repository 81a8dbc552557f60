/* job.c - see job.h. */
#include "places/slurm/job.h"

#include "common/base/hash_table.h"
#include "common/base/limits.h"
#include "common/base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RENEWED_BELOW                                                                                        \
    (RG_POOL_KEPT_MAX_S / 2) /* of a job without an end, the lease is renewed from here on */
#define SLACK_S 60           /* by which a lease may end sooner than it should */

void rg_slurm_lease_id(const char *cluster, uint32_t job, char id[RG_SLURM_ID])
{
    const uint64_t hash = rg_hash_bytes(RG_HASH_EMPTY, cluster, strlen(cluster));
    const uint32_t folded = (uint32_t)(hash >> 32) ^ (uint32_t)hash;
    snprintf(id, RG_SLURM_ID, "%08" PRIx32 "%08" PRIx32, folded ? folded : 1, job);
}

bool rg_slurm_lease_job(const char *cluster, const char *id, uint32_t *job)
{
    char ours[RG_SLURM_ID];
    uint32_t number = 0;
    if (strlen(id) != sizeof ours - 1 || sscanf(id + 8, "%8" SCNx32, &number) != 1)
        return false;
    rg_slurm_lease_id(cluster, number, ours);
    *job = number;
    return strcmp(id, ours) == 0;
}

bool rg_slurm_fill(const char *pattern, const char *user, const char *account, char *out, size_t size,
                   char *why, size_t why_size)
{
    size_t used = 0;
    for (const char *at = pattern; *at; at++) {
        char letter[2] = {*at, 0};
        const char *piece = letter;
        if (*at == '%') {
            at++;
            piece = *at == 'u' ? user : *at == 'a' ? account : *at == '%' ? "%" : NULL;
        }
        if (!piece) {
            rg_explain(why, why_size, "'%s': behind %% comes u (user), a (account) or another %%", pattern);
            return false;
        }
        if (strlen(piece) >= size - used) {
            rg_explain(why, why_size, "what '%s' gives has more than %zu bytes", pattern, size - 1);
            return false;
        }
        used += (size_t)snprintf(out + used, size - used, "%s", piece);
    }
    out[used] = '\0';
    return true;
}

uint64_t rg_slurm_seconds(int64_t now, int64_t end, uint64_t grace)
{
    if (end == RG_SLURM_NO_END || end - now > RG_POOL_KEPT_MAX_S)
        return RG_POOL_KEPT_MAX_S;
    const uint64_t seconds = (end > now ? (uint64_t)(end - now) : 0) + grace;
    return seconds == 0 ? 1 : seconds < RG_POOL_KEPT_MAX_S ? seconds : RG_POOL_KEPT_MAX_S;
}

bool rg_slurm_is_short(int64_t expires, int64_t now, int64_t end, uint64_t grace)
{
    const uint64_t wanted = rg_slurm_seconds(now, end, grace);
    const int64_t least = wanted == RG_POOL_KEPT_MAX_S ? RENEWED_BELOW : (int64_t)wanted - SLACK_S;
    return expires - now < least;
}
