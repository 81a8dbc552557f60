/*
 * gate.c - the devices of a session: what the dispatcher asks before and after each record, and the keepers (gate.h).
 *
 * The dispatcher has a record admitted by the pacer of its context's device; if that is not to be yet, it sleeps until the device's bell
 * rings, or as long as the pacer says, and tends the device in between. An executed record leaves its stream among those that must be
 * done before the turn ends. Whenever the dispatcher does not, the device's keeper tends it; it sleeps as long as there is nothing to see.
 */
#include "server/shares/gate/gate.h"

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "server/core/leader_followers.h"
#include "server/modules.h"
#include "server/shares/gate/kinds.h"
#include "server/shares/gate/streams.h"

#include <stdlib.h>

#define REST_NS  1000000u   /* a keeper that has nothing to look at, but may soon have, looks so often */
#define LATEST   100000000u /* nobody sleeps longer than this without a look */
#define SOON_NS  200000u    /* a keeper that sleeps longer is woken for a new chunk */
#define AWAKE_NS 10000000u  /* it stays awake so long for the next one */

/** One device of the session. */
struct rg_gate_device {
    struct rg_worker *worker;
    uint32_t index;
    pthread_mutex_t lock; /* guards what follows */
    struct rg_pacer pacer;
    struct rg_busy_streams streams;
    unsigned executing; /* admitted records that are being executed */
    bool pending;       /* the dispatcher waits for its turn, and tends the device */
    bool joined;
    uint32_t share_changed;
    /* the keeper's; set under the lock */
    uint64_t looks_at; /* UINT64_MAX: when it is rung for */
    pthread_t keeper;
    bool runs;
};

struct gate {
    struct rg_gate_device *devices;
    uint32_t n;
    void (*share)(struct rg_gate_share *out, uint32_t *changed);
    void (*counted)(uint32_t device, const struct rg_gate_counts *counts);
};

static struct gate *gate_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_GATE];
}

/* --- one device, its lock held -------------------------------------------------------------------------- */

/* What the session may have can change while it runs. */
static void take_share(struct rg_gate_device *device, uint64_t now)
{
    struct rg_gate_share share;
    uint32_t changed = device->share_changed;
    gate_of(device->worker)->share(&share, &changed);
    if (device->joined && changed == device->share_changed)
        return;
    device->joined = true;
    device->share_changed = changed;
    rg_pacer_set(&device->pacer, share.cap_millionths, share.weight, share.priority, now);
}

static void count(struct rg_gate_device *device)
{
    const struct rg_pacer *pacer = &device->pacer;
    const struct rg_gate_counts counts = {
        .busy_ns = pacer->busy_ns,
        .throttled_ns = pacer->throttled_ns,
        .admitted = pacer->admitted,
        .last_use_ns = pacer->active_at,
    };
    gate_of(device->worker)->counted(device->index, &counts);
}

/* Looks whether the device is done, and goes on from there. Returns when to look again. */
static uint64_t tend(struct rg_gate_device *device)
{
    if (!device->joined)
        return UINT64_MAX;
    const uint64_t now = rg_now_ns(); /* before the look: what is not done then was not done now */
    const bool done = rg_busy_streams_done(&device->streams) && device->executing == 0;
    const struct rg_pacer_seen seen = {
        .now = now,
        .done = done,
        .pending = device->pending,
        .blocked = atomic_load(&device->worker->answers_due) != 0,
    };
    const uint64_t next = rg_pacer_step(&device->pacer, &seen);
    count(device);
    return next;
}

static void sleep_until(struct rg_gate_device *device, uint32_t bell, uint64_t until)
{
    const uint64_t now = rg_now_ns();
    if (until > now)
        rg_turns_sleep(device->pacer.turns, device->pacer.place, bell,
                       until - now < LATEST ? until - now : LATEST);
}

/* --- the keeper ----------------------------------------------------------------------------------------- */

/* One look; returns how long to rest. */
static uint64_t keep(struct rg_gate_device *device)
{
    RG_SCOPED_LOCK(&device->lock);
    uint64_t now = rg_now_ns();
    if (device->pending) { /* the dispatcher tends it, and rings when it no longer does */
        device->looks_at = now + LATEST;
        return device->looks_at;
    }
    const uint64_t next = tend(device);
    now = rg_now_ns();
    device->looks_at = next == UINT64_MAX && now - device->pacer.active_at < AWAKE_NS ? now + REST_NS : next;
    return device->looks_at;
}

static void *keeper_main(void *arg)
{
    struct rg_gate_device *device = arg;
    struct rg_pacer *pacer = &device->pacer;
    rg_thread_sleep_precisely();
    rg_thread_expect_little();
    while (!rg_worker_over(device->worker)) {
        const uint32_t bell = rg_turns_bell(pacer->turns, pacer->place);
        sleep_until(device, bell, keep(device));
    }
    return NULL;
}

/* --- records -------------------------------------------------------------------------------------------- */

static struct rg_gate_device *device_at(struct gate *gate, const struct rg_worker_context *context)
{
    return context && context->device >= 0 && (uint32_t)context->device < gate->n
               ? &gate->devices[context->device]
               : &gate->devices[0];
}

/* The device that the record's context is on; the lock of none is held. The dispatcher. */
static struct rg_gate_device *device_of(struct rg_executor *executor, const struct rg_record *record)
{
    struct gate *gate = gate_of(executor->worker);
    if (gate->n == 1)
        return &gate->devices[0];
    const struct rg_client_thread *thread =
        record->thread < RG_CLIENT_THREADS_MAX ? executor->worker->threads[record->thread] : NULL;
    return device_at(gate,
                     thread && thread->context ? rg_context_find(executor->worker, thread->context) : NULL);
}

/* There is something new to look at: true: the keeper is to be woken for it. The lock is held. */
static bool wakes(struct rg_gate_device *device, uint64_t now)
{
    const bool hurried = !rg_pacer_alone(&device->pacer) && !device->pacer.calm;
    const bool sleeps = device->looks_at > now + (hurried ? SOON_NS : 2 * REST_NS);
    if (sleeps)
        device->looks_at = now;
    return sleeps;
}

static bool admit(struct rg_executor *executor, const struct rg_record *record,
                  const unsigned char *parameters)
{
    struct rg_gate_device *device = device_of(executor, record);
    bool ring;
    {
        RG_SCOPED_LOCK(&device->lock);
        const uint64_t now = rg_now_ns();
        take_share(device, now);
        /* Alone nothing is guessed; if another session has just come, this one counts as of a kind of its own. */
        const uint64_t kind = rg_pacer_alone(&device->pacer)
                                  ? 1
                                  : rg_gate_kind(record->op, parameters, record->size - sizeof *record);
        device->pending = !rg_pacer_admit(&device->pacer, kind, now);
        executor->admitted = device;
        if (device->pending)
            return false;
        device->executing++;
        ring = wakes(device, now);
    }
    if (ring)
        rg_turns_ring(device->pacer.turns, device->pacer.place);
    return true;
}

static void wait_for_turn(struct rg_executor *executor)
{
    struct rg_gate_device *device = executor->admitted;
    const uint32_t bell = rg_turns_bell(device->pacer.turns, device->pacer.place);
    uint64_t next;
    {
        RG_SCOPED_LOCK(&device->lock);
        next = tend(device);
    }
    static _Thread_local bool precise;
    if (!precise)
        rg_thread_sleep_precisely();
    precise = true;
    sleep_until(device, bell, next);
}

/* A record has given work to a stream of another device than that of its thread's context, as copies may: that one is charged. */
static void note(struct rg_gate_device *device, CUcontext context, CUstream stream)
{
    bool ring;
    {
        RG_SCOPED_LOCK(&device->lock);
        const uint64_t now = rg_now_ns();
        take_share(device, now);
        rg_pacer_note(&device->pacer, now);
        (void)rg_busy_streams_add(&device->streams, context, stream);
        ring = wakes(device, now);
    }
    if (ring)
        rg_turns_ring(device->pacer.turns, device->pacer.place);
}

/* What did not wait for its own work has left it in its stream. */
static void executed(struct rg_executor *executor, bool mine)
{
    struct rg_gate_device *device = executor->admitted, *other = device;
    executor->admitted = NULL;
    CUcontext context = NULL;
    CUstream stream = NULL;
    if (mine) {
        const uint64_t handle =
            executor->stream ? executor->stream->context : executor->request.thread->context;
        const struct rg_worker_context *state = handle ? rg_context_find(executor->worker, handle) : NULL;
        context = state ? state->object : NULL;
        stream = executor->stream ? executor->stream->object : NULL;
        other = state ? device_at(gate_of(executor->worker), state) : device;
    }
    {
        RG_SCOPED_LOCK(&device->lock);
        device->executing--;
        if (context && other == device)
            (void)rg_busy_streams_add(&device->streams, context, stream);
        else if (!context && !device->pending && !rg_pacer_alone(&device->pacer))
            (void)tend(device);
    }
    if (other != device)
        note(other, context, stream);
}

static void awaited(struct rg_worker *worker)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++) {
        RG_SCOPED_LOCK(&gate->devices[i].lock);
        if (gate->devices[i].joined && !rg_pacer_alone(&gate->devices[i].pacer))
            (void)tend(&gate->devices[i]);
    }
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

enum rg_status rg_gate_start(struct rg_worker *worker, const struct rg_gate_attachment *attachments,
                             uint32_t n, void (*share)(struct rg_gate_share *out, uint32_t *changed),
                             void (*counted)(uint32_t device, const struct rg_gate_counts *counts))
{
    static const struct rg_turn_hooks hooks = {admit, wait_for_turn, executed, awaited};
    struct gate *gate = gate_of(worker);
    gate->share = share;
    gate->counted = counted;
    gate->devices = calloc(n, sizeof *gate->devices);
    if (!gate->devices)
        return RG_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct rg_gate_device *device = &gate->devices[i];
        device->worker = worker;
        device->index = i;
        device->looks_at = UINT64_MAX;
        pthread_mutex_init(&device->lock, NULL);
        rg_pacer_init(&device->pacer, attachments[i].turns, attachments[i].place);
        gate->n = i + 1;
        if (rg_thread_create(&device->keeper, "rg-turns", keeper_main, device) != RG_OK)
            return RG_ERR_NO_MEMORY;
        device->runs = true;
    }
    worker->turns = &hooks;
    return RG_OK;
}

/* What the session has left in streams is asked about by the keepers. */
static bool busy(struct rg_worker *worker)
{
    struct gate *gate = gate_of(worker);
    bool any = false;
    for (uint32_t i = 0; i < gate->n && !any; i++) {
        RG_SCOPED_LOCK(&gate->devices[i].lock);
        any = !rg_busy_streams_done(&gate->devices[i].streams);
    }
    return any;
}

static void wake(struct rg_worker *worker)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++)
        rg_turns_ring(gate->devices[i].pacer.turns, gate->devices[i].pacer.place);
}

/* The keepers end before contexts do, and with them the session's turns. */
static void stop(struct rg_worker *worker)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++) {
        struct rg_gate_device *device = &gate->devices[i];
        if (device->runs)
            pthread_join(device->keeper, NULL);
        device->runs = false;
        if (device->joined)
            rg_pacer_leave(&device->pacer, rg_now_ns());
    }
}

static void fini(struct rg_worker *worker)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++) {
        rg_busy_streams_fini(&gate->devices[i].streams);
        pthread_mutex_destroy(&gate->devices[i].lock);
    }
    free(gate->devices);
    gate->devices = NULL;
    gate->n = 0;
}

static void drop_stream(struct rg_worker *worker, struct rg_worker_stream *stream)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++) {
        RG_SCOPED_LOCK(&gate->devices[i].lock);
        rg_busy_streams_drop_stream(&gate->devices[i].streams, stream->object);
    }
}

static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct gate *gate = gate_of(worker);
    for (uint32_t i = 0; i < gate->n; i++) {
        RG_SCOPED_LOCK(&gate->devices[i].lock);
        rg_busy_streams_drop_context(&gate->devices[i].streams, context->object);
    }
}

const struct rg_server_module rg_gate_module = {
    .size = sizeof(struct gate),
    .busy = busy,
    .wake = wake,
    .stop = stop,
    .fini = fini,
    .drop_stream = drop_stream,
    .drop_context = drop_context,
};
