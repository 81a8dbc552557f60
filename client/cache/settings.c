/* settings.c - see settings.h. */
#include "client/cache/settings.h"

#include "client/core/optimisations.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool rg_setting_is(struct rg_settings *const *settings, unsigned which, unsigned long long value)
{
    if (!rg_optimise[RG_OPT_QUERY_CACHE] || which >= RG_SETTINGS)
        return false;
    RG_SCOPED_LOCK(&lock);
    const struct rg_settings *known = *settings;
    return known && (known->known & 1u << which) && known->value[which] == value;
}

void rg_setting_note(struct rg_settings **settings, unsigned which, unsigned long long value)
{
    if (which >= RG_SETTINGS)
        return;
    RG_SCOPED_LOCK(&lock);
    if (!*settings)
        *settings = calloc(1, sizeof **settings);
    if (*settings) {
        (*settings)->known |= 1u << which;
        (*settings)->value[which] = value;
    }
}

void rg_setting_forget(struct rg_settings *const *settings, unsigned which)
{
    RG_SCOPED_LOCK(&lock);
    if (*settings && which < RG_SETTINGS)
        (*settings)->known &= ~(1u << which);
}
