/*
 * profile.h - `remote-gpu run --profile`: what each driver call costs, where the application waits, and when.
 *
 * Calls are counted by wrappers of the API functions (generated/client/profile.c), which the application only reaches
 * when REMOTE_GPU_PROFILE is set as the client core is loaded: rg_api_table then names them instead of the functions. What
 * happens inside a call (records, replies, waits) is told by the hooks below, which cost one predictable branch
 * otherwise. A call that the client core makes inside another one belongs to the outer one; what threads do outside of
 * any call (lane ends, service threads) is counted as RG_PROFILE_OWN.
 *
 * `remote-gpu run --record` uses the same hooks, with every record and every wait kept (record.h); both at once is not
 * possible.
 *
 * All hooks: any thread, no errors, nothing blocks but the first call of a thread and every RG_PROFILE_CHUNK events.
 */
#ifndef RG_CLIENT_PROFILE_PROFILE_H
#define RG_CLIENT_PROFILE_PROFILE_H

#include "common/base/clock.h"
#include "generated/proto/api_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The row of what the client does outside of the application's calls. */
#define RG_PROFILE_OWN RG_API_COUNT

/** Read by every hook; set once, before the first call, and cleared in a forked child. A trace is recorded: both. */
extern bool rg_profiling, rg_recording;

/** Names and classes of the API functions by enum rg_api, and their wrappers; generated. */
extern const char *const rg_profile_names[RG_API_COUNT];
extern const char *const rg_profile_classes[RG_API_COUNT];
extern void *const rg_profile_api[RG_API_COUNT];

/** Begins to profile if REMOTE_GPU_PROFILE asks for it; once a process, whoever comes first. */
void rg_profile_start(void);

/** Around a call of the application, by its wrapper; they may nest. `outer` is what rg_profile_enter returned. */
int rg_profile_enter(int api);
void rg_profile_leave(int outer);

/* What the inline hooks call. */
void rg_profile_count_bytes(uint64_t sent, uint64_t received);
void rg_profile_count_wait(uint64_t since, unsigned round_trips);
void rg_profile_record(unsigned op, uint64_t seq, uint32_t size);
void rg_profile_count_saved(unsigned optimisation);
void rg_profile_count_polled(uint64_t handle, bool of_event, bool done);

/** Bytes that the current call has put into the command stream, or registered to be fetched or filled. */
static inline void rg_profile_bytes(uint64_t sent, uint64_t received)
{
    if (__builtin_expect(rg_profiling, 0))
        rg_profile_count_bytes(sent, received);
}

/** The current call has put a record of `size` bytes into the command stream, under its lock. */
static inline void rg_profile_post(unsigned op, uint64_t seq, uint32_t size)
{
    if (__builtin_expect(rg_profiling, 0))
        rg_profile_record(op, seq, size);
}

/** An optimisation (enum rg_optimisation) has just made a round trip of this thread unnecessary. */
static inline void rg_profile_saved(unsigned optimisation)
{
    if (__builtin_expect(rg_recording, 0))
        rg_profile_count_saved(optimisation);
}

/** A query of an event or a stream was answered without the server. Per-thread streams: RG_TIME_THREAD_STREAM | lane. */
static inline void rg_profile_polled(uint64_t handle, bool of_event, bool done)
{
    if (__builtin_expect(rg_recording, 0))
        rg_profile_count_polled(handle, of_event, done);
}

/** The begin of a wait, for rg_profile_waited. */
static inline uint64_t rg_profile_wait(void)
{
    return __builtin_expect(rg_profiling, 0) ? rg_now_ns() : 0;
}

/** The end of a wait, which took that many round trips. */
static inline void rg_profile_waited(uint64_t since, unsigned round_trips)
{
    if (__builtin_expect(since != 0, 0))
        rg_profile_count_wait(since, round_trips);
}

#endif
