/*
 * simulate.c - see simulate.h.
 *
 * Events in the order of their times: a thread takes its next step, the sender thread sends, a reply or deferred data is given
 * to the way back. What a message does on the server follows from its arrival at once, since messages arrive, and records
 * are executed, in the order in which they were sent.
 */
#include "client/predict/simulate.h"

#include "common/base/tuning.h"

#include <stdlib.h>
#include <string.h>

#define FRAME      40   /* bytes of a message besides its records: header and framing */
#define REPLY      64   /* of a reply besides its outputs */
#define SMALL_SIZE 64   /* a record that only asks */
#define SEND_NS    3000 /* that sending a message costs whoever sends it */
#define ASK_NS     1000 /* that answering a question costs the dispatcher */
#define DEFERRED_MAX                                                                                         \
    (RG_DEFERRED_SLOTS * RG_DEFERRED_CHUNK) /* bytes of deferred data that a stream may be ahead */
#define LEAST_NS 1000                       /* of a query in a loop */

enum event_kind { THREAD, SENDER, BACK };

struct event {
    uint64_t time, order;
    enum event_kind kind;
    uint32_t thread; /* BACK: who waits for it; UINT32_MAX: nobody */
    uint32_t record;
    bool promised, deferred;
    uint64_t ready; /* BACK: when the server has given all of it to the network */
    uint64_t bytes, down;
};

struct thread {
    size_t step;
    uint64_t now;
    bool parked; /* until threads it waits for have ended */
    bool ended;
    bool ready; /* what the query it waits for will say */
    bool waits;
    uint64_t since; /* it waits */
    unsigned sends_after_wait;
};

/* The reply of a record that somebody waits for later. */
struct answer {
    uint64_t there;
    bool came, awaited;
    uint32_t thread; /* that waits for it */
};

/* Who waits for a record that has been put into a batch. */
struct posted {
    uint32_t record; /* UINT32_MAX: one that asks what an optimisation would have known */
    uint32_t thread; /* UINT32_MAX: nobody */
};

struct simulation {
    const struct rg_model *model;
    const struct rg_wire *wire;
    bool async, batch, direct, deferred, push;
    double sent_share; /* of the bytes of records: the others repeat what has been sent */
    uint64_t off;
    struct event *heap;
    size_t n_events, events_capacity;
    uint64_t order;
    struct thread *threads;
    struct posted *batched;
    size_t n_batched, batch_capacity;
    uint64_t batch_bytes;
    bool sender_due;
    struct answer *answers;  /* by record */
    uint64_t next_direct;    /* when a thread may send for itself again */
    uint64_t deferred_until; /* when the last deferred data has left the server */
    uint64_t sender_free, calls_free, up_free, down_free, dispatcher_free;
    struct rg_device device;
    struct rg_outcome *out;
    bool failed;
};

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t gap(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

static uint64_t cost(const struct simulation *s, uint64_t bytes)
{
    return s->wire->bytes_per_second
               ? (uint64_t)((unsigned __int128)bytes * 1000000000u / s->wire->bytes_per_second)
               : 0;
}

/* --- events ---------------------------------------------------------------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static void push(struct simulation *s, struct event event)
{
    if (s->n_events == s->events_capacity) {
        const size_t capacity = s->events_capacity ? s->events_capacity * 2 : 256;
        struct event *heap = realloc(s->heap, capacity * sizeof *heap);
        if (!heap) {
            s->failed = true;
            return;
        }
        s->heap = heap;
        s->events_capacity = capacity;
    }
    event.order = s->order++;
    size_t at = s->n_events++;
    while (at > 0 && before(&event, &s->heap[(at - 1) / 2])) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = event;
}

static struct event pop(struct simulation *s)
{
    const struct event first = s->heap[0], last = s->heap[--s->n_events];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= s->n_events)
            break;
        if (child + 1 < s->n_events && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &last))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return first;
}

/* --- the server -------------------------------------------------------------------------------------------------- */

/* How long work takes on the device, with what it needs from the client meanwhile. */
static uint64_t work_time(const struct simulation *s, const struct rg_record_model *record)
{
    uint64_t time = record->use.time;
    if (record->flags & (RG_RECORD_DEFERRED_IN | RG_RECORD_HOST_CALL)) {
        const uint64_t trip = 2 * s->wire->oneway_ns;
        const uint64_t window = record->deferred / DEFERRED_MAX * trip; /* so much is asked for at a time */
        time = later(time, later(cost(s, record->deferred), window)) + trip;
    }
    return time;
}

/* Work begins; returns when the dispatcher has given it. */
static void work(struct simulation *s, const struct rg_record_model *record, uint64_t begin)
{
    const uint64_t start = rg_device_start(&s->device, record->use.stream, begin);
    uint64_t end = start + work_time(s, record);
    if (record->flags & RG_RECORD_DEFERRED_OUT) {
        push(s, (struct event){.time = start,
                               .kind = BACK,
                               .thread = UINT32_MAX,
                               .ready = end,
                               .deferred = true,
                               .record = UINT32_MAX,
                               .bytes = record->out});
        end = later(end, start + gap(cost(s, DEFERRED_MAX), cost(s, record->out)));
    }
    rg_device_end(&s->device, record->use.stream, end);
}

/* Sends the reply of a record to its thread: its data from `from` on, all of it by `ready`. */
static void reply(struct simulation *s, const struct posted *posted, uint64_t from, uint64_t ready,
                  uint64_t out, uint64_t down)
{
    const bool promised =
        posted->record != UINT32_MAX && s->model->records[posted->record].flags & RG_RECORD_ASYNC;
    if (posted->thread == UINT32_MAX && !promised)
        return;
    push(s, (struct event){.time = from,
                           .kind = BACK,
                           .thread = posted->thread,
                           .record = posted->record,
                           .ready = ready,
                           .promised = promised,
                           .bytes = REPLY + out,
                           .down = down});
}

/* A record that waits while others go on; also a deferred copy that is not deferred. */
static void wait_for_device(struct simulation *s, const struct posted *posted, uint64_t begin)
{
    const struct rg_record_model *record = &s->model->records[posted->record];
    const bool deferred = record->flags & RG_RECORD_DEFERRED_OUT;
    const uint64_t done = deferred ? rg_device_start(&s->device, record->use.stream, 0)
                                   : rg_device_done(&s->device, &record->use);
    const uint64_t waited = gap(begin, done), from = begin + waited;
    const uint64_t transfer = deferred ? record->use.time : record->transfer;
    s->dispatcher_free = begin + record->service + (waited < RG_WAIT_POLL_NS ? waited : RG_WAIT_POLL_NS);
    const uint64_t replied = from + (deferred ? record->use.time : record->tail);
    if (record->out && (deferred || record->use.act == RG_DEVICE_SYNC_STREAM))
        rg_device_end(&s->device, record->use.stream, replied);
    if (record->out > RG_LITTLE_REPLY)
        reply(s, posted, from, from + transfer, record->out, record->down);
    else
        reply(s, posted, replied, replied, record->out, record->down);
}

/* Executes a record whose message arrived at `head`, the last of its bulk data at `data`. */
static void execute(struct simulation *s, const struct posted *posted, uint64_t head, uint64_t data)
{
    uint64_t begin = later(head, s->dispatcher_free);
    if (posted->record == UINT32_MAX) {
        s->dispatcher_free = begin + ASK_NS;
        reply(s, posted, s->dispatcher_free, s->dispatcher_free, SMALL_SIZE, s->model->down);
        return;
    }
    const struct rg_record_model *record = &s->model->records[posted->record];
    if (record->flags & RG_RECORD_WAITS || (record->flags & RG_RECORD_DEFERRED_OUT && !s->deferred)) {
        wait_for_device(s, posted, begin);
        return;
    }
    if (record->flags & RG_RECORD_BLOCKS)
        begin = later(begin, s->device.all);
    if (record->use.act == RG_DEVICE_WORK)
        work(s, record, begin);
    else if (record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL) && posted->thread != UINT32_MAX)
        s->threads[posted->thread].ready = rg_device_done(&s->device, &record->use) <= begin;
    else
        rg_device_order(&s->device, &record->use, begin);
    s->dispatcher_free = later(begin + record->service, data);
    const uint64_t replied = s->dispatcher_free + record->tail;
    reply(s, posted, replied, replied + (record->out > RG_LITTLE_REPLY ? record->transfer : 0), record->out,
          record->down);
}

/* --- the wire -------------------------------------------------------------------------------------------------------- */

/* Sends what has been put; returns when the sender may go on. */
static uint64_t flush(struct simulation *s, uint64_t now)
{
    if (!s->n_batched)
        return now;
    const struct posted *last = &s->batched[s->n_batched - 1];
    const bool asks = last->record == UINT32_MAX;
    const uint64_t bulk = asks ? 0 : s->model->records[last->record].bulk;
    const uint64_t up =
        asks || last->thread == UINT32_MAX ? s->model->up : s->model->records[last->record].up;
    const uint64_t calls = FRAME + (uint64_t)((double)s->batch_bytes * s->sent_share);
    const uint64_t bytes = calls + bulk, message = cost(s, calls);
    const uint64_t sent = later(later(now, s->sender_free), s->calls_free);
    /* bulk data waits for what is on the wire; calls go between it */
    s->up_free = later(s->up_free, sent) + cost(s, bytes);
    s->calls_free = sent + message;
    const uint64_t left = bulk ? s->up_free : s->calls_free, arrived = left + s->wire->oneway_ns;
    const uint64_t head = (s->wire->whole ? arrived : s->calls_free + s->wire->oneway_ns) + up;
    s->sender_free = later(sent + SEND_NS, gap(cost(s, s->wire->buffer), left));
    s->out->messages++;
    s->out->sent += bytes;
    for (size_t i = 0; i < s->n_batched; i++)
        execute(s, &s->batched[i], head, bulk && i + 1 == s->n_batched ? arrived : 0);
    s->n_batched = 0;
    s->batch_bytes = 0;
    return s->sender_free;
}

static void put(struct simulation *s, uint32_t record, uint32_t thread)
{
    if (s->n_batched == s->batch_capacity) {
        const size_t capacity = s->batch_capacity ? s->batch_capacity * 2 : 256;
        struct posted *batched = realloc(s->batched, capacity * sizeof *batched);
        if (!batched) {
            s->failed = true;
            return;
        }
        s->batched = batched;
        s->batch_capacity = capacity;
    }
    s->batched[s->n_batched++] = (struct posted){record, thread};
    s->batch_bytes +=
        record == UINT32_MAX || !s->model->records[record].size ? SMALL_SIZE : s->model->records[record].size;
}

/* Something comes back. */
static void come_back(struct simulation *s, const struct event *event)
{
    s->down_free = later(event->time, s->down_free) + cost(s, event->bytes);
    s->out->received += event->bytes;
    /* small results go between data */
    uint64_t left = event->bytes > RG_LITTLE_REPLY ? s->down_free : event->time + cost(s, event->bytes);
    if (event->deferred)
        s->deferred_until = later(s->deferred_until, later(event->ready, left));
    else if (event->record != UINT32_MAX && s->model->records[event->record].flags & RG_RECORD_WAITS)
        left = later(left, s->deferred_until); /* whoever has waited for the device has its data */
    const uint64_t there = later(event->ready, left) + s->wire->oneway_ns + event->down;
    uint32_t thread = event->thread;
    if (thread == UINT32_MAX && event->promised) {
        struct answer *answer = &s->answers[event->record];
        answer->came = true;
        answer->there = there;
        thread = answer->awaited ? answer->thread : UINT32_MAX;
    }
    if (thread == UINT32_MAX)
        return;
    push(s, (struct event){.time = there, .kind = THREAD, .thread = thread});
}

/* --- threads ---------------------------------------------------------------------------------------------------------- */

/* The thread comes to its next step when it has computed, if the threads it waits for have ended. */
static void go_on(struct simulation *s, uint32_t number, uint64_t now);

static void start_children(struct simulation *s, uint32_t parent, size_t step, uint64_t now)
{
    for (uint32_t i = 1; s->model->threads[parent].steps[step].starts && i < s->model->n_threads; i++) {
        const struct rg_thread_model *child = &s->model->threads[i];
        if (child->parent == parent && child->parent_step == step)
            go_on(s, i, now + child->offset);
    }
}

static void go_on(struct simulation *s, uint32_t number, uint64_t now)
{
    struct thread *thread = &s->threads[number];
    const struct rg_step *step = &s->model->threads[number].steps[thread->step];
    thread->now = now;
    if (step->join)
        for (const uint32_t *other = &s->model->joins[step->join]; *other != UINT32_MAX; other++) {
            if (!s->threads[*other].ended) {
                thread->parked = true;
                return;
            }
            now = later(now, s->threads[*other].now);
        }
    thread->parked = false;
    push(s, (struct event){.time = now + step->gap, .kind = THREAD, .thread = number});
}

/* The step is over at `now`. */
static void step_over(struct simulation *s, uint32_t number, uint64_t now)
{
    struct thread *thread = &s->threads[number];
    start_children(s, number, thread->step, now);
    thread->step++;
    go_on(s, number, now);
}

/* The thread waits until then, for something else than a reply. */
static void wait_until(struct simulation *s, uint32_t number, uint64_t now, uint64_t until)
{
    s->out->waited_ns += gap(now, until);
    step_over(s, number, later(now, until));
}

/* The thread waits from now on; the reply comes as an event. */
static void wait(struct simulation *s, uint32_t number, uint64_t now)
{
    s->threads[number].waits = true;
    s->threads[number].since = now;
    s->out->round_trips++;
    flush(s, now);
}

/* Waits for a reply that was asked for before, if it is not there. */
static void wait_for_promise(struct simulation *s, uint32_t number, uint32_t record, uint64_t now)
{
    struct answer *answer = &s->answers[record];
    flush(s, now);
    if (answer->came && answer->there <= now) {
        step_over(s, number, now);
        return;
    }
    s->threads[number].waits = true;
    s->threads[number].since = now;
    s->out->round_trips++;
    answer->awaited = true;
    answer->thread = number;
    if (answer->came)
        push(s, (struct event){.time = answer->there, .kind = THREAD, .thread = number});
}

static void end_thread(struct simulation *s, uint32_t number, uint64_t now)
{
    s->threads[number].ended = true;
    s->threads[number].now = now;
    if (s->threads[0].parked)
        go_on(s, 0, s->threads[0].now);
}

/* Whether the thread's next step waits for this very record. */
static bool waits_next(const struct rg_thread_model *thread, size_t step, uint32_t record)
{
    const struct rg_step *next = &thread->steps[step + 1]; /* there is always an end */
    return (next->kind == RG_STEP_REPLY || next->kind == RG_STEP_SEND) && next->record == record;
}

/* Whether a thread that waits for nothing sends for itself (client/command.c: send_on_idle_wire). */
static bool may_send(const struct simulation *s, struct thread *thread, uint64_t now)
{
    const bool fresh = thread->sends_after_wait > 0;
    thread->sends_after_wait -= fresh;
    return (fresh || now >= s->next_direct) && s->sender_free <= now;
}

static void post(struct simulation *s, uint32_t number, const struct rg_step *step, uint64_t now)
{
    const struct rg_thread_model *thread = &s->model->threads[number];
    const struct rg_record_model *record = &s->model->records[step->record];
    const bool deferred = record->flags & RG_RECORD_DEFERRED_OUT && !s->deferred;
    if (waits_next(thread, s->threads[number].step, step->record)) {
        const bool replies = thread->steps[s->threads[number].step + 1].kind == RG_STEP_REPLY || !s->async;
        put(s, step->record, replies ? number : UINT32_MAX);
        step_over(s, number, now);
    } else if (!s->async || deferred) {
        put(s, step->record, number);
        wait(s, number, now);
    } else {
        put(s, step->record, UINT32_MAX);
        if (!s->batch) {
            now = flush(s, now);
        } else if (s->direct && may_send(s, &s->threads[number], now)) {
            flush(s, now);
            s->next_direct = now + RG_INLINE_SEND_SHARE * SEND_NS;
        } else if (!s->sender_due) {
            s->sender_due = true;
            push(s, (struct event){.time = later(now + s->model->wake, s->sender_free), .kind = SENDER});
        }
        step_over(s, number, now);
    }
}

/* When the client is told that what is asked about is done. */
static uint64_t told(const struct simulation *s, const struct rg_record_model *record)
{
    return rg_device_done(&s->device, &record->use) + s->wire->oneway_ns +
           (record->flags & RG_RECORD_POLL ? record->down : s->model->down);
}

static void skip_to(struct simulation *s, uint32_t number, size_t step, uint64_t now)
{
    struct thread *thread = &s->threads[number];
    for (; thread->step < step; thread->step++)
        start_children(s, number, thread->step, now);
    go_on(s, number, now);
}

/* A query has been answered: the loop that it is in is as long as it takes here, not as it was. */
static void queried(struct simulation *s, uint32_t number, const struct rg_record_model *record, uint64_t now)
{
    struct thread *thread = &s->threads[number];
    const bool was_ready = record->flags & RG_RECORD_READY;
    if (was_ready == thread->ready) {
        step_over(s, number, now);
    } else if (thread->ready) {
        skip_to(s, number, record->skip, now);
    } else if (s->push) {
        step_over(s, number, later(now, told(s, record)));
    } else {
        if (!(record->flags & RG_RECORD_POLL))
            thread->step--; /* to its post */
        now += LEAST_NS;
        const uint64_t each = LEAST_NS + 2 * s->wire->oneway_ns + s->model->round_trip;
        const uint64_t in_vain = gap(now + each, rg_device_done(&s->device, &record->use)) / each;
        s->out->round_trips += in_vain;
        s->out->messages += in_vain;
        s->out->waited_ns += in_vain * each;
        push(s, (struct event){.time = now + in_vain * each, .kind = THREAD, .thread = number});
    }
}

/* Queries that need no server, as long as the client is told; else they are queries as all others. */
static void poll(struct simulation *s, uint32_t number, const struct rg_step *step, uint64_t now)
{
    const struct rg_record_model *record = &s->model->records[step->record];
    if (!s->push) {
        put(s, step->record, number);
        wait(s, number, now);
        return;
    }
    flush(s, now); /* what is asked about may not have been sent */
    const uint64_t done = told(s, record);
    if (record->flags & RG_RECORD_READY)
        step_over(s, number, later(now, done));
    else if (done <= now)
        skip_to(s, number, record->skip, now);
    else
        step_over(s, number, now + step->time);
}

/* The thread is at its step, or what it waited for in it has come. */
static void run_thread(struct simulation *s, uint32_t number, uint64_t now)
{
    struct thread *thread = &s->threads[number];
    const struct rg_step *step = &s->model->threads[number].steps[thread->step];
    if (thread->waits) {
        s->out->waited_ns += gap(thread->since, now);
        thread->waits = false;
        thread->sends_after_wait = RG_INLINE_SEND_AFTER_WAIT;
        const struct rg_record_model *record = step->kind == RG_STEP_REPLY || step->kind == RG_STEP_POLL
                                                   ? &s->model->records[step->record]
                                                   : NULL;
        if (record && record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL))
            queried(s, number, record, now);
        else
            step_over(s, number, now);
        return;
    }
    switch (step->kind) {
    case RG_STEP_POST:
        post(s, number, step, now);
        return;
    case RG_STEP_REPLY:
        if (s->model->records[step->record].flags & RG_RECORD_ASYNC)
            wait_for_promise(s, number, step->record, now);
        else
            wait(s, number, now);
        return;
    case RG_STEP_SEND:
        if (s->async)
            wait_until(s, number, now, later(now + step->time, flush(s, now)));
        else
            wait(s, number, now);
        return;
    case RG_STEP_POLL:
        poll(s, number, step, now);
        return;
    case RG_STEP_SAVED:
        if (s->off >> step->record & 1) {
            put(s, UINT32_MAX, number);
            wait(s, number, now);
        } else {
            step_over(s, number, now);
        }
        return;
    case RG_STEP_CONNECT:
        wait_until(s, number, now, now + step->time + (s->wire->whole ? 2 : 4) * s->wire->oneway_ns);
        return;
    case RG_STEP_ASK:
        wait_until(s, number, now, now + step->time + 2 * s->wire->oneway_ns);
        return;
    case RG_STEP_END:
        end_thread(s, number, now);
        return;
    }
}

/* --- the whole -------------------------------------------------------------------------------------------------------- */

static bool is_on(const struct rg_trace *trace, const char *name, uint64_t off)
{
    for (size_t i = 0; i < trace->optimisations.n; i++)
        if (strcmp(trace->optimisations.names[i], name) == 0)
            return trace->optimisations_on >> i & ~(off >> i) & 1;
    return false;
}

/* How much of the records' bytes is sent: as much as in the recorded run, of each alike. */
static double find_sent_share(const struct rg_model *model)
{
    uint64_t all = 0;
    for (size_t i = 0; i < model->n_records; i++)
        all += model->records[i].size;
    return all > model->trace->repeated ? 1 - (double)model->trace->repeated / (double)all : 1;
}

uint64_t rg_simulated_optimisations(const struct rg_model *model)
{
    static const char *const ways[] = {"async", "batch", "direct", "late", "push", "delta"};
    const struct rg_trace *trace = model->trace;
    uint64_t known = model->saved;
    for (size_t i = 0; i < trace->optimisations.n; i++)
        for (size_t j = 0; j < sizeof ways / sizeof *ways; j++)
            if (strcmp(trace->optimisations.names[i], ways[j]) == 0)
                known |= 1ull << i;
    return known & trace->optimisations_on;
}

static void run(struct simulation *s)
{
    go_on(s, 0, s->model->threads[0].offset);
    for (uint32_t i = 1; i < s->model->n_threads; i++)
        if (s->model->threads[i].parent == i)
            go_on(s, i, s->model->threads[i].offset);
    while (s->n_events && !s->failed && !s->threads[0].ended) {
        const struct event event = pop(s);
        switch (event.kind) {
        case THREAD:
            run_thread(s, event.thread, event.time);
            break;
        case SENDER:
            s->sender_due = false;
            flush(s, event.time);
            break;
        case BACK:
            come_back(s, &event);
            break;
        }
    }
    s->out->ns = s->threads[0].now;
}

enum rg_status rg_simulate(const struct rg_model *model, const struct rg_wire *wire, uint64_t off,
                           struct rg_outcome *out)
{
    *out = (struct rg_outcome){0};
    struct simulation s = {.model = model,
                           .wire = wire,
                           .off = off,
                           .async = is_on(model->trace, "async", off),
                           .batch = is_on(model->trace, "batch", off),
                           .direct = is_on(model->trace, "direct", off),
                           .deferred = is_on(model->trace, "late", off),
                           .push = is_on(model->trace, "push", off),
                           .sent_share = is_on(model->trace, "delta", off) ? find_sent_share(model) : 1,
                           .out = out};
    s.threads = calloc(model->n_threads, sizeof *s.threads);
    s.answers = calloc(model->n_records + 1, sizeof *s.answers);
    s.failed = !s.threads || !s.answers || !rg_device_init(&s.device, &model->names);
    if (!s.failed)
        run(&s);
    free(s.heap);
    free(s.threads);
    free(s.batched);
    free(s.answers);
    rg_device_free(&s.device);
    return s.failed ? RG_ERR_NO_MEMORY : RG_OK;
}
