/*
 * adaptive_wait.h - how a thread waits for something that another processor brings: it looks for a while, then it sleeps.
 *
 * To look costs processor time, to sleep costs what going to sleep and being woken takes: some microseconds, or hundreds where
 * idle processors wake slowly, as they do on many virtual machines. What is better depends on how long waits are, and on where
 * the other side runs: on the same processor, it gets to run only when this one sleeps. So `auto` goes by what the last waits
 * took, those that looked and those that slept: it does what was faster, and tries the other now and then, the more rarely the
 * more that costs. It looks no longer than waits lately took, and not at all after two waits in a row that were long (half a
 * millisecond), so what is idle uses no processor. Looks that were in vain use at most a sixteenth of a processor's time, and a
 * millisecond at the beginning. It never looks where a cgroup allows less than two processors, since looking would use that up,
 * and not for some waits when it finds that others wanted its processor meanwhile.
 *
 * Threads: a struct rg_adaptive_wait is one thread's at a time.
 */
#ifndef RG_COMMON_SYNC_ADAPTIVE_WAIT_H
#define RG_COMMON_SYNC_ADAPTIVE_WAIT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define RG_WAIT_CHOICES "auto|block|spin" /* of options */

enum rg_wait_mode {
    RG_WAIT_DEFAULT, /* what REMOTE_GPU_WAIT says, else auto */
    RG_WAIT_AUTO,
    RG_WAIT_BLOCK, /* sleep at once */
    RG_WAIT_SPIN,  /* never sleep */
};

struct rg_adaptive_wait {
    enum rg_wait_mode mode; /* not RG_WAIT_DEFAULT */
    bool alone;             /* one processor */
    bool limited;           /* fewer than two by a cgroup */
    /* the caller's to change where a look costs little: pauses between two, and looks in a row without one at the clock */
    unsigned pauses, blind;
    /* the caller's to set where sleeping costs much more than looking, so that how long waits are says little: how long a wait
     * looks first, also on one processor, unless that was in vain lately; 0: as above */
    uint64_t look_ns;
    unsigned vain; /* waits in a row that did not end within look_ns */

    uint64_t
        took_ns[2]; /* short waits lately: [0] those that slept, [1] those that looked first; 0: none yet */
    unsigned long_ones; /* long waits in a row */
    unsigned as_before; /* so many waits more do what was faster; then one tries the other */
    unsigned crowded;   /* so many waits more are slept through */
    unsigned crowds;    /* how many those are the next time */
    unsigned
        crowds_most; /* and at most; the caller's to lower where waits that sleep cost several times as much as such that look */
    uint64_t credit_ns; /* so long may still be looked in vain */
    uint64_t ended_ns;  /* when the last wait ended, which was looked at the clock for */

    long switches; /* before this wait looked */
    bool
        given_up; /* it had to give up its processor while it looked; the caller's of rg_adaptive_wait_end_at */
    uint64_t began_ns, looked_ns; /* of this one; 0: none */
    uint64_t window_ns;           /* so long it looks; 0: it sleeps at once */
    unsigned looks;               /* since the last at the clock, or of waits that never sleep */
};

/** Reads "auto", "block", "spin"; "" and NULL are RG_WAIT_DEFAULT. RG_ERR_INVALID. */
RG_MUST_CHECK enum rg_status rg_wait_mode_parse(const char *text, enum rg_wait_mode *out);
void rg_adaptive_wait_init(struct rg_adaptive_wait *wait, enum rg_wait_mode mode);

/**
 * Before each look at what is waited for: true: look; false: sleep. What follows the first call of a wait, until
 * rg_adaptive_wait_end, is that wait.
 */
bool rg_adaptive_wait_look(struct rg_adaptive_wait *wait);
/** It has come. */
void rg_adaptive_wait_end(struct rg_adaptive_wait *wait);
/** The same two at a given time (rg_now_ns's), of waits that neither always sleep nor always look. */
bool rg_adaptive_wait_look_at(struct rg_adaptive_wait *wait, uint64_t now_ns);
void rg_adaptive_wait_end_at(struct rg_adaptive_wait *wait, uint64_t now_ns);

/** What a processor does between two looks. */
void rg_cpu_relax(void);

/** Processors that this process may use at once: those of its affinity, or fewer by a cgroup's quota; at least 1. */
unsigned rg_processors(void);
/** The part of that which cgroups allow, below `root` ("" but for tests); UINT_MAX without a limit. */
unsigned rg_processors_of_cgroup(const char *root);

#endif
