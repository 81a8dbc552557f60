/*
 * partial_pages.h - shared memory on pages that hold other things of the program as well, or that can be had at other addresses, too
 * (rg_unified_add_partial). All of it is under the lock of shared pages (managed_ranges.h).
 *
 * Of more than a page what the device changes while it is at work is taken when two readings of all of it agree: else a word could be
 * seen before another one that was written earlier. Where the device never stands still for so long, it is taken all the same, now and then.
 */
#ifndef RG_CLIENT_MANAGED_PARTIAL_PAGES_H
#define RG_CLIENT_MANAGED_PARTIAL_PAGES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_session;

extern atomic_uint rg_partial_pages_n; /* how many there are; without the lock a hint */
/**
 * Shares [start, start + size) with the device of `context`: all of it is sent now, later what differs from a copy that is kept. False:
 * no memory, and nothing is shared.
 */
bool rg_partial_pages_add(struct rg_session *session, uint64_t context, uint64_t start, uint64_t size);
/** What begins at `start`, or is of that context, is shared no more, and nothing of it is sent. None is fine. */
void rg_partial_pages_remove(uint64_t start);
void rg_partial_pages_drop_context(uint64_t context);
/** Whether some of it is more than a page, so that each exchange is; without the lock a hint. */
bool rg_partial_pages_are_much(void);
/** Sends what the host has changed. */
void rg_partial_pages_send(void);
/**
 * The same, and takes what the device has changed; whether it may be at work. `waited`: some of its work is known to be done, and what
 * that has changed is taken at once. Gives the lock away while it waits.
 */
bool rg_partial_pages_exchange(pthread_mutex_t *lock, bool waited);

#endif
