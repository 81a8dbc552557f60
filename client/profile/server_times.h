/* server_times.h - fetching what the worker has measured of its records (proto/times.h), while a trace is
 * recorded. */
#ifndef RG_CLIENT_PROFILE_SERVER_TIMES_H
#define RG_CLIENT_PROFILE_SERVER_TIMES_H

#include "proto/times.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>

struct rg_session;

/**
 * Asks for times and waits for them; one thread at a time. At most RG_TIMES_PART come into `out`; their
 * number is returned, *more says how many are left, *dropped how many the worker could not keep. `all`: also
 * of work that is not done. -1: the session is over, or the answer did not come for ten seconds.
 */
int rg_times_fetch(struct rg_session *session, bool all, struct rg_time *out, uint64_t *more,
                   uint64_t *dropped);
/** Handles RG_NOTICE_TIMES; false: nobody asked. The reader. */
bool rg_times_notice(struct rg_session *session, const struct rg_notice *notice, size_t bulk_size);

#endif
