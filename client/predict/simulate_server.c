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
    return rg_sim_cost(bytes, s->wire->bytes_per_second);
}

static struct rg_sim_server *server_of(struct rg_simulation *s, const struct rg_record_model *record)
{
    return &s->servers[record->server];
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
    struct rg_device *device = &server_of(s, record)->device;
    const uint64_t start = rg_device_start(device, record->use.stream, begin);
    uint64_t end = start + work_time(s, record);
    if (record->exchange) {
        rg_sim_exchange(s, record, start);
        return;
    }
    if (record->flags & RG_RECORD_DEFERRED_OUT) {
        rg_sim_push(s, (struct rg_sim_event){.time = start,
                                             .kind = RG_SIM_BACK,
                                             .server = record->server,
                                             .thread = UINT32_MAX,
                                             .ready = end,
                                             .deferred = true,
                                             .record = UINT32_MAX,
                                             .bytes = record->out});
        end = rg_sim_later(end, start + rg_sim_gap(cost(s, DEFERRED_MAX), cost(s, record->out)));
    }
    rg_device_end(device, record->use.stream, end);
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
                                         .server = rg_sim_server_of(s, posted->record),
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
    struct rg_sim_server *server = server_of(s, record);
    const bool deferred = record->flags & RG_RECORD_DEFERRED_OUT;
    const uint64_t done = deferred ? rg_device_start(&server->device, record->use.stream, 0)
                                   : rg_device_done(&server->device, &record->use);
    const uint64_t waited = rg_sim_gap(begin, done), from = begin + waited;
    const uint64_t transfer = deferred ? record->use.time : record->transfer;
    server->dispatcher_free = begin + record->service + (waited < RG_WAIT_POLL_NS ? waited : RG_WAIT_POLL_NS);
    const uint64_t replied = from + (deferred ? record->use.time : record->tail);
    if (record->out && (deferred || record->use.act == RG_DEVICE_SYNC_STREAM))
        rg_device_end(&server->device, record->use.stream, replied);
    if (record->out > RG_LITTLE_REPLY)
        reply(s, posted, from, from + transfer, record->out, record->down);
    else
        reply(s, posted, replied, replied, record->out, record->down);
}

/* Executes a record whose message arrived at `head`, the last of its bulk data at `data`. */
static void execute(struct rg_simulation *s, const struct rg_sim_posted *posted, uint64_t head, uint64_t data)
{
    const unsigned number = rg_sim_server_of(s, posted->record);
    struct rg_sim_server *server = &s->servers[number];
    uint64_t begin = rg_sim_later(head, server->dispatcher_free);
    if (posted->record == UINT32_MAX) {
        server->dispatcher_free = begin + ASK_NS;
        reply(s, posted, server->dispatcher_free, server->dispatcher_free, SMALL_SIZE,
              s->model->ways[number].down);
        return;
    }
    const struct rg_record_model *record = &s->model->records[posted->record];
    if (record->flags & RG_RECORD_WAITS || (record->flags & RG_RECORD_DEFERRED_OUT && !s->deferred)) {
        wait_for_device(s, posted, begin);
        return;
    }
    if (record->flags & RG_RECORD_BLOCKS)
        begin = rg_sim_later(begin, server->device.all);
    if (record->use.act == RG_DEVICE_WORK)
        work(s, record, begin);
    else if (record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL) && posted->thread != UINT32_MAX)
        s->threads[posted->thread].ready = rg_device_done(&server->device, &record->use) <= begin;
    else
        rg_device_order(&server->device, &record->use, begin);
    server->dispatcher_free = rg_sim_later(begin + record->service, data);
    const uint64_t replied = server->dispatcher_free + record->tail;
    reply(s, posted, replied, replied + (record->out > RG_LITTLE_REPLY ? record->transfer : 0), record->out,
          record->down);
}

/* --- the wire ------------------------------------------------------------------------------------------- */

/* What of a server's batch is still to be executed, and when the message is there. */
struct arrival {
    size_t next;
    uint64_t head, data; /* the last of its bulk data; 0: it has none */
};

/* Sends what has been put for one server. */
static struct arrival send_batch(struct rg_simulation *s, unsigned number, uint64_t now)
{
    struct rg_sim_server *server = &s->servers[number];
    const struct rg_sim_posted *last = &server->batched[server->n_batched - 1];
    const bool asks = last->record == UINT32_MAX;
    const uint64_t bulk = asks ? 0 : s->model->records[last->record].bulk;
    const uint64_t up =
        asks || last->thread == UINT32_MAX ? s->model->ways[number].up : s->model->records[last->record].up;
    const uint64_t calls = FRAME + (uint64_t)((double)server->batch_bytes * s->sent_share);
    const uint64_t bytes = calls + bulk, message = cost(s, calls);
    const uint64_t sent = rg_sim_later(rg_sim_later(now, server->sender_free), server->calls_free);
    /* bulk data waits for what is on the wire; calls go between it */
    server->up_free = rg_sim_later(server->up_free, sent) + cost(s, bytes);
    server->calls_free = sent + message;
    const uint64_t left = bulk ? server->up_free : server->calls_free, arrived = left + s->wire->oneway_ns;
    const uint64_t head = (s->wire->whole ? arrived : server->calls_free + s->wire->oneway_ns) + up;
    server->sender_free = rg_sim_later(sent + RG_SIM_SEND_NS, rg_sim_gap(cost(s, s->wire->buffer), left));
    s->out->messages++;
    s->out->sent += bytes;
    return (struct arrival){.head = head, .data = bulk ? arrived : 0};
}

/* The server whose next record was put first; RG_SERVERS_MAX: all are executed. */
static unsigned next_server(const struct rg_simulation *s, const struct arrival *arrivals)
{
    unsigned first = RG_SERVERS_MAX;
    for (unsigned i = 0; i < s->model->trace->n_servers; i++) {
        const struct rg_sim_server *server = &s->servers[i];
        if (arrivals[i].next < server->n_batched &&
            (first == RG_SERVERS_MAX || server->batched[arrivals[i].next].number <
                                            s->servers[first].batched[arrivals[first].next].number))
            first = i;
    }
    return first;
}

uint64_t rg_sim_flush(struct rg_simulation *s, unsigned server, uint64_t now)
{
    struct arrival arrivals[RG_SERVERS_MAX] = {0};
    if (!s->servers[server].n_batched)
        return now;
    for (unsigned i = 0; i < s->model->trace->n_servers; i++)
        if (s->servers[i].n_batched)
            arrivals[i] = send_batch(s, i, now);
    for (unsigned i; (i = next_server(s, arrivals)) < RG_SERVERS_MAX;) {
        const size_t at = arrivals[i].next++;
        execute(s, &s->servers[i].batched[at], arrivals[i].head,
                at + 1 == s->servers[i].n_batched ? arrivals[i].data : 0);
    }
    for (unsigned i = 0; i < s->model->trace->n_servers; i++) {
        s->servers[i].n_batched = 0;
        s->servers[i].batch_bytes = 0;
    }
    return s->servers[server].sender_free;
}

void rg_sim_put(struct rg_simulation *s, uint32_t record, uint32_t thread)
{
    struct rg_sim_server *server = &s->servers[rg_sim_server_of(s, record)];
    if (server->n_batched == server->batch_capacity) {
        const size_t capacity = server->batch_capacity ? server->batch_capacity * 2 : 256;
        struct rg_sim_posted *batched = realloc(server->batched, capacity * sizeof *batched);
        if (!batched) {
            s->failed = true;
            return;
        }
        server->batched = batched;
        server->batch_capacity = capacity;
    }
    server->batched[server->n_batched++] = (struct rg_sim_posted){record, thread, s->n_put++};
    server->batch_bytes +=
        record == UINT32_MAX || !s->model->records[record].size ? SMALL_SIZE : s->model->records[record].size;
}

void rg_sim_come_back(struct rg_simulation *s, const struct rg_sim_event *event)
{
    struct rg_sim_server *server = &s->servers[event->server];
    server->down_free = rg_sim_later(event->time, server->down_free) + cost(s, event->bytes);
    s->out->received += event->bytes;
    /* small results go between data */
    uint64_t left = event->bytes > RG_LITTLE_REPLY ? server->down_free : event->time + cost(s, event->bytes);
    if (event->deferred)
        server->deferred_until = rg_sim_later(server->deferred_until, rg_sim_later(event->ready, left));
    else if (event->record != UINT32_MAX && s->model->records[event->record].flags & RG_RECORD_WAITS)
        left =
            rg_sim_later(left, server->deferred_until); /* whoever has waited for the device has its data */
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
