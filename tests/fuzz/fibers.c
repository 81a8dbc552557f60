/*
 * fibers.c - threads that are none: functions of one thread that take turns, so that an input does the same each time, and no time is spent
 * on waking and sleeping. Linked in the place of what the target knows of threads, locks, conditions and time (rg_fuzzer … FIBERS), where
 * libFuzzer runs it; elsewhere its threads are real ones. See waits.h.
 *
 * A fiber goes on until it waits; now and then, as the input has it (fuzz_waits_order), another one does where it gives a lock back. The clock
 * stands still but for being asked, and goes on to where the first of the waits ends where all wait. That all wait without end, and the
 * target has nothing against it, is a mistake.
 *
 * What a thread has of its own (thread-local variables) all fibers share: this is for targets to which that does not matter. Fibers that
 * have ended are used again. One thread.
 */
#include "common/base/clock.h"
#include "tests/check.h"
#include "tests/fuzz/waits.h"

#include <errno.h>
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

enum { STACK = 256 << 10, ASKED_NS = 1000, SELDOM = 16, LEAPS_MAX = 64 };

struct fiber {
    struct fiber *next; /* of all, round and round */
    ucontext_t context;
    void *stack, *fake; /* fake: the address sanitizer's */
    size_t stack_size;
    enum { READY, WAITS, DONE, FREE } state;
    const void *on;    /* WAITS: for what, NULL: for the clock alone */
    uint64_t until_ns; /* UINT64_MAX: without an end */
    uint64_t order;    /* who has waited longest is woken first */
    bool late, detached;
    void *(*run)(void *);
    void *argument, *result;
};

static struct fiber first = {.next = &first}, *current = &first;
static uint64_t clock_ns = 1000000000, orders, chance;
static unsigned leaps; /* of the clock, without progress; where that matters to the target */
static void (*call_stuck)(void);
static bool begun, calls;

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_detach(pthread_t thread);
int __real_pthread_setname_np(pthread_t thread, const char *name);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_detach(pthread_t thread);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

/* --- turns ---------------------------------------------------------------------------------------------------------- */

static void switch_to(struct fiber *to)
{
    struct fiber *from = current;
    current = to;
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_size);
    CHECK(swapcontext(&from->context, &to->context) == 0);
    __sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
}

/* The next one behind this that can go on; NULL: no other. */
static struct fiber *next_ready(void)
{
    struct fiber *fiber = current->next;
    while (fiber != current && fiber->state != READY)
        fiber = fiber->next;
    return fiber == current ? NULL : fiber;
}

/* False: there is nobody. */
static bool give_turn(void)
{
    struct fiber *next = next_ready();
    if (next)
        switch_to(next);
    return next;
}

/* The wait that the clock ends first is over. False: it ends none. */
static bool leap(void)
{
    struct fiber *earliest = current;
    for (struct fiber *fiber = current->next; fiber != current; fiber = fiber->next)
        if (fiber->state == WAITS && (earliest->state != WAITS || fiber->until_ns < earliest->until_ns))
            earliest = fiber;
    if (earliest->state != WAITS || earliest->until_ns == UINT64_MAX)
        return false;
    clock_ns = clock_ns < earliest->until_ns ? earliest->until_ns : clock_ns;
    earliest->state = READY;
    earliest->late = true;
    leaps++;
    return true;
}

/* Somebody goes on, whatever that takes. */
static void go_on(void)
{
    if (give_turn() || ((leaps < LEAPS_MAX || !call_stuck) && leap()))
        return;
    CHECK(!calls && call_stuck); /* else nobody ever does */
    calls = true;
    leaps = 0;
    call_stuck();
    calls = false;
}

/* Until the fiber is woken, or the time has come. True: that. */
static bool wait_for(const void *on, uint64_t until_ns)
{
    current->on = on;
    current->until_ns = until_ns;
    current->order = ++orders;
    current->late = false;
    current->state = WAITS;
    while (current->state == WAITS)
        go_on();
    return current->late;
}

static void wake(const void *on, bool all)
{
    struct fiber *longest;
    do {
        longest = NULL;
        for (struct fiber *fiber = current->next; fiber != current; fiber = fiber->next)
            if (fiber->state == WAITS && fiber->on == on && (!longest || fiber->order < longest->order))
                longest = fiber;
        if (longest)
            longest->state = READY;
    } while (longest && all);
}

/* As the input has it. */
static void maybe_give_turn(void)
{
    if (!begun)
        return;
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    if ((chance >> 33) % SELDOM == 0)
        (void)give_turn();
}

void fuzz_waits_order(uint64_t seed)
{
    chance = seed;
}

void fuzz_waits_begin(void (*stuck)(void))
{
    pthread_attr_t attributes;
    if (!first.stack) {
        CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0 &&
              pthread_attr_getstack(&attributes, &first.stack, &first.stack_size) == 0);
        pthread_attr_destroy(&attributes);
    }
    call_stuck = stuck;
    leaps = 0;
    chance = 0;
    begun = true;
}

void fuzz_waits_progress(void)
{
    leaps = 0;
}

void fuzz_waits_end(void)
{
    begun = false;
}

/* --- threads ---------------------------------------------------------------------------------------------------------- */

static void end_fiber(void *result)
{
    current->result = result;
    current->state = current->detached ? FREE : DONE;
    wake(current, true);
    while (current->state != READY) /* until it is used again */
        go_on();
}

static void main_of_fiber(void)
{
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
    for (;;)
        end_fiber(current->run(current->argument));
}

static struct fiber *find_free(void)
{
    struct fiber *fiber = first.next;
    while (fiber != &first && fiber->state != FREE)
        fiber = fiber->next;
    if (fiber != &first)
        return fiber;
    fiber = calloc(1, sizeof *fiber);
    CHECK(fiber && getcontext(&fiber->context) == 0 && (fiber->stack = malloc(STACK)));
    fiber->stack_size = STACK;
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK;
    makecontext(&fiber->context, main_of_fiber, 0);
    fiber->next = first.next;
    first.next = fiber;
    return fiber;
}

/* NULL: it is a real thread. */
static struct fiber *fiber_of(pthread_t thread)
{
    struct fiber *fiber = first.next;
    while (fiber != &first && (pthread_t)fiber != thread)
        fiber = fiber->next;
    return fiber == &first ? NULL : fiber;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    if (!begun)
        return __real_pthread_create(out, attributes, run, argument);
    struct fiber *fiber = find_free();
    fiber->run = run;
    fiber->argument = argument;
    fiber->detached = false;
    fiber->state = READY;
    *out = (pthread_t)fiber;
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    struct fiber *fiber = fiber_of(thread);
    if (!fiber)
        return __real_pthread_join(thread, result);
    while (fiber->state != DONE)
        (void)wait_for(fiber, UINT64_MAX);
    if (result)
        *result = fiber->result;
    fiber->state = FREE;
    return 0;
}

int __wrap_pthread_detach(pthread_t thread)
{
    struct fiber *fiber = fiber_of(thread);
    if (!fiber)
        return __real_pthread_detach(thread);
    fiber->detached = true;
    fiber->state = fiber->state == DONE ? FREE : fiber->state;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    return fiber_of(thread) ? 0 : __real_pthread_setname_np(thread, name);
}

/* --- locks and conditions --------------------------------------------------------------------------------------------- */

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!begun)
        return __real_pthread_mutex_lock(mutex);
    while (pthread_mutex_trylock(mutex) != 0)
        go_on();
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    const int error = __real_pthread_mutex_unlock(mutex);
    maybe_give_turn();
    return error;
}

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    CHECK(__real_pthread_mutex_unlock(mutex) == 0);
    const bool late = wait_for(cond, until_ns);
    CHECK(__wrap_pthread_mutex_lock(mutex) == 0);
    return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return begun ? wait_on(cond, mutex, UINT64_MAX) : __real_pthread_cond_wait(cond, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    return begun ? wait_on(cond, mutex, (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec)
                 : __real_pthread_cond_timedwait(cond, mutex, until);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    wake(cond, false);
    return begun ? 0 : __real_pthread_cond_signal(cond);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    wake(cond, true);
    return begun ? 0 : __real_pthread_cond_broadcast(cond);
}

/* --- time --------------------------------------------------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, out);
    *out = rg_timespec(clock_ns += ASKED_NS);
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!begun)
        return __real_nanosleep(time, left);
    (void)wait_for(NULL, clock_ns + (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec);
    return 0;
}
