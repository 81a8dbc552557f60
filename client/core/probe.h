/*
 * probe.h - what happens inside of calls, for whoever measures it (client/profile).
 *
 * The core tells of records, replies and waits by the functions below. Nobody measures unless a profile or a
 * trace was asked for; then each of them costs one predictable branch. All but those of `sessions_begun` and
 * `times_notice`: any thread, no errors, nothing that blocks for long.
 */
#ifndef RG_CLIENT_CORE_PROBE_H
#define RG_CLIENT_CORE_PROBE_H

#include "common/base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rg_notice;
struct rg_session;

/** What servers say to each other for one record: a copy, a fence or collectives. */
struct rg_probe_exchange {
    uint64_t
        key; /* that the records of all servers which take part share; 0: the others are other processes' */
    uint64_t sent, received; /* bytes, by the record's server */
    unsigned ways;           /* one-way trips in which no data goes, one behind the other */
    unsigned turns;          /* round trips, at least, in the time in which the data goes */
};

struct rg_probe {
    uint64_t capabilities; /* RG_CONTROL_CAP_…, which it needs of servers */
    /** Bytes that the current call has put into the command stream, or registered to be fetched or filled. */
    void (*bytes)(uint64_t sent, uint64_t received);
    /** The current call has put a record of `size` bytes into a session's command stream, under its lock. */
    void (*post)(unsigned session, unsigned op, uint64_t seq, uint32_t size);
    /** The end of a wait that began at `since` and took that many round trips. */
    void (*waited)(uint64_t since, unsigned round_trips);

    /* The following are NULL unless a trace is recorded. */

    /** An optimisation (enum rg_optimisation) has just made a round trip of this thread unnecessary. */
    void (*saved)(unsigned optimisation);
    /**
     * A query of an event or a stream was answered without the session's server. Per-thread streams:
     * RG_TIME_THREAD_STREAM | thread.
     */
    void (*polled)(unsigned session, uint64_t handle, bool of_event, bool done);
    /** What this thread's last record is about goes from one server to others. */
    void (*exchanged)(const struct rg_probe_exchange *exchange);
    /** The sessions have begun. The thread that begins them. */
    void (*sessions_begun)(void);
    /** RG_NOTICE_TIMES has come; false: nobody asked for it. The reader. */
    bool (*times_notice)(struct rg_session *session, const struct rg_notice *notice, size_t bulk_size);
};

/** NULL: nobody measures. Set once, before the first call, and cleared in a forked child. */
extern const struct rg_probe *rg_probe;

#define RG_PROBED(function) (__builtin_expect(rg_probe != NULL, 0) && rg_probe->function)

static inline void rg_probe_bytes(uint64_t sent, uint64_t received)
{
    if (RG_PROBED(bytes))
        rg_probe->bytes(sent, received);
}

static inline void rg_probe_post(unsigned session, unsigned op, uint64_t seq, uint32_t size)
{
    if (RG_PROBED(post))
        rg_probe->post(session, op, seq, size);
}

static inline void rg_probe_saved(unsigned optimisation)
{
    if (RG_PROBED(saved))
        rg_probe->saved(optimisation);
}

static inline void rg_probe_polled(unsigned session, uint64_t handle, bool of_event, bool done)
{
    if (RG_PROBED(polled))
        rg_probe->polled(session, handle, of_event, done);
}

static inline void rg_probe_exchanged(const struct rg_probe_exchange *exchange)
{
    if (RG_PROBED(exchanged))
        rg_probe->exchanged(exchange);
}

/** The begin of a wait, for rg_probe_waited; 0: nobody measures. */
static inline uint64_t rg_probe_wait(void)
{
    return __builtin_expect(rg_probe != NULL, 0) ? rg_now_ns() : 0;
}

static inline void rg_probe_waited(uint64_t since, unsigned round_trips)
{
    if (RG_PROBED(waited))
        rg_probe->waited(since, round_trips);
}

#endif
