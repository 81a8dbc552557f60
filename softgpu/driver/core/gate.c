/*
 * gate.c - see gate.h.
 *
 * Who enters counts itself and then looks whether the gate is closed; who closes it closes it and then looks at the counts. Both
 * are sequentially consistent, so one of the two sees the other.
 */
#include "softgpu/driver/core/gate.h"

#include <stdatomic.h>

#include "common/base/clock.h"
#include "common/base/uncancelled.h"
#include "common/sync/scoped_lock.h"
#include "softgpu/driver/driver.h"

#define STRIPES 16 /* counters, so that threads seldom share one */

static struct stripe {
    _Alignas(64) atomic_uint inside;
} stripes[STRIPES];

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened, left;
    atomic_bool closed;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint next_stripe;

static __thread struct stripe *mine; /* NULL: this thread has made no call yet */
static __thread unsigned depth;
static __thread bool counted;

static void make_conditions(void)
{
    rg_cond_init(&gate.opened);
    rg_cond_init(&gate.left);
}

static void leave_stripe(void)
{
    atomic_fetch_sub(&mine->inside, 1);
    if (!atomic_load(&gate.closed))
        return;
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&gate.lock);
    pthread_cond_broadcast(&gate.left);
}

static void wait_until_open(void)
{
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&gate.lock);
    while (atomic_load(&gate.closed))
        pthread_cond_wait(&gate.opened, &gate.lock);
}

void sg_gate_enter(void)
{
    if (depth++ > 0 || sg_in_host_function || atomic_load_explicit(&sg_state.forked, memory_order_relaxed))
        return;
    if (mine == NULL)
        mine = &stripes[atomic_fetch_add(&next_stripe, 1) % STRIPES];
    for (;;) {
        atomic_fetch_add(&mine->inside, 1);
        if (!atomic_load(&gate.closed))
            break;
        leave_stripe();
        wait_until_open();
    }
    counted = true;
}

void sg_gate_leave(void)
{
    if (--depth > 0 || !counted)
        return;
    counted = false;
    leave_stripe();
}

bool sg_gate_inside(void)
{
    return depth > 0;
}

static bool is_empty(void)
{
    unsigned inside = 0;
    for (int i = 0; i < STRIPES; i++)
        inside += atomic_load(&stripes[i].inside);
    return inside == 0;
}

bool sg_gate_close(uint64_t deadline)
{
    pthread_once(&once, make_conditions);
    const struct timespec until = rg_timespec(deadline == UINT64_MAX ? 0 : deadline);
    RG_UNCANCELLED;
    RG_SCOPED_LOCK(&gate.lock);
    atomic_store(&gate.closed, true);
    bool in_time = true;
    while (!is_empty() && in_time) {
        if (deadline == UINT64_MAX)
            pthread_cond_wait(&gate.left, &gate.lock);
        else
            in_time = pthread_cond_timedwait(&gate.left, &gate.lock, &until) == 0;
    }
    if (!is_empty()) {
        atomic_store(&gate.closed, false);
        pthread_cond_broadcast(&gate.opened);
        return false;
    }
    return true;
}

void sg_gate_open(void)
{
    RG_SCOPED_LOCK(&gate.lock);
    atomic_store(&gate.closed, false);
    pthread_cond_broadcast(&gate.opened);
}
