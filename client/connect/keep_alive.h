/*
 * keep_alive.h - says to servers that this program lives when it says nothing else, and notices servers that do not live any more:
 * whose worker is stopped, or hangs, while its machine still answers.
 *
 * One thread for all sessions that begin together; asleep but for a moment each quarter of the time that the strictest side gives. A program
 * that waits for the GPU for hours is told all the while that the worker lives; one that waits for nothing needs no
 * server that lives, and does not look.
 */
#ifndef RG_CLIENT_CONNECT_KEEP_ALIVE_H
#define RG_CLIENT_CONNECT_KEEP_ALIVE_H

#include "common/base/status.h"

#include <stdint.h>

/** What the hello asks for: seconds that this program may be silent; 0: what the server does by itself. */
uint32_t rg_keep_alive_wanted(void);

/** `n` sessions from number `first` on have begun. Once for each. */
RG_MUST_CHECK enum rg_status rg_keep_alive_start(unsigned first, unsigned n);

#endif
