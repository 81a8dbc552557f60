/*
 * sites.h - where the application waits: waits by call stack.
 *
 * Unwinding takes at most about 1 % of the time waited. Every wait that is a hundred times as long as
 * unwinding takes (some 0.2 ms) is counted where it happens. Shorter ones are sampled: the stack of one that
 * is chosen by the time waited stands for all short ones of its thread since the one before, so that the
 * shares of the sites are those of the time.
 */
#ifndef RG_CLIENT_PROFILE_SITES_H
#define RG_CLIENT_PROFILE_SITES_H

#include "common/base/hash_table.h"

#include <stddef.h>
#include <stdint.h>

#define RG_SITE_FRAMES 32
#define RG_SITES_MAX   1024

struct rg_site {
    struct rg_hash_link link;
    int api;
    int n;
    void *frames[RG_SITE_FRAMES]; /* return addresses, innermost first */
    char *python;                 /* one line a frame, innermost first; NULL: none */
    uint64_t waited, waits, round_trips;
};

/** Looks for an unwinder: libunwind, else the C library's. */
void rg_profile_sites_start(void);
/** A call of the application that waited; on its thread, inside of the wrapper. */
void rg_profile_sites_wait(int api, uint64_t waited, unsigned round_trips);
/**
 * The sites with the longest waits, at most `max`, longest first; frames and python are shared and stay.
 * *more: sites that are not among them, *unknown: nanoseconds of waits whose site found no room.
 */
size_t rg_profile_sites_top(struct rg_site *top, size_t max, size_t *more, uint64_t *unknown);

#endif
