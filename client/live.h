/*
 * live.h - LIVE pages: those that the host uses while the device may be at work on them (unified.h). All of it is under
 * the lock of shared pages (unified_pages.h).
 *
 * Who sees one side's change of a page must see what that side has changed of other pages before. So the host writes to
 * one LIVE page at a time: before another is opened, what it has changed of the first has left. And what the device has
 * changed is never put into pages one after another: they are all closed, and come anew as they are touched. Changes
 * within a page are seen together, in no particular order.
 */
#ifndef RG_CLIENT_LIVE_H
#define RG_CLIENT_LIVE_H

#include "client/unified_pages.h"

#include <pthread.h>

/** Whether there are any. Without the lock it is a hint. */
bool rg_live_any(void);
/** Makes pages [first, end) of a share LIVE as far as they are the device's, with their contents at `data`; for reading. */
bool rg_live_add(struct rg_pages *share, size_t first, size_t end, const unsigned char *data);
/** Lets the host write to a LIVE page. */
bool rg_live_open(struct rg_pages *share, size_t page);
/** Sends what the host has changed. */
void rg_live_send(void);
/** The same, and makes all LIVE pages the device's. */
void rg_live_close_all(void);
/** A share ends. */
void rg_live_forget(struct rg_pages *share);
/** Sends what the host has changed, and looks for what the device has. Gives the lock away while it waits. */
void rg_live_round(pthread_mutex_t *lock, const uint64_t *epoch);

#endif
