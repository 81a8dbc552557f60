/*
 * edges.h - shared memory on pages that hold other things of the program as well (rg_unified_add_edge). All of it is under
 * the lock of shared pages (unified_pages.h).
 */
#ifndef RG_CLIENT_EDGES_H
#define RG_CLIENT_EDGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_session;

/** Whether there are any. Without the lock it is a hint. */
bool rg_edges_any(void);
bool rg_edges_add(struct rg_session *session, uint64_t context, uint64_t start, uint64_t size);
void rg_edges_remove(uint64_t start);
void rg_edges_drop_context(uint64_t context);
/** Sends what the host has changed. */
void rg_edges_send(void);
/** The same, and takes what the device has changed; whether it may be at work. Gives the lock away while it waits. */
bool rg_edges_exchange(pthread_mutex_t *lock);

#endif
