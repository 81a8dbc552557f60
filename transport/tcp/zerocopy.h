/*
 * zerocopy.h - sending from memory that the kernel does not copy (MSG_ZEROCOPY), on connections for bulk
 * data, if REMOTE_GPU_ZEROCOPY=1 asks for it.
 *
 * The memory may be changed only when the kernel has said that it is done with it, which is when the peer has
 * acknowledged the data; a send waits for that, so it costs a round trip each. It is worth it where the copy
 * is what limits, which is on fast networks with large messages. Where the kernel copies all the same, as on
 * the loopback interface, it says so, and the connection goes back to plain sending.
 *
 * Threads: the sender's alone.
 */
#ifndef RG_TRANSPORT_TCP_ZEROCOPY_H
#define RG_TRANSPORT_TCP_ZEROCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_ZEROCOPY_LEAST (64u << 10) /* bytes for which it may be worth it */

struct rg_zerocopy {
    bool on;
    uint32_t sent, done; /* sends of this kind, and those that the kernel is done with; both wrap around */
};

/** Switches it on for a TCP socket, if it is asked for and the kernel has it. */
void rg_zerocopy_start(struct rg_zerocopy *zerocopy, int fd);
/**
 * Takes what the kernel says it is done with; waits up to `timeout_ms` for something. True: it is done with
 * everything that was sent.
 */
bool rg_zerocopy_done(struct rg_zerocopy *zerocopy, int fd, int timeout_ms);

#endif
