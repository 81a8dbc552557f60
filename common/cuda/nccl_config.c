/* nccl_config.c - see nccl_config.h. */
#include "common/cuda/nccl_config.h"

#include <stdio.h>
#include <string.h>

#define VERSION(major, minor) ((major)*10000 + (minor)*100) /* as NCCL_VERSION_CODE, from 2.9 on */

/* A member that is a number, which those versions have that come from `since` on. */
struct member {
    const char *name;
    size_t offset;
    unsigned since;
    int least, most;
};

#define MEMBER(name, since, least, most)                                                                     \
    {                                                                                                        \
#name, offsetof(ncclConfig_t, name), since, least, most                                              \
    }

enum {
    BLOCKING,
    CLUSTER,
    MIN_CTAS,
    MAX_CTAS,
    SPLIT_SHARE,
    COLLNET,
    POLICY,
    SHRINK_SHARE,
    NVLS_CTAS,
    MEMBERS
};

static const struct member members[MEMBERS] = {
    [BLOCKING] = MEMBER(blocking, VERSION(2, 14), 0, 1),
    [CLUSTER] = MEMBER(cgaClusterSize, VERSION(2, 17), 0, INT_MAX),
    [MIN_CTAS] = MEMBER(minCTAs, VERSION(2, 17), 1, INT_MAX),
    [MAX_CTAS] = MEMBER(maxCTAs, VERSION(2, 17), 1, INT_MAX),
    [SPLIT_SHARE] = MEMBER(splitShare, VERSION(2, 18), 0, 1),
    [COLLNET] = MEMBER(collnetEnable, VERSION(2, 27), 0, 1),
    [POLICY] = MEMBER(CTAPolicy, VERSION(2, 27), 0, 1),
    [SHRINK_SHARE] = MEMBER(shrinkShare, VERSION(2, 27), 0, 1),
    [NVLS_CTAS] = MEMBER(nvlsCTAs, VERSION(2, 27), 1, INT_MAX),
};

/* What it says of a member; NCCL_CONFIG_UNDEF_INT: nothing. */
static int value_of(const ncclConfig_t *config, const struct member *member)
{
    int value = NCCL_CONFIG_UNDEF_INT;
    if (config->version >= member->since && config->size >= member->offset + sizeof value)
        memcpy(&value, (const char *)config + member->offset, sizeof value);
    return value;
}

static bool is_right(const struct member *member, int value, char why[RG_NCCL_CONFIG_WHY])
{
    const bool right = value == NCCL_CONFIG_UNDEF_INT || (value >= member->least && value <= member->most);
    if (!right && member->most == INT_MAX)
        snprintf(why, RG_NCCL_CONFIG_WHY, "%s = %d in the configuration: it is %d or more", member->name,
                 value, member->least);
    else if (!right)
        snprintf(why, RG_NCCL_CONFIG_WHY, "%s = %d in the configuration: it is %d or %d", member->name, value,
                 member->least, member->most);
    return right;
}

bool rg_nccl_config_read(const ncclConfig_t *config, bool *blocking, char why[RG_NCCL_CONFIG_WHY])
{
    if (!config)
        return true;
    if (config->magic != NCCL_CONFIG_MAGIC) {
        snprintf(why, RG_NCCL_CONFIG_WHY,
                 "the configuration was not initialised with NCCL_CONFIG_INITIALIZER");
        return false;
    }
    for (int i = 0; i < MEMBERS; i++)
        if (!is_right(&members[i], value_of(config, &members[i]), why))
            return false;
    const int least = value_of(config, &members[MIN_CTAS]), most = value_of(config, &members[MAX_CTAS]),
              blocks = value_of(config, &members[BLOCKING]);
    if (most != NCCL_CONFIG_UNDEF_INT && least > most) {
        snprintf(why, RG_NCCL_CONFIG_WHY, "minCTAs = %d in the configuration is more than maxCTAs = %d",
                 least, most);
        return false;
    }
    if (blocks != NCCL_CONFIG_UNDEF_INT)
        *blocking = blocks;
    return true;
}
