/*
 * poll.h - poll(2) and nanosleep(2) for processes that are not ours: filters of system calls (seccomp) and limits refuse some of what others
 * take for granted.
 */
#ifndef RG_COMMON_BASE_POLL_H
#define RG_COMMON_BASE_POLL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#define RG_POLL_LOOK_MS 50

/**
 * As poll; by ppoll or select where poll is refused, as it is for more descriptors than the process may open from now on (RLIMIT_NOFILE).
 * Where all are, that is told once, and each call takes a moment and then returns -1 with what they were refused with: who goes on all the
 * same does not use up a processor. By select, POLLRDHUP of a socket comes when all that it has received has been read, up to
 * RG_POLL_LOOK_MS late. Any thread.
 */
int rg_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

/** After rg_poll returned -1: whether nothing can be waited for here, and the call was not only interrupted. */
bool rg_poll_is_refused(void);

/** Sleeps for so long, or until a signal; where that is refused, by waiting for nothing that could come. Any thread. */
void rg_pause(uint64_t ns);

#endif
