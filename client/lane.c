/*
 * lane.c - lanes by number, one a thread; a thread's lane ends with the thread and its number is used again.
 */
#include "client/lane.h"

#include "client/ahead.h"
#include "client/progress.h"
#include "client/session.h"
#include "common/base/limits.h"
#include "generated/client/operations.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_lane **lanes; /* by number; grows, entries stay */
static uint32_t n_lanes, capacity;
static uint32_t *free_numbers;
static uint32_t n_free;
static pthread_key_t thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct rg_lane *own;

static void end_at(struct rg_lane *lane, struct rg_session *session)
{
    lane->target = session;
    (void)rg_op_rgLaneEnd();
    lane->target = NULL;
}

static void lane_end(void *pointer)
{
    struct rg_lane *lane = pointer;
    own = lane; /* the calls below find it; the thread is about to end */
    lane->n_contexts = 0;
    const bool any =
        atomic_load(&rg_sessions_ended) == CUDA_SUCCESS; /* not in a forked child, where locks may be held */
    if (any)
        rg_ahead_give_back_lane(lane->number);
    for (unsigned i = 0; i < rg_n_sessions; i++)
        if (lane->at[i].announced && atomic_load(&rg_sessions[i].ended) == CUDA_SUCCESS)
            end_at(lane, &rg_sessions[i]);
    own = NULL;
    if (any)
        rg_progress_forget_stream(&lane->own);
    lane->own_context = 0;
    pthread_mutex_lock(&lock);
    memset(lane->at, 0, sizeof lane->at);
    lane->generation++;
    free_numbers[n_free++] = lane->number;
    pthread_mutex_unlock(&lock);
}

static void make_key(void)
{
    pthread_key_create(&thread_end, lane_end);
}

/* Room for one more lane; the lock is held. */
static bool grow(void)
{
    if (n_lanes < capacity)
        return true;
    uint32_t more = capacity ? capacity * 2 : 64;
    struct rg_lane **bigger = realloc(lanes, more * sizeof *bigger);
    if (!bigger)
        return false;
    lanes = bigger;
    uint32_t *numbers = realloc(free_numbers, more * sizeof *numbers);
    if (!numbers)
        return false;
    free_numbers = numbers;
    capacity = more;
    return true;
}

static struct rg_lane *take_lane(void)
{
    if (n_free)
        return lanes[free_numbers[--n_free]];
    if (n_lanes == RG_CLIENT_THREADS_MAX || !grow())
        return NULL;
    struct rg_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    pthread_cond_init(&lane->waiter.wake, NULL);
    lane->number = n_lanes;
    lane->generation = 1;
    lanes[n_lanes++] = lane;
    return lane;
}

struct rg_lane *rg_lane_if_any(void)
{
    return own;
}

struct rg_lane *rg_lane_current(void)
{
    if (own)
        return own;
    pthread_once(&once, make_key);
    pthread_mutex_lock(&lock);
    struct rg_lane *lane = take_lane();
    pthread_mutex_unlock(&lock);
    if (lane && pthread_setspecific(thread_end, lane) == 0)
        own = lane;
    return own;
}

/* Number in the low half, generation in the high half, never 0. */
uint32_t rg_lane_token(const struct rg_lane *lane)
{
    return (lane->generation % 0xffffu + 1) << 16 | lane->number;
}

struct rg_lane *rg_lane_of_token(uint32_t token)
{
    struct rg_lane *lane = NULL;
    pthread_mutex_lock(&lock);
    if ((token & 0xffffu) < n_lanes)
        lane = lanes[token & 0xffffu];
    if (lane && rg_lane_token(lane) != token)
        lane = NULL;
    pthread_mutex_unlock(&lock);
    return lane;
}

bool rg_lane_push_context(struct rg_lane *lane, uint64_t context)
{
    if (lane->n_contexts == lane->capacity) {
        size_t more = lane->capacity ? lane->capacity * 2 : 8;
        uint64_t *bigger = realloc(lane->contexts, more * sizeof *bigger);
        if (!bigger)
            return false;
        lane->contexts = bigger;
        lane->capacity = more;
    }
    lane->contexts[lane->n_contexts++] = context;
    return true;
}

bool rg_lane_set_context(struct rg_lane *lane, uint64_t context)
{
    if (lane->n_contexts)
        lane->n_contexts--;
    return context == 0 || rg_lane_push_context(lane, context);
}
