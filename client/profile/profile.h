/*
 * profile.h - `remote-gpu run --profile`: what each driver call costs, where the application waits, and when.
 *
 * Calls are counted by wrappers of the API functions (generated/client/profile.c), which the application only
 * reaches when REMOTE_GPU_PROFILE is set as the client core is loaded: rg_api_table then names them instead
 * of the functions. What happens inside a call (records, replies, waits) the client core tells to its probe
 * (client/core/probe.h). A call that the client core makes inside another one belongs to the outer one; what
 * threads do outside of any call (service threads, the end of a thread) is counted as RG_PROFILE_OWN.
 *
 * `remote-gpu run --record` uses the same probe, with every record and every wait kept (trace_writer.h); both
 * at once is not possible.
 *
 * Any thread, no errors, nothing blocks but the first call of a thread and every RG_PROFILE_CHUNK events.
 */
#ifndef RG_CLIENT_PROFILE_PROFILE_H
#define RG_CLIENT_PROFILE_PROFILE_H

#include "generated/proto/api_table.h"

/* The row of what the client does outside of the application's calls. */
#define RG_PROFILE_OWN RG_API_COUNT

/** Names and classes of the API functions by enum rg_api, and their wrappers; generated. */
extern const char *const rg_profile_names[RG_API_COUNT];
extern const char *const rg_profile_classes[RG_API_COUNT];
extern void *const rg_profile_api[RG_API_COUNT];

/** Begins to profile if REMOTE_GPU_PROFILE asks for it; once a process, whoever comes first. */
void rg_profile_start(void);

/**
 * Around a call of the application, by its wrapper; they may nest. `outer` is what rg_profile_enter returned.
 */
int rg_profile_enter(int api);
void rg_profile_leave(int outer);

#endif
