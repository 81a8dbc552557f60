/*
 * faults.h - touches of the host: how a page of the application is trapped, and how it gets its contents.
 *
 * Where the kernel lets this process have userfaultfd(2) with faults of the kernel's own (root,
 * CAP_SYS_PTRACE, access to /dev/userfaultfd, or vm.unprivileged_userfaultfd=1), a touch waits in the kernel
 * until it is dealt with: in whatever thread, with whatever signals blocked, and inside system calls as well.
 * Else pages are protected and a handler of SIGSEGV waits: then a system call that is given a page which the
 * device holds fails with EFAULT. REMOTE_GPU_FAULTS=signals takes the second way wherever it runs, and valgrind
 * must, under which a thread that waits in the kernel stops all.
 *
 * What is trapped is open (all access) until it is closed. Nothing here is held across a call of another
 * part.
 */
#ifndef RG_CLIENT_MANAGED_FAULTS_H
#define RG_CLIENT_MANAGED_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Whole pages that are trapped. */
struct rg_trap {
    uint64_t start, size;
    /* private memory without a file behind it: pages can be given back */
    bool anonymous;
    bool is_private; /* a page can be put in place whole */
    bool is_shared;  /* one file's memory, in order: it can be had at another address as well */
    bool by_uffd;    /* else by protection */
    int protection;  /* what the application had */
};

/** One touch that waits. */
struct rg_touch {
    uint64_t address;
    bool write;
    void *waits; /* the handler's, with signals */
};

/** Starts what is needed, once. */
void rg_faults_start(void);
/** Begins to trap accesses to pages that the application can use; fills in the rest of `trap`. */
bool rg_trap_begin(struct rg_trap *trap);
/** All access again, and no more traps. Pages without contents read as zeros. */
void rg_trap_end(const struct rg_trap *trap);
/** Whether the application has unmapped what is trapped, though something else may be there by now. May make writers wait. */
bool rg_trap_gone(const struct rg_trap *trap);
/** Whether there is nothing at some page of [start, start + size). */
bool rg_pages_gone(uint64_t start, uint64_t size);
/** The same in the child of a fork, which has copies of what the parent could access, and of its protection. */
void rg_trap_end_in_child(const struct rg_trap *trap);

/* Of [start, start + size), part of what is trapped. */

/** Writers wait from now on. */
bool rg_pages_freeze(const struct rg_trap *trap, uint64_t start, uint64_t size);
/** Everyone waits from now on, and the contents are gone where that saves memory. */
bool rg_pages_close(const struct rg_trap *trap, uint64_t start, uint64_t size);
/** Writers need not wait any more. */
bool rg_pages_open(const struct rg_trap *trap, uint64_t start, uint64_t size);
/** Gives closed pages their contents, at once as far as others can see. `data` is page-aligned memory. */
bool rg_pages_fill(const struct rg_trap *trap, uint64_t start, const void *data, uint64_t size,
                   bool writable);
/** The contents are lost: whoever touches the pages gets SIGBUS. */
void rg_pages_lose(uint64_t start, uint64_t size);
/**
 * Sets `touched[i]` to whether page i of so many frozen ones from `start` on has ever been touched. Where that cannot be told (no /proc),
 * all count as touched, and have contents from then on: a read of theirs under the lock of shared pages waits for nobody. False: no
 * memory.
 */
bool rg_pages_touched(const struct rg_trap *trap, uint64_t start, size_t n, unsigned char *touched);

/** Adds touches to `list`, at most `max`; waits for the first up to timeout_ms (-1: for ever). */
size_t rg_touches_wait(struct rg_touch *list, size_t max, int timeout_ms);
/** The touch can be tried again; not `handled`: it was no touch of ours. */
void rg_touch_done(const struct rg_touch *touch, bool handled);
/** Lets rg_touches_wait return. Any thread. */
void rg_touches_wake(void);
/** Whether the application has a handler of SIGSEGV, before or behind ours. Any thread; a hint, as it may set one at any time. */
bool rg_faults_has_program_handler(void);
/** Sees to it that a handler which the application has set since is called after ours. Any thread. */
void rg_faults_refresh(void);
/** In the child of a fork, of whose memory nothing is trapped any more: it has the application's handler alone. */
void rg_faults_end_in_child(void);

#endif
