/* times.c - measuring records. See times.h. */
#include "server/timeline/times.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/core/leader_followers.h"
#include "server/modules.h"

#include <stdlib.h>
#include <string.h>

#define POOL        4096          /* events of a context; work beyond them is not timed */
#define REBASE_NS   2000000000ull /* elapsed times are floats: the shorter, the better */
#define FIRST_SIZE  4096
#define PATIENCE_NS 200000000ull
#define RESUME_NS   5000000000ull /* for a suspended session to come back; the client waits twice as long */

/* The clock of a context's device, and its events. */
struct clock {
    struct clock *next;
    uint64_t context; /* handle */
    CUcontext object;
    CUevent base; /* recorded at base_ns of the host's clock; NULL: this driver's events tell no times */
    uint64_t base_ns;
    CUevent unused[POOL];
    unsigned n_unused, n_made;
};

struct item {
    struct rg_time time;
    struct clock *clock;
    CUevent event; /* behind its work; NULL: none, or it is known when that ended */
};

struct times {
    pthread_mutex_t lock; /* of all below, if the client has asked for times */
    struct item *items;   /* in the order in which they were finished */
    size_t n, capacity;
    size_t looked_at; /* those before have no event */
    struct clock *clocks;
    uint64_t dropped;
    unsigned open; /* records that were begun and are not finished: their replies may have been sent */
    pthread_cond_t closed;
};

/* --- the device's clock --------------------------------------------------------------------------------- */

static struct clock *find_clock(struct times *times, uint64_t context)
{
    struct clock *clock = times->clocks;
    while (clock && clock->context != context)
        clock = clock->next;
    return clock;
}

static CUevent take_event(struct clock *clock)
{
    CUevent event = NULL;
    if (clock->n_unused)
        return clock->unused[--clock->n_unused];
    if (clock->n_made >= POOL || rg_driver.cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    clock->n_made++;
    return event;
}

/* A clock for the context that is current, whose device has nothing to do yet. */
static void start_clock(struct times *times, uint64_t context)
{
    struct clock *clock = calloc(1, sizeof *clock);
    if (!clock || rg_driver.cuCtxGetCurrent(&clock->object) != CUDA_SUCCESS) {
        free(clock);
        return;
    }
    clock->context = context;
    if (rg_driver_has(cuEventElapsedTime) && (clock->base = take_event(clock))) {
        clock->base_ns = rg_now_ns();
        if (rg_driver.cuEventRecord(clock->base, NULL) != CUDA_SUCCESS) {
            (void)rg_driver.cuEventDestroy_v2(clock->base);
            clock->base = NULL;
        }
    }
    clock->next = times->clocks;
    times->clocks = clock;
}

/* Reads an event that has come; its work is then timed. */
static void read_event(struct item *item)
{
    struct clock *clock = item->clock;
    CUevent event = item->event;
    float ms = 0;
    item->event = NULL;
    if (rg_driver.cuEventElapsedTime(&ms, clock->base, event) == CUDA_SUCCESS) {
        const int64_t interval = (int64_t)((double)ms * 1e6);
        uint64_t end = clock->base_ns + (uint64_t)interval;
        if (end < item->time.begin) { /* then the base was later than was thought */
            clock->base_ns += item->time.begin - end;
            end = item->time.begin;
        }
        item->time.end = end;
        item->time.flags |= RG_TIME_END;
        if (interval > (int64_t)REBASE_NS) {
            const CUevent old = clock->base;
            clock->base = event;
            clock->base_ns = end;
            event = old;
        }
    }
    clock->unused[clock->n_unused++] = event;
}

/* Looks at the events in the order of their records, until one has not come. */
static void look(struct times *times)
{
    struct clock *current = NULL;
    for (; times->looked_at < times->n; times->looked_at++) {
        struct item *item = &times->items[times->looked_at];
        if (!item->event)
            continue;
        if (item->clock != current) {
            (void)rg_driver.cuCtxSetCurrent(item->clock->object);
            rg_context_unknown();
            current = item->clock;
        }
        CUresult result = rg_driver.cuEventQuery(item->event);
        if (result == CUDA_ERROR_NOT_READY)
            return;
        if (result == CUDA_SUCCESS)
            read_event(item);
        else
            item->event = NULL; /* the context has failed */
    }
}

/* --- records -------------------------------------------------------------------------------------------- */

static struct times *times_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_TIMES];
}

static bool is_work(const struct rg_executor *executor)
{
    return rg_op_traits[executor->request.op] & (RG_TRAIT_ACCESSES | RG_TRAIT_HOST);
}

static void begin(struct rg_executor *executor)
{
    struct times *times = times_of(executor->worker);
    struct rg_request *request = &executor->request;
    pthread_mutex_lock(&times->lock);
    times->open++;
    if (is_work(executor) && !find_clock(times, request->thread->context) &&
        rg_request_make_current(request) == CUDA_SUCCESS)
        start_clock(times, request->thread->context);
    pthread_mutex_unlock(&times->lock);
    executor->time = (struct rg_time){.seq = executor->seq, .op = request->op, .begin = rg_now_ns()};
}

/* While nobody else executes records: later the stream may have ended. */
static void note_stream(struct rg_executor *executor)
{
    if (executor->stream && executor->stream->non_blocking)
        executor->time.flags |= RG_TIME_NON_BLOCKING;
}

static void detached(struct rg_executor *executor)
{
    note_stream(executor);
    executor->time.served = rg_now_ns();
    executor->time.flags |= RG_TIME_YIELDED;
}

/* An event behind the work that the record gave to a stream of the context, which is current. */
static void mark_work(struct times *times, struct rg_executor *executor, struct item *item)
{
    struct clock *clock = find_clock(times, executor->request.thread->context);
    if (!clock || !clock->base)
        return;
    if (!clock->n_unused && clock->n_made >= POOL) {
        look(times);
        (void)rg_request_make_current(&executor->request);
    }
    const CUevent event = take_event(clock);
    if (!event)
        return;
    if (rg_driver.cuEventRecord(event, executor->stream ? executor->stream->object : NULL) == CUDA_SUCCESS) {
        item->event = event;
        item->clock = clock;
    } else {
        clock->unused[clock->n_unused++] = event;
    }
}

static struct item *add_item(struct times *times)
{
    if (times->n == times->capacity) {
        const size_t capacity = times->capacity ? times->capacity * 2 : FIRST_SIZE;
        struct item *items =
            capacity <= RG_TIMES_MAX ? realloc(times->items, capacity * sizeof *items) : NULL;
        if (!items) {
            times->dropped++;
            return NULL;
        }
        times->items = items;
        times->capacity = capacity;
    }
    struct item *item = &times->items[times->n++];
    *item = (struct item){0};
    return item;
}

static void executed(struct rg_executor *executor)
{
    struct rg_time *time = &executor->time;
    if (!(time->flags & RG_TIME_YIELDED)) {
        note_stream(executor);
        time->served = rg_now_ns();
    }
    if (rg_op_traits[executor->request.op] & RG_TRAIT_BLOCKS)
        time->flags |= RG_TIME_BLOCKS;
    if (is_work(executor) && executor->request.result == CUDA_SUCCESS)
        time->flags |= RG_TIME_WORK;
}

static void finish(struct rg_executor *executor, uint64_t replied)
{
    struct times *times = times_of(executor->worker);
    struct rg_time *time = &executor->time;
    time->stream = executor->named_stream;
    time->event = executor->named_event;
    time->result = (int32_t)executor->request.result;
    time->reply = replied;
    time->sent = replied ? rg_now_ns() : 0;
    RG_SCOPED_LOCK(&times->lock);
    if (--times->open == 0)
        pthread_cond_broadcast(&times->closed);
    struct item *item = executor->request.violated ? NULL : add_item(times);
    if (item) {
        item->time = *time;
        /* what handed its roles over has waited for its work itself */
        if ((time->flags & RG_TIME_WORK) && !(time->flags & RG_TIME_YIELDED))
            mark_work(times, executor, item);
    }
}

/* Its events go with it. */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *state)
{
    struct times *times = times_of(worker);
    const uint64_t context = state->handle;
    if (!worker->observer)
        return;
    RG_SCOPED_LOCK(&times->lock);
    look(times);
    for (struct clock **at = &times->clocks; *at;) {
        struct clock *clock = *at;
        if (clock->context != context) {
            at = &clock->next;
            continue;
        }
        for (size_t i = times->looked_at; i < times->n; i++)
            if (times->items[i].clock == clock)
                times->items[i].event = NULL; /* goes with the context */
        *at = clock->next;
        free(clock);
    }
}

/* Replies that the client has got may have been sent by threads yet to note it; the lock is held. */
static void wait_for_open(struct times *times)
{
    const uint64_t until = rg_now_ns() + PATIENCE_NS;
    const struct timespec end = rg_timespec(until);
    while (times->open && pthread_cond_timedwait(&times->closed, &times->lock, &end) == 0)
        ;
}

/* --- the client asks ------------------------------------------------------------------------------------ */

static enum rg_answered answer(struct rg_worker *worker, const struct rg_message_header *header,
                               const struct rg_answer *asked, size_t bulk_size)
{
    (void)header;
    struct times *times = times_of(worker);
    const bool all = asked->arg[0] != 0; /* also what the device has not done yet */
    if (asked->type != RG_ANSWER_TIMES)
        return RG_ANSWERED_NOT_MINE;
    if (!worker->observer || bulk_size || asked->arg[0] > 1)
        return RG_ANSWERED_WRONG;
    struct rg_notice notice = {.type = RG_NOTICE_TIMES, .id = asked->id};
    struct rg_time *data = malloc(RG_TIMES_PART * sizeof *data);
    if (!data) {
        (void)rg_worker_notice(worker, &notice, NULL, 0, NULL, 0);
        return RG_ANSWERED_GOOD;
    }
    struct rg_device_gate *gate = &worker->device_gate;
    const bool entered = all ? rg_device_enter_out_of_order(worker, rg_now_ns() + RESUME_NS)
                             : rg_device_try_out_of_order(gate);
    pthread_mutex_lock(&times->lock);
    if (all)
        wait_for_open(times);
    if (entered) /* else the session is suspended */
        look(times);
    const size_t ready = all ? times->n : times->looked_at, n = ready < RG_TIMES_PART ? ready : RG_TIMES_PART;
    for (size_t i = 0; i < n; i++) {
        data[i] = times->items[i].time;
        struct clock *clock = times->items[i].event ? times->items[i].clock : NULL;
        if (clock) /* it has not come, and nobody will ask any more */
            clock->unused[clock->n_unused++] = times->items[i].event;
    }
    memmove(times->items, times->items + n, (times->n - n) * sizeof *times->items);
    times->n -= n;
    times->looked_at -= times->looked_at < n ? times->looked_at : n;
    notice.arg[0] = n;
    notice.arg[1] = times->dropped;
    notice.arg[2] = ready - n;
    pthread_mutex_unlock(&times->lock);
    if (entered)
        rg_device_leave(gate);
    (void)rg_worker_notice(worker, &notice, NULL, 0, data, n * sizeof *data);
    free(data);
    return RG_ANSWERED_GOOD;
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

void rg_times_start(struct rg_worker *worker)
{
    static const struct rg_observer observer = {begin, detached, executed, finish};
    worker->observer = &observer;
}

static void init(struct rg_worker *worker)
{
    struct times *times = times_of(worker);
    rg_cond_init(&times->closed);
}

static void fini(struct rg_worker *worker)
{
    struct times *times = times_of(worker);
    while (times->clocks) {
        struct clock *clock = times->clocks;
        times->clocks = clock->next;
        free(clock);
    }
    pthread_cond_destroy(&times->closed);
    free(times->items);
}

const struct rg_server_module rg_times_module = {
    .size = sizeof(struct times),
    .locked = true,
    .init = init,
    .fini = fini,
    .drop_context = drop_context,
    .answer = answer,
};
