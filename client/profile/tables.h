/* tables.h - the figures of the profile: as JSON behind the timeline, and as the summary. The writer's thread
 * alone. */
#ifndef RG_CLIENT_PROFILE_TABLES_H
#define RG_CLIENT_PROFILE_TABLES_H

#include "client/profile/json_text.h"

/**
 * All behind the events: the end of their list, calls, sites. `last`: with totals of the wire and lines of
 * code.
 */
void rg_profile_end_text(struct rg_json_text *text, uint64_t events, bool last);
void rg_profile_summary_text(struct rg_json_text *text, const char *path);

#endif
