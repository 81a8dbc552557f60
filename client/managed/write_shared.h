/*
 * write_shared.h - WRITE_SHARED pages: those that the host uses while the device may be at work on them
 * (unified.h). All of it is under the lock of shared pages (managed_ranges.h).
 *
 * Who sees one side's change of a page must see what that side has changed of other pages before. So the host
 * writes to one WRITE_SHARED page at a time: before another is opened, what it has changed of the first has
 * left. And what the device has changed is never put into pages one after another: they are all closed, and
 * come anew as they are touched. Changes within a page are seen together, in no particular order.
 */
#ifndef RG_CLIENT_MANAGED_WRITE_SHARED_H
#define RG_CLIENT_MANAGED_WRITE_SHARED_H

#include "client/managed/managed_ranges.h"

#include <pthread.h>

/** Whether there are any. Without the lock it is a hint. */
bool rg_write_shared_any(void);
/**
 * Makes pages [first, end) of a range WRITE_SHARED as far as they are the device's, with their contents at
 * `data`; for reading.
 */
bool rg_write_shared_add(struct rg_managed_range *range, size_t first, size_t end, const unsigned char *data);
/** Lets the host write to a WRITE_SHARED page. */
bool rg_write_shared_open(struct rg_managed_range *range, size_t page);
/** Sends what the host has changed. */
void rg_write_shared_send(void);
/** The same, and makes all WRITE_SHARED pages the device's. */
void rg_write_shared_close_all(void);
/** The same of the pages of one range. */
void rg_write_shared_close(const struct rg_managed_range *range);
/** A range ends. */
void rg_write_shared_forget(struct rg_managed_range *range);
/** Sends what the host has changed, and looks for what the device has. Gives the lock away while it waits. */
void rg_write_shared_round(pthread_mutex_t *lock, const uint64_t *epoch);

#endif
