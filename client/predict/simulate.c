/*
 * simulate.c - see simulate.h.
 *
 * Events in the order of their times: a thread takes its next step, the sender thread sends, a reply or
 * deferred data is given to the way back.
 */
#include "client/predict/simulation.h"
#include "common/base/tuning.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_NS 1000 /* of a query in a loop */

/* --- threads -------------------------------------------------------------------------------------------- */

/* The thread comes to its next step when it has computed, if the threads it waits for have ended. */
static void go_on(struct rg_simulation *s, uint32_t number, uint64_t now);

static void start_children(struct rg_simulation *s, uint32_t parent, size_t step, uint64_t now)
{
    for (uint32_t i = 1; s->model->threads[parent].steps[step].starts && i < s->model->n_threads; i++) {
        const struct rg_thread_model *child = &s->model->threads[i];
        if (child->parent == parent && child->parent_step == step)
            go_on(s, i, now + child->offset);
    }
}

static void go_on(struct rg_simulation *s, uint32_t number, uint64_t now)
{
    struct rg_sim_thread *thread = &s->threads[number];
    const struct rg_step *step = &s->model->threads[number].steps[thread->step];
    thread->now = now;
    if (step->join)
        for (const uint32_t *other = &s->model->joins[step->join]; *other != UINT32_MAX; other++) {
            if (!s->threads[*other].ended) {
                thread->parked = true;
                return;
            }
            now = rg_sim_later(now, s->threads[*other].now);
        }
    thread->parked = false;
    rg_sim_push(s, (struct rg_sim_event){.time = now + step->gap, .kind = RG_SIM_THREAD, .thread = number});
}

/* The step is over at `now`. */
static void step_over(struct rg_simulation *s, uint32_t number, uint64_t now)
{
    struct rg_sim_thread *thread = &s->threads[number];
    start_children(s, number, thread->step, now);
    thread->step++;
    go_on(s, number, now);
}

/* The thread waits until then, for something else than a reply. */
static void wait_until(struct rg_simulation *s, uint32_t number, uint64_t now, uint64_t until)
{
    s->out->waited_ns += rg_sim_gap(now, until);
    step_over(s, number, rg_sim_later(now, until));
}

/* The thread waits from now on for a record, or (UINT32_MAX) what it has asked; the reply comes as an event. */
static void wait(struct rg_simulation *s, uint32_t number, uint32_t record, uint64_t now)
{
    s->threads[number].waits = true;
    s->threads[number].since = now;
    s->out->round_trips++;
    rg_sim_flush(s, rg_sim_server_of(s, record), now);
}

/* Waits for a reply that was asked for before, if it is not there. */
static void wait_for_async_reply(struct rg_simulation *s, uint32_t number, uint32_t record, uint64_t now)
{
    struct rg_sim_answer *answer = &s->answers[record];
    rg_sim_flush(s, rg_sim_server_of(s, record), now);
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
        rg_sim_push(s, (struct rg_sim_event){.time = answer->there, .kind = RG_SIM_THREAD, .thread = number});
}

static void end_thread(struct rg_simulation *s, uint32_t number, uint64_t now)
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

/* Whether a thread that waits for nothing sends for itself (client/core/queue.c: rg_queue_leave). */
static bool may_send(const struct rg_sim_server *server, struct rg_sim_thread *thread, uint64_t now)
{
    const bool fresh = rg_inline_sends_at(++thread->posted);
    return (fresh || now >= server->next_inline) && server->sender_free <= now;
}

/* Whether other servers' parts of it are still to be put, which its thread does at once. */
static bool is_half(const struct rg_simulation *s, const struct rg_record_model *record)
{
    const struct rg_exchange_model *exchange = &s->model->exchanges[record->exchange];
    return record->exchange && exchange->key &&
           record->exchange + 1 < s->model->exchanges[exchange->first].n + exchange->first;
}

static void post(struct rg_simulation *s, uint32_t number, const struct rg_step *step, uint64_t now)
{
    const struct rg_thread_model *thread = &s->model->threads[number];
    const struct rg_record_model *record = &s->model->records[step->record];
    const bool deferred = record->flags & RG_RECORD_DEFERRED_OUT && !s->deferred;
    struct rg_sim_server *server = &s->servers[record->server];
    if (waits_next(thread, s->threads[number].step, step->record)) {
        const bool replies = thread->steps[s->threads[number].step + 1].kind == RG_STEP_REPLY || !s->async;
        rg_sim_put(s, step->record, replies ? number : UINT32_MAX);
        step_over(s, number, now);
    } else if (!s->async || deferred) {
        rg_sim_put(s, step->record, number);
        wait(s, number, step->record, now);
    } else {
        rg_sim_put(s, step->record, UINT32_MAX);
        if (is_half(s, record)) {
            ; /* they leave together */
        } else if (!s->batch) {
            now = rg_sim_flush(s, record->server, now);
        } else if (s->inline_send && may_send(server, &s->threads[number], now)) {
            rg_sim_flush(s, record->server, now);
            server->next_inline = now + RG_INLINE_SEND_SHARE * RG_SIM_SEND_NS;
        } else if (!server->sender_due) {
            server->sender_due = true;
            rg_sim_push(s,
                        (struct rg_sim_event){.time = rg_sim_later(now + s->model->ways[record->server].wake,
                                                                   server->sender_free),
                                              .kind = RG_SIM_SENDER,
                                              .server = record->server});
        }
        step_over(s, number, now);
    }
}

/* When the client is told that what is asked about is done. */
static uint64_t told(const struct rg_simulation *s, const struct rg_record_model *record)
{
    return rg_device_done(&s->servers[record->server].device, &record->use) + s->wire->oneway_ns +
           (record->flags & RG_RECORD_POLL ? record->down : s->model->ways[record->server].down);
}

static void skip_to(struct rg_simulation *s, uint32_t number, size_t step, uint64_t now)
{
    struct rg_sim_thread *thread = &s->threads[number];
    for (; thread->step < step; thread->step++)
        start_children(s, number, thread->step, now);
    go_on(s, number, now);
}

/* A query has been answered: the loop that it is in is as long as it takes here, not as it was. */
static void queried(struct rg_simulation *s, uint32_t number, const struct rg_record_model *record,
                    uint64_t now)
{
    struct rg_sim_thread *thread = &s->threads[number];
    const bool was_ready = record->flags & RG_RECORD_READY;
    if (was_ready == thread->ready) {
        step_over(s, number, now);
    } else if (thread->ready) {
        skip_to(s, number, record->skip, now);
    } else if (s->completion_push) {
        step_over(s, number, rg_sim_later(now, told(s, record)));
    } else {
        if (!(record->flags & RG_RECORD_POLL))
            thread->step--; /* to its post */
        now += LEAST_NS;
        const uint64_t each = LEAST_NS + 2 * s->wire->oneway_ns + s->model->ways[record->server].round_trip;
        const uint64_t done = rg_device_done(&s->servers[record->server].device, &record->use);
        const uint64_t in_vain = rg_sim_gap(now + each, done) / each;
        s->out->round_trips += in_vain;
        s->out->messages += in_vain;
        s->out->waited_ns += in_vain * each;
        rg_sim_push(
            s, (struct rg_sim_event){.time = now + in_vain * each, .kind = RG_SIM_THREAD, .thread = number});
    }
}

/* Queries that need no server, as long as the client is told; else they are queries as all others. */
static void poll(struct rg_simulation *s, uint32_t number, const struct rg_step *step, uint64_t now)
{
    const struct rg_record_model *record = &s->model->records[step->record];
    if (!s->completion_push) {
        rg_sim_put(s, step->record, number);
        wait(s, number, step->record, now);
        return;
    }
    rg_sim_flush(s, record->server, now); /* what is asked about may not have been sent */
    const uint64_t done = told(s, record);
    if (record->flags & RG_RECORD_READY)
        step_over(s, number, rg_sim_later(now, done));
    else if (done <= now)
        skip_to(s, number, record->skip, now);
    else
        step_over(s, number, now + step->time);
}

/* The thread is at its step, or what it waited for in it has come. */
static void run_thread(struct rg_simulation *s, uint32_t number, uint64_t now)
{
    struct rg_sim_thread *thread = &s->threads[number];
    const struct rg_step *step = &s->model->threads[number].steps[thread->step];
    if (thread->waits) {
        s->out->waited_ns += rg_sim_gap(thread->since, now);
        thread->waits = false;
        thread->posted = 0;
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
            wait_for_async_reply(s, number, step->record, now);
        else
            wait(s, number, step->record, now);
        return;
    case RG_STEP_SEND:
        if (s->async)
            wait_until(
                s, number, now,
                rg_sim_later(now + step->time, rg_sim_flush(s, rg_sim_server_of(s, step->record), now)));
        else
            wait(s, number, step->record, now);
        return;
    case RG_STEP_POLL:
        poll(s, number, step, now);
        return;
    case RG_STEP_SAVED:
        if (s->off >> step->record & 1) {
            rg_sim_put(s, UINT32_MAX, number);
            wait(s, number, UINT32_MAX, now);
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

/* --- the whole ------------------------------------------------------------------------------------------ */

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
    static const char *const ways[] = {"async",           "batch",           "inline-send",
                                       "deferred-copies", "completion-push", "delta"};
    const struct rg_trace *trace = model->trace;
    uint64_t known = model->saved;
    for (size_t i = 0; i < trace->optimisations.n; i++)
        for (size_t j = 0; j < sizeof ways / sizeof *ways; j++)
            if (strcmp(trace->optimisations.names[i], ways[j]) == 0)
                known |= 1ull << i;
    return known & trace->optimisations_on;
}

static void run(struct rg_simulation *s)
{
    go_on(s, 0, s->model->threads[0].offset);
    for (uint32_t i = 1; i < s->model->n_threads; i++)
        if (s->model->threads[i].parent == i)
            go_on(s, i, s->model->threads[i].offset);
    while (s->n_events && !s->failed && !s->threads[0].ended) {
        const struct rg_sim_event event = rg_sim_pop(s);
        switch (event.kind) {
        case RG_SIM_THREAD:
            run_thread(s, event.thread, event.time);
            break;
        case RG_SIM_SENDER:
            s->servers[event.server].sender_due = false;
            rg_sim_flush(s, event.server, event.time);
            break;
        case RG_SIM_BACK:
            rg_sim_come_back(s, &event);
            break;
        }
    }
    s->out->ns = s->threads[0].now;
}

enum rg_status rg_simulate(const struct rg_model *model, const struct rg_wire *wire, uint64_t off,
                           struct rg_outcome *out)
{
    *out = (struct rg_outcome){0};
    struct rg_simulation s = {.model = model,
                              .wire = wire,
                              .off = off,
                              .async = is_on(model->trace, "async", off),
                              .batch = is_on(model->trace, "batch", off),
                              .inline_send = is_on(model->trace, "inline-send", off),
                              .deferred = is_on(model->trace, "deferred-copies", off),
                              .completion_push = is_on(model->trace, "completion-push", off),
                              .sent_share = is_on(model->trace, "delta", off) ? find_sent_share(model) : 1,
                              .out = out};
    s.threads = calloc(model->n_threads, sizeof *s.threads);
    s.answers = calloc(model->n_records + 1, sizeof *s.answers);
    s.exchanges = calloc(model->n_exchanges + 1, sizeof *s.exchanges);
    s.failed = !s.threads || !s.answers || !s.exchanges;
    for (size_t i = 0; i < model->trace->n_servers && !s.failed; i++)
        s.failed = !rg_device_init(&s.servers[i].device, &model->names);
    if (!s.failed)
        run(&s);
    free(s.heap);
    free(s.threads);
    free(s.answers);
    free(s.exchanges);
    for (size_t i = 0; i < model->trace->n_servers; i++) {
        free(s.servers[i].batched);
        rg_device_free(&s.servers[i].device);
    }
    return s.failed ? RG_ERR_NO_MEMORY : RG_OK;
}
