/* unified_pages.h - what the files of unified.h know of a share: unified.c, unified_fetch.c, write_shared.c. */
#ifndef RG_CLIENT_MANAGED_UNIFIED_PAGES_H
#define RG_CLIENT_MANAGED_UNIFIED_PAGES_H

#include "client/managed/faults.h"
#include "client/managed/unified.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

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
    uint64_t id; /* no two shares ever had the same */
    uint64_t context;
    struct rg_session *session;
    enum rg_unified_kind kind;
    bool watched;  /* since the device first got it */
    bool expected; /* the host will want all of it */
    struct rg_watch watch;
    size_t n_pages, n_held, n_live;
    size_t next_fetch, stretch;   /* pages: where the last fetch ended, how much the next one takes */
    size_t next_write, write_run; /* the same of pages that were opened for writing */
    unsigned char state[];        /* enum rg_page_state */
};

#define RG_FETCH_GROUP 16u /* pages that are fetched at a touch at least */

/**
 * All shares. The lock guards them, the states of their pages and the WRITE_SHARED pages; it comes before the send lock of a
 * session. So that contents which were asked for before some work was appended are not taken for what is there after it,
 * `epoch` counts the work.
 */
extern struct rg_managed_ranges {
    pthread_mutex_t lock;
    struct rg_managed_range **at; /* by start, disjoint */
    size_t capacity;
    atomic_size_t n;
    size_t n_held; /* pages that are neither DEVICE nor WRITE_SHARED */
    uint64_t epoch, next_id;
    atomic_uint host_calls;      /* host functions that run */
    atomic_bool partial_at_work; /* the device may be changing memory on pages that are not watched */
} rg_managed_ranges;

/* Under the lock: */

/** Index of the first share that starts after `address`. */
size_t rg_managed_ranges_after(uint64_t address);
/** The share that holds `address`, or NULL. */
struct rg_managed_range *rg_managed_ranges_find(uint64_t address);
/** Changes the state of pages, and what is counted. */
void rg_managed_range_set_state(struct rg_managed_range *range, size_t first, size_t end,
                                enum rg_page_state state);
/** The address of a page. */
uint64_t rg_managed_range_page(const struct rg_managed_range *range, size_t page);
/** Starts the thread that fetches what the host touches, once; false: it cannot be. */
bool rg_unified_start_service(void);

/** Runs of bytes on their way to the worker; sent when there are many, and by rg_outgoing_send. */
struct rg_outgoing {
    struct rg_session *session;
    uint64_t context;
    size_t n, bytes;
    uint64_t heads[256][2];
    struct iovec parts[512];
};

void rg_outgoing_begin(struct rg_outgoing *out, struct rg_session *session, uint64_t context);
/** The bytes at `address`, which must stay as they are until they have left. */
void rg_outgoing_add(struct rg_outgoing *out, uint64_t address, uint64_t size);
/** Bytes for `address` that lie at `data`. */
void rg_outgoing_add_from(struct rg_outgoing *out, uint64_t address, const void *data, uint64_t size);
void rg_outgoing_send(struct rg_outgoing *out);

#endif
