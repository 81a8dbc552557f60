/*
 * tuning.h - figures that client and server work by, and that the prediction (client/predict/) therefore calculates with.
 */
#ifndef RG_COMMON_BASE_TUNING_H
#define RG_COMMON_BASE_TUNING_H

#include <stdbool.h>

/** A caller sends for others for at most one part in so many of its time (client/core/queue.c). */
#define RG_INLINE_SEND_SHARE 16
/**
 * … and besides at these records since its last wait for a reply: the first two (a launch, say, and a copy of its result), and the
 * eighth and the fortieth of a burst, each with what has collected by then.
 */
static inline bool rg_inline_sends_at(unsigned n)
{
    return n <= 2 || n == 8 || n == 40;
}

/**
 * Nanoseconds that the worker looks whether the device is done before it lets others go on (server/timeline/wait.c): about what two
 * changes of threads cost. The calls of others stand still so long at most.
 */
#define RG_WAIT_POLL_NS 20000
/** Data of the client that a stream needs when it gets there travels so many chunks ahead, of so many bytes (server/transfer/deferred.c). */
#define RG_DEFERRED_SLOTS 4
#define RG_DEFERRED_CHUNK (2u << 20)

#endif
