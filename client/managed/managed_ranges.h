/*
 * managed_ranges.h - the memory that host and device share (unified.h), by address, with who holds each page.
 *
 * Locks, in this order: that of mapping page-locked memory (pinned.c), that of the ranges, the send lock of a
 * session. The second guards all that is declared here, WRITE_SHARED pages (write_shared.h) and pages that
 * are shared in part (partial_pages.h); it is held while contents leave, and not while they are waited for.
 * No thread touches shared memory while it holds any of them.
 */
#ifndef RG_CLIENT_MANAGED_MANAGED_RANGES_H
#define RG_CLIENT_MANAGED_MANAGED_RANGES_H

#include "client/managed/faults.h"
#include "client/managed/unified.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_session;

enum rg_page_state {
    RG_PAGE_DEVICE,
    RG_PAGE_WRITE_SHARED,
    RG_PAGE_LOST, /* nobody's any more: zeros, or SIGBUS */
    RG_PAGE_SHARED,
    RG_PAGE_DIRTY,
    RG_PAGE_FRESH
};

/** The host holds the page alone, or with the device for reading. */
static inline bool rg_page_held(unsigned char state)
{
    return state >= RG_PAGE_SHARED;
}

struct rg_managed_range {
    uint64_t start, size;
    uint64_t id; /* no two ranges ever had the same */
    uint64_t context;
    struct rg_session *session;
    enum rg_unified_kind kind;
    bool trapped;  /* since the device first got it */
    bool expected; /* the host will want all of it */
    bool leaving;  /* it is about to end: nothing that is to come uses it, and what the host has stays */
    struct rg_trap trap;
    size_t n_pages, n_held, n_write_shared;
    size_t next_fetch, stretch;   /* pages: where the last fetch ended, how much the next one takes */
    size_t next_write, write_run; /* the same of pages that were opened for writing */
    unsigned char state[];        /* enum rg_page_state */
};

#define RG_FETCH_GROUP 16u /* pages that are fetched at a touch at least */

/**
 * All of them. So that contents which were asked for before some work was appended are not taken for what is
 * there after it, `epoch` counts the work.
 */
extern struct rg_managed_ranges {
    pthread_mutex_t lock;
    struct rg_managed_range **at; /* by start, disjoint */
    size_t capacity;
    atomic_size_t n;
    size_t n_held; /* pages that are neither DEVICE nor WRITE_SHARED */
    uint64_t epoch, next_id;
    unsigned forks; /* threads in a fork: what the host has of the application's memory stays there … */
    pthread_cond_t forked;       /* … until there are none */
    atomic_uint host_calls;      /* host functions that run */
    atomic_bool partial_at_work; /* the device may be changing memory on pages that are not trapped */
} rg_managed_ranges;

/* Under the lock: */

/** Before pages leave: waits while other threads fork. May give the lock up meanwhile. */
void rg_managed_ranges_await_forks(void);
/** This thread begins to fork, or has forked. */
void rg_managed_ranges_fork(bool begins);
/** False: out of memory. */
bool rg_managed_ranges_insert(struct rg_managed_range *range);
/** Index of the first range that starts after `address`. */
size_t rg_managed_ranges_after(uint64_t address);
/** The range that holds `address`, or NULL. */
struct rg_managed_range *rg_managed_ranges_find(uint64_t address);
/** Changes the state of pages, and what is counted. */
void rg_managed_range_set_state(struct rg_managed_range *range, size_t first, size_t end,
                                enum rg_page_state state);
/** The address of a page. */
uint64_t rg_managed_range_page(const struct rg_managed_range *range, size_t page);

#endif
