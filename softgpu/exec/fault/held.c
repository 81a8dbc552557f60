/*
 * held.c - see held.h.
 *
 * A thread whose access has faulted may come to look only after the end: it then does not find the range, but that a hold has
 * ended since it last looked, and tries once more. What is a fault faults again.
 */
#include "softgpu/exec/fault/held.h"

#include <stdatomic.h>
#include <time.h>

#define NAP_NS 20000

static _Atomic uint64_t held_first, held_end;
static _Atomic uint32_t holds; /* that have ended */
static __thread uint32_t holds_seen __attribute__((tls_model("initial-exec")));

void sg_hold(uint64_t address, uint64_t size)
{
    atomic_store(&held_first, address);
    atomic_store(&held_end, address + size);
}

void sg_hold_end(void)
{
    atomic_fetch_add(&holds, 1);
    atomic_store(&held_end, 0);
}

bool sg_hold_waited(uint64_t address)
{
    while (address >= atomic_load(&held_first) && address < atomic_load(&held_end))
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    const uint32_t ended = atomic_load(&holds);
    const bool again = ended != holds_seen;
    holds_seen = ended;
    return again;
}
