/*
 * settings.h - what this client has set of an object, so that what is set again need not be sent. Any thread; one lock, a leaf.
 */
#ifndef RG_CLIENT_CACHE_SETTINGS_H
#define RG_CLIENT_CACHE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define RG_SETTINGS 32u /* of one object, by number */

/** What this client has set of an object, with success. */
struct rg_settings {
    uint32_t known; /* a bit for each */
    unsigned long long value[RG_SETTINGS];
};

/**
 * Whether a setting has this value already, so that setting it again changes nothing. `*settings` may be
 * NULL.
 */
bool rg_setting_is(struct rg_settings *const *settings, unsigned which, unsigned long long value);
/**
 * It has been set; makes `*settings` where there are none yet. They are never freed: others may be reading
 * them.
 */
void rg_setting_note(struct rg_settings **settings, unsigned which, unsigned long long value);
/** It may have been set otherwise. */
void rg_setting_forget(struct rg_settings *const *settings, unsigned which);

#endif
