/*
 * simulate_server.c - the wire and the server of a simulation.
 *
 * What a message does on the server follows from its arrival at once, since messages arrive, and records are
 * executed, in the order in which they were sent.
 */
#include "client/predict/simulation.h"
#include "common/base/tuning.h"

#include <stdlib.h>

#define FRAME      40   /* bytes of a message besides its records: header and framing */
#define REPLY      64   /* of a reply besides its outputs */
#define SMALL_SIZE 64   /* a record that only asks */
#define ASK_NS     1000 /* that answering a question costs the dispatcher */
#define DEFERRED_MAX                                                                                         \
    (RG_DEFERRED_SLOTS * RG_DEFERRED_CHUNK) /* bytes of deferred data that a stream may be ahead */

static uint64_t cost(const struct rg_simulation *s, uint64_t bytes)
{
    return s->wire->bytes_per_second
               ? (uint64_t)((unsigned __int128)bytes * 1000000000u / s->wire->bytes_per_second)
               : 0;
}

/* --- the server ----------------------------------------------------------------------------------------- */

/* How long work takes on the device, with what it needs from the client meanwhile. */
static uint64_t work_time(const struct rg_simulation *s, const struct rg_record_model *record)
{
    uint64_t time = record->use.time;
    if (record->flags & (RG_RECORD_DEFERRED_IN | RG_RECORD_HOST_CALL)) {
        const uint64_t trip = 2 * s->wire->oneway_ns;
        const uint64_t window = record->deferred / DEFERRED_MAX * trip; /* so much is asked for at a time */
        time = rg_sim_later(time, rg_sim_later(cost(s, record->deferred), window)) + trip;
    }
    return time;
}

/* Work begins; returns when the dispatcher has given it. */
static void work(struct rg_simulation *s, const struct rg_record_model *record, uint64_t begin)
{
    const uint64_t start = rg_device_start(&s->device, record->use.stream, begin);
    uint64_t end = start + work_time(s, record);
    if (record->flags & RG_RECORD_DEFERRED_OUT) {
        rg_sim_push(s, (struct rg_sim_event){.time = start,
                                             .kind = RG_SIM_BACK,
                                             .thread = UINT32_MAX,
                                             .ready = end,
                                             .deferred = true,
                                             .record = UINT32_MAX,
                                             .bytes = record->out});
        end = rg_sim_later(end, start + rg_sim_gap(cost(s, DEFERRED_MAX), cost(s, record->out)));
    }
    rg_device_end(&s->device, record->use.stream, end);
}

/* Sends the reply of a record to its thread: its data from `from` on, all of it by `ready`. */
static void reply(struct rg_simulation *s, const struct rg_sim_posted *posted, uint64_t from, uint64_t ready,
                  uint64_t out, uint64_t down)
{
    const bool async =
        posted->record != UINT32_MAX && s->model->records[posted->record].flags & RG_RECORD_ASYNC;
    if (posted->thread == UINT32_MAX && !async)
        return;
    rg_sim_push(s, (struct rg_sim_event){.time = from,
                                         .kind = RG_SIM_BACK,
                                         .thread = posted->thread,
                                         .record = posted->record,
                                         .ready = ready,
                                         .async = async,
                                         .bytes = REPLY + out,
                                         .down = down});
}

/* A record that waits while others go on; also a deferred copy that is not deferred. */
static void wait_for_device(struct rg_simulation *s, const struct rg_sim_posted *posted, uint64_t begin)
{
    const struct rg_record_model *record = &s->model->records[posted->record];
    const bool deferred = record->flags & RG_RECORD_DEFERRED_OUT;
    const uint64_t done = deferred ? rg_device_start(&s->device, record->use.stream, 0)
                                   : rg_device_done(&s->device, &record->use);
    const uint64_t waited = rg_sim_gap(begin, done), from = begin + waited;
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
static void execute(struct rg_simulation *s, const struct rg_sim_posted *posted, uint64_t head, uint64_t data)
{
    uint64_t begin = rg_sim_later(head, s->dispatcher_free);
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
        begin = rg_sim_later(begin, s->device.all);
    if (record->use.act == RG_DEVICE_WORK)
        work(s, record, begin);
    else if (record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL) && posted->thread != UINT32_MAX)
        s->threads[posted->thread].ready = rg_device_done(&s->device, &record->use) <= begin;
    else
        rg_device_order(&s->device, &record->use, begin);
    s->dispatcher_free = rg_sim_later(begin + record->service, data);
    const uint64_t replied = s->dispatcher_free + record->tail;
    reply(s, posted, replied, replied + (record->out > RG_LITTLE_REPLY ? record->transfer : 0), record->out,
          record->down);
}

/* --- the wire ------------------------------------------------------------------------------------------- */

uint64_t rg_sim_flush(struct rg_simulation *s, uint64_t now)
{
    if (!s->n_batched)
        return now;
    const struct rg_sim_posted *last = &s->batched[s->n_batched - 1];
    const bool asks = last->record == UINT32_MAX;
    const uint64_t bulk = asks ? 0 : s->model->records[last->record].bulk;
    const uint64_t up =
        asks || last->thread == UINT32_MAX ? s->model->up : s->model->records[last->record].up;
    const uint64_t calls = FRAME + (uint64_t)((double)s->batch_bytes * s->sent_share);
    const uint64_t bytes = calls + bulk, message = cost(s, calls);
    const uint64_t sent = rg_sim_later(rg_sim_later(now, s->sender_free), s->calls_free);
    /* bulk data waits for what is on the wire; calls go between it */
    s->up_free = rg_sim_later(s->up_free, sent) + cost(s, bytes);
    s->calls_free = sent + message;
    const uint64_t left = bulk ? s->up_free : s->calls_free, arrived = left + s->wire->oneway_ns;
    const uint64_t head = (s->wire->whole ? arrived : s->calls_free + s->wire->oneway_ns) + up;
    s->sender_free = rg_sim_later(sent + RG_SIM_SEND_NS, rg_sim_gap(cost(s, s->wire->buffer), left));
    s->out->messages++;
    s->out->sent += bytes;
    for (size_t i = 0; i < s->n_batched; i++)
        execute(s, &s->batched[i], head, bulk && i + 1 == s->n_batched ? arrived : 0);
    s->n_batched = 0;
    s->batch_bytes = 0;
    return s->sender_free;
}

void rg_sim_put(struct rg_simulation *s, uint32_t record, uint32_t thread)
{
    if (s->n_batched == s->batch_capacity) {
        const size_t capacity = s->batch_capacity ? s->batch_capacity * 2 : 256;
        struct rg_sim_posted *batched = realloc(s->batched, capacity * sizeof *batched);
        if (!batched) {
            s->failed = true;
            return;
        }
        s->batched = batched;
        s->batch_capacity = capacity;
    }
    s->batched[s->n_batched++] = (struct rg_sim_posted){record, thread};
    s->batch_bytes +=
        record == UINT32_MAX || !s->model->records[record].size ? SMALL_SIZE : s->model->records[record].size;
}

void rg_sim_come_back(struct rg_simulation *s, const struct rg_sim_event *event)
{
    s->down_free = rg_sim_later(event->time, s->down_free) + cost(s, event->bytes);
    s->out->received += event->bytes;
    /* small results go between data */
    uint64_t left = event->bytes > RG_LITTLE_REPLY ? s->down_free : event->time + cost(s, event->bytes);
    if (event->deferred)
        s->deferred_until = rg_sim_later(s->deferred_until, rg_sim_later(event->ready, left));
    else if (event->record != UINT32_MAX && s->model->records[event->record].flags & RG_RECORD_WAITS)
        left = rg_sim_later(left, s->deferred_until); /* whoever has waited for the device has its data */
    const uint64_t there = rg_sim_later(event->ready, left) + s->wire->oneway_ns + event->down;
    uint32_t thread = event->thread;
    if (thread == UINT32_MAX && event->async) {
        struct rg_sim_answer *answer = &s->answers[event->record];
        answer->came = true;
        answer->there = there;
        thread = answer->awaited ? answer->thread : UINT32_MAX;
    }
    if (thread == UINT32_MAX)
        return;
    rg_sim_push(s, (struct rg_sim_event){.time = there, .kind = RG_SIM_THREAD, .thread = thread});
}
