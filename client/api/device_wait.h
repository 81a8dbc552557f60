/*
 * device_wait.h - calls by which NVIDIA's driver waits for all work of a context: what frees memory, arrays or modules.
 *
 * The program may rely on it: events and streams before the call are done, functions of the host have run, shared memory has what kernels
 * have written. Remotely such a call is put into the sequence of records; where nothing can tell that it has not waited, but for questions
 * about streams and events, it returns at once and those wait (client/timeline/timeline.h). Where a kernel may last until another thread
 * of the program ends it, the record itself is waited for (RG_TRAIT_BLOCKS). Any thread; not for calls that are made while streams are
 * captured.
 */
#ifndef RG_CLIENT_API_DEVICE_WAIT_H
#define RG_CLIENT_API_DEVICE_WAIT_H

#include <stdint.h>

struct rg_device_wait {
    struct {
        uint64_t context; /* 0: none whose work is known */
        uint64_t position;
    } of[2];
};

/** Before the call's record. Of a context, or of two: 0, handles of none, and the same once more do nothing. */
void rg_device_wait_begin(struct rg_device_wait *wait, uint64_t context, uint64_t other);
/** Behind it, in the same thread. */
void rg_device_wait_end(const struct rg_device_wait *wait);

#endif
