/*
 * load_memory.h - whether a load that is known to succeed is sure to find its memory, so that it need not be waited for.
 *
 * The server says with each reply and notice how much device memory is left to the session (proto/memory_level.h), and with the reply
 * to a load how much that took, which the image cache keeps. What is loaded ahead is taken to be used until its answer is there, which
 * says what is left then. A load that might not fit is waited for, so that running out of memory is the error of the call that loads.
 * Where there is more memory than code that is being loaded, nothing waits. Any thread.
 */
#ifndef RG_CLIENT_CACHE_LOAD_MEMORY_H
#define RG_CLIENT_CACHE_LOAD_MEMORY_H

#include "proto/memory_level.h"

#include <stdbool.h>

struct rg_session;

/** What an image takes of which that is not known: more than any device has. */
#define RG_LOAD_MEMORY_UNKNOWN 50u

/**
 * Before a load of an image that takes `need` (0 or 1: nothing, or the server does not say) is sent, and not waited for. False: it has to
 * be waited for.
 */
bool rg_load_memory_take(struct rg_session *session, rg_memory_level need);
/** The same of one that the program does not depend on: others are to wait. */
void rg_load_memory_take_anyway(struct rg_session *session, rg_memory_level need);
/** It has been answered, or was not sent. */
void rg_load_memory_end(struct rg_session *session, rg_memory_level need);

#endif
