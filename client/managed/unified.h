/*
 * unified.h - memory that host and device both address, at one address: managed memory, managed variables,
 * and host memory that a kernel may use. It is coherent where CUDA promises it: what the host has written is
 * there for all work that it puts in afterwards, what the device has written is there for the host when a
 * call has said that it is done.
 *
 * Each page is held by one side, or by both for reading:
 *
 *   FRESH   the host's, and never trapped so far; only what was ever touched is worth sending
 *   DIRTY   the host's, and it has written to it
 *   SHARED  both sides are the same; the host may read
 *   DEVICE  the device's; a touch by the host fetches it
 *   WRITE_SHARED    both sides': the device is at work, the host reads and writes
 *
 * Before anything that the device may touch memory by (RG_TRAIT_ACCESSES), rg_unified_begin_work sends what the
 * host has written and closes all pages. A touch then waits (faults.h) until the service thread has fetched a
 * stretch of pages and put it in place. If the device is idle the host holds the pages from then on; managed
 * memory waits for that, for it is not for the host while kernels run (concurrentManagedAccess is 0), but not
 * for ever.
 *
 * Memory that the host may touch while kernels run becomes WRITE_SHARED (write_shared.h): a copy of the page
 * as both sides last knew it says which bytes the host has changed; these are sent, and what the device has
 * changed is looked for, every millisecond as long as either side does something with it. So a kernel that
 * waits for the host's word gets it, and the other way round. After a successful wait WRITE_SHARED pages are
 * the device's again. What a host function has written leaves before its stream goes on.
 *
 * If the server is gone, pages that it held are lost: a touch raises SIGBUS.
 */
#ifndef RG_CLIENT_MANAGED_UNIFIED_H
#define RG_CLIENT_MANAGED_UNIFIED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_PAGE                    4096u
#define RG_UNIFIED_EXCHANGED_BYTES (1u << 20) /* every call compares them all */

enum rg_unified_kind {
    RG_UNIFIED_MANAGED,  /* mapped here at the worker's address; the host may do what it likes with it now */
    RG_UNIFIED_VARIABLE, /* the same, with contents that the device has */
    RG_UNIFIED_HOST,     /* the application's own memory, which the worker has mapped at the same address */
};

/**
 * Shares whole pages of the current context, which no range holds yet. The pages are mapped and can be used.
 */
CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size);
/** Ends the range that begins at `start`; the pages can be used again. `keep`: with their contents, which are the application's. */
void rg_unified_remove(uint64_t start, bool keep);
/** The same at once, and the memory is the host's, as after rg_unified_recall. */
void rg_unified_leave_to_host(uint64_t start);
/** Gives the host the contents of what is shared of [start, start + size). */
void rg_unified_recall(uint64_t start, uint64_t size);
/** Forgets the ranges of a context that has ended. */
void rg_unified_drop_context(uint64_t context);

/** Whether anything is shared, or will be before the next kernel. */
bool rg_unified_any(void);
/** Page-locked memory that holds `address` is mapped before the next kernel. False: out of memory. */
bool rg_unified_want(uint64_t address);
/**
 * Whether some page of [start, start + size) is shared: then no thread of ours may touch it while it holds a
 * lock.
 */
bool rg_unified_meets(uint64_t start, uint64_t size);
/**
 * Shares memory that cannot be trapped, since its page holds other things of the program as well, or since it can be had at other
 * addresses, too: what either side has changed of it is exchanged at every call that puts in work or has waited for it, and while the
 * device works. At most RG_UNIFIED_EXCHANGED_BYTES bytes.
 */
CUresult rg_unified_add_partial(uint64_t start, uint64_t size);
void rg_unified_remove_partial(uint64_t start);
/** The host will read or write all of [start, start + size) soon: fetches in large pieces. */
void rg_unified_expect(uint64_t start, uint64_t size);

/**
 * Makes the host's changes visible to work that is about to be appended to the stream of commands; if there
 * are ranges, no page comes to the host until rg_unified_end_work. Costs three loads while nothing is shared.
 * `*begun`: to be ended. For a `kernel`, page-locked memory that the changes point to is mapped.
 */
CUresult rg_unified_begin_work(bool kernel, bool *begun);
void rg_unified_end_work(void);
/** A call has waited for the device successfully. */
void rg_unified_settle(void);
/** Around a host function, on its thread. */
void rg_unified_host_call_begins(void);
void rg_unified_host_call_ends(void);

/* --- between unified.c, unified_fetch.c and unified_work.c; under the lock of the ranges -------------- */

/** What the host has written leaves for the device, which then holds all pages. */
CUresult rg_unified_release_all(void);
/**
 * Takes out the range of this index if it is memory that the application has unmapped, which GPUs' drivers, who hold its pages, do not
 * notice: nobody can ask for its contents any more. Whether that was so.
 */
bool rg_unified_take_out_gone(size_t at);
/** The same for those that both sides write to. */
void rg_unified_take_out_gone_shared(void);
/** Takes the page-locked memory that pointers lead to which have left; false: there is none. */
struct rg_pinned_list;
bool rg_unified_take_wanted(struct rg_pinned_list *list);
/** Starts the thread that fetches what the host touches, once; false: it cannot be. */
bool rg_unified_start_service(void);

#endif
