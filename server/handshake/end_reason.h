/* end_reason.h - the monitor's signals to a worker: why its session is to end, and that its user's GPU hours are used up. */
#ifndef RG_SERVER_HANDSHAKE_END_REASON_H
#define RG_SERVER_HANDSHAKE_END_REASON_H

#include <signal.h>

/** Why a worker is told to end: the value that comes with SIGTERM (sigqueue). */
enum rg_session_end_reason {
    RG_END_SHUTDOWN,
    RG_END_REVOKED,
    RG_END_EXPIRED,
    RG_END_USED_UP,
    RG_END_LEASE,
    RG_END_WANTED
};
/** What the client is told of it. */
const char *rg_session_end_why(enum rg_session_end_reason reason);

/**
 * Tells a worker that the GPU hours of its user, group or project are used up; the value: after how many seconds the session will end,
 * 0: it may go on. A process that does not expect it ignores it.
 */
#define RG_SESSION_USED_UP_SIGNAL SIGURG

#endif
