/*
 * twin.h - memory that both sides may be changing. Of each word there is a twin: what both sides last agreed
 * on. A byte of the host's that differs from its twin was changed by the host, one of the device's that does
 * by the device. Words are read and written as a whole, so that neither side ever sees half of one.
 */
#ifndef RG_CLIENT_MANAGED_TWIN_H
#define RG_CLIENT_MANAGED_TWIN_H

#include "client/managed/outgoing.h"
#include "client/managed/unified.h"

#define RG_PAGE_WORDS (RG_PAGE / 8)

/*
 * `first` and `last` are masks: the bytes of the first and the last of the n words that belong to the memory.
 */

/**
 * Puts what the host has changed on its way (from the twin, which must stay until it has left); whether it
 * has.
 */
bool rg_twin_send(uint64_t *words, uint64_t *twin, size_t n, uint64_t first, uint64_t last,
                  struct rg_outgoing *out);
/**
 * Takes over what the device has changed; whether it has. From the last word to the first: whoever sees the change of a word at the
 * beginning sees that of what follows it.
 */
bool rg_twin_merge(uint64_t *words, uint64_t *twin, const uint64_t *theirs, size_t n, uint64_t first,
                   uint64_t last);

#endif
