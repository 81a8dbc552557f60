/*
 * model.c - from a trace to a model.
 *
 * Threads first: what each did, with the time between. Then the records in the order in which the worker executed them:
 * its times say how long it was busy, and when the device was done with what; the clocks of the two machines are laid over
 * each other by the quickest round trip.
 */
#include "client/predict/model.h"

#include "common/base/tuning.h"

#include <stdlib.h>
#include <string.h>

#define JOIN_NS      100000 /* a thread that computes for less has not waited for another */
#define WAKE_MOST_NS 200000 /* that a thread takes to wake up, on any machine worth predicting for */
#define USUAL_NS     5000   /* of a way, where nothing tells */
#define NO_RECORD    UINT32_MAX

/* What model.c knows of a record besides. */
struct seen {
    uint64_t seq;     /* polls: the handle */
    uint64_t place;   /* in the worker's order; polls: that of their thread's record before */
    uint64_t sent_at; /* when its message was sent, if it has a reply; else when it was put */
    uint64_t back_at; /* when its reply was there */
    const struct rg_time *time;
};

struct making {
    const struct rg_trace *trace;
    struct rg_model *model;
    struct seen *seen; /* by record */
    size_t capacity;
    int64_t offset; /* the worker's clock less the client's */
    bool failed;
};

/* --- operations -------------------------------------------------------------------------------------------------- */

/* What operations do to streams, by name; all others that the worker calls work are work. */
static const struct {
    const char *name;
    enum rg_device_act act;
    unsigned flags;
} operations[] = {
    {"cuEventRecord", RG_DEVICE_RECORD, 0},
    {"cuEventRecordWithFlags", RG_DEVICE_RECORD, 0},
    {"cuStreamWaitEvent", RG_DEVICE_WAIT_EVENT, 0},
    {"cuStreamSynchronize", RG_DEVICE_SYNC_STREAM, RG_RECORD_WAITS},
    {"cuEventSynchronize", RG_DEVICE_SYNC_EVENT, RG_RECORD_WAITS},
    {"rgEventWait", RG_DEVICE_SYNC_EVENT, RG_RECORD_WAITS},
    {"cuCtxSynchronize", RG_DEVICE_SYNC_ALL, RG_RECORD_WAITS},
    {"cuCtxSynchronize_v2", RG_DEVICE_SYNC_ALL, RG_RECORD_WAITS},
    {"cuStreamQuery", RG_DEVICE_SYNC_STREAM, RG_RECORD_QUERY},
    {"rgStreamAsk", RG_DEVICE_SYNC_STREAM, RG_RECORD_QUERY},
    {"rgDefaultStreamAsk", RG_DEVICE_SYNC_STREAM, RG_RECORD_QUERY},
    {"rgEventAsk", RG_DEVICE_SYNC_EVENT, RG_RECORD_QUERY},
    {"cuEventQuery", RG_DEVICE_SYNC_EVENT, RG_RECORD_QUERY},
    {"rgCopyOut", RG_DEVICE_SYNC_STREAM, RG_RECORD_WAITS},
    {"rgBoxOut", RG_DEVICE_SYNC_STREAM, RG_RECORD_WAITS},
    {"rgCopyOutLate", RG_DEVICE_WORK, RG_RECORD_DEFERRED_OUT},
    {"rgBoxOutLate", RG_DEVICE_WORK, RG_RECORD_DEFERRED_OUT},
    {"rgCopyInLate", RG_DEVICE_WORK, RG_RECORD_DEFERRED_IN},
    {"rgBoxInLate", RG_DEVICE_WORK, RG_RECORD_DEFERRED_IN},
    {"rgHostCall", RG_DEVICE_WORK, RG_RECORD_HOST_CALL},
};
#define N_OPERATIONS (sizeof operations / sizeof *operations)

static void classify(const struct rg_trace *trace, struct rg_record_model *record)
{
    const char *name = trace->operations.names[record->op];
    for (size_t i = 0; i < N_OPERATIONS; i++)
        if (strcmp(name, operations[i].name) == 0) {
            record->use.act = operations[i].act;
            record->flags |= operations[i].flags;
            return;
        }
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

static uint32_t add_record(struct making *making, const struct rg_trace_item *item, uint32_t last)
{
    struct rg_model *model = making->model;
    if (model->n_records == making->capacity) {
        const size_t capacity = making->capacity ? making->capacity * 2 : 1024;
        struct rg_record_model *records = realloc(model->records, capacity * sizeof *records);
        if (records)
            model->records = records;
        struct seen *seen = realloc(making->seen, capacity * sizeof *seen);
        if (seen)
            making->seen = seen;
        if (!records || !seen) {
            making->failed = true;
            return NO_RECORD;
        }
        making->capacity = capacity;
    }
    const uint32_t number = (uint32_t)model->n_records++;
    struct rg_record_model *record = &model->records[number];
    making->seen[number] = (struct seen){.seq = item->seq, .place = item->seq, .sent_at = item->start};
    if (item->kind == RG_TRACE_POLL) {
        making->seen[number].place = last == NO_RECORD ? 0 : making->seen[last].place;
        making->seen[number].back_at = item->duration ? item->start + item->duration : 0;
        *record =
            (struct rg_record_model){.flags = RG_RECORD_POLL | (item->code ? RG_RECORD_READY : 0),
                                     .use.act = item->size ? RG_DEVICE_SYNC_EVENT : RG_DEVICE_SYNC_STREAM};
        return number;
    }
    *record = (struct rg_record_model){.op = (uint16_t)item->code, .size = item->size};
    classify(making->trace, record);
    if (record->flags & RG_RECORD_DEFERRED_IN)
        record->deferred = item->sent;
    record->out = item->received;
    return number;
}

static uint64_t end_of(const struct rg_trace_item *item)
{
    return item->start + item->duration;
}

/* When the thread did what we know first and last. */
static void life(const struct rg_trace_thread *thread, uint64_t *first, uint64_t *last)
{
    *first = UINT64_MAX;
    *last = 0;
    for (size_t i = 0; i < thread->n; i++) {
        const struct rg_trace_item *item = &thread->items[i];
        *first = item->start < *first ? item->start : *first;
        *last = end_of(item) > *last ? end_of(item) : *last;
    }
}

/* One event of the trace as a step; false: it is none. *last: the thread's last record, `before`: its step. */
static bool make_step(struct making *making, const struct rg_trace_item *item, uint32_t *last,
                      const struct rg_step *before, struct rg_step *step)
{
    struct rg_model *model = making->model;
    *step = (struct rg_step){.record = *last, .time = item->duration};
    if (item->kind == RG_TRACE_POST) {
        step->kind = RG_STEP_POST;
        step->record = *last = add_record(making, item, *last);
        return !making->failed;
    }
    if (item->kind == RG_TRACE_POLL) {
        step->kind = RG_STEP_POLL;
        step->record = add_record(making, item, *last);
        return !making->failed;
    }
    if (item->kind == RG_TRACE_SAVED) {
        step->kind = RG_STEP_SAVED;
        step->record = item->code;
        model->saved |= 1ull << item->code;
        return true;
    }
    if (item->kind == RG_TRACE_CALL && *last != NO_RECORD) /* data that came beside the reply */
        model->records[*last].out += item->received;
    if (item->kind != RG_TRACE_WAIT)
        return false;
    model->waited += item->duration;
    if (*last == NO_RECORD) {
        step->kind = RG_STEP_CONNECT;
        return true;
    }
    struct rg_record_model *record = &model->records[*last];
    if (item->code) {
        step->kind = RG_STEP_REPLY;
        record->flags |= RG_RECORD_REPLY;
        record->out += item->received;
        record->bulk += item->sent;
        if (before && before->kind == RG_STEP_POST) {
            making->seen[*last].sent_at = item->start;
            making->seen[*last].back_at = end_of(item);
        } else { /* its reply was needed only now */
            record->flags |= RG_RECORD_ASYNC;
        }
        return true;
    }
    if (item->received) {
        step->kind = RG_STEP_ASK;
        return true;
    }
    if (!item->sent)
        return false; /* it waited for the sender: its own time */
    step->kind = RG_STEP_SEND;
    record->bulk += item->sent;
    return true;
}

static void make_thread(struct making *making, const struct rg_trace_thread *from, bool main,
                        struct rg_thread_model *to)
{
    uint64_t first, last;
    life(from, &first, &last);
    uint64_t now = main ? 0 : first;
    uint32_t last_record = NO_RECORD;
    to->steps = calloc(from->n + 1, sizeof *to->steps);
    if (!to->steps) {
        making->failed = true;
        return;
    }
    to->offset = now;
    for (size_t i = 0; i < from->n && !making->failed; i++) {
        const struct rg_trace_item *item = &from->items[i];
        struct rg_step step;
        const struct rg_step *before = to->n ? &to->steps[to->n - 1] : NULL;
        if ((item->start < now && item->kind != RG_TRACE_CALL) ||
            !make_step(making, item, &last_record, before, &step))
            continue;
        step.gap = item->start - now;
        now = item->kind == RG_TRACE_WAIT || item->kind == RG_TRACE_POLL ? end_of(item) : item->start;
        making->model->computed += step.gap;
        to->steps[to->n++] = step;
    }
    const uint64_t end = main && making->trace->elapsed > now ? making->trace->elapsed : last;
    to->steps[to->n++] = (struct rg_step){.kind = RG_STEP_END, .gap = end > now ? end - now : 0};
    making->model->computed += end > now ? end - now : 0;
}

/* --- threads that wait for one another -------------------------------------------------------------------------------- */

/* Begins of all steps in the run that was recorded. The caller frees them. */
static uint64_t *starts_of(const struct rg_thread_model *thread)
{
    uint64_t *starts = malloc((thread->n + 1) * sizeof *starts), now = thread->offset;
    for (size_t i = 0; starts && i < thread->n; i++) {
        now += thread->steps[i].gap;
        starts[i] = now;
        if (thread->steps[i].kind != RG_STEP_POST && thread->steps[i].kind != RG_STEP_SAVED)
            now += thread->steps[i].time;
    }
    return starts;
}

/* A thread begins because another one started it: the main one, as far as anybody can know. */
static void find_parent(struct rg_model *model, uint32_t child, const uint64_t *main_starts)
{
    struct rg_thread_model *thread = &model->threads[child];
    const struct rg_thread_model *parent = &model->threads[0];
    size_t at = parent->n;
    while (at > 0) {
        const struct rg_step *step = &parent->steps[at - 1];
        const uint64_t over = main_starts[at - 1] + (step->kind == RG_STEP_POST ? 0 : step->time);
        if (over <= thread->offset) {
            thread->parent = 0;
            thread->parent_step = (uint32_t)(at - 1);
            thread->offset -= over;
            model->threads[0].steps[at - 1].starts = true;
            return;
        }
        at--;
    }
    thread->parent = child;
}

/*
 * Where the main thread computed for long and another one ended meanwhile, it has waited for that end: its time goes on
 * from there. A list of such threads begins at model->joins[step->join].
 */
static bool find_joins(struct rg_model *model, const uint64_t *main_starts, const uint64_t *ends)
{
    struct rg_thread_model *thread = &model->threads[0];
    const size_t capacity = 1 + 2 * model->n_threads;
    model->joins = malloc(capacity * sizeof *model->joins);
    if (!model->joins)
        return false;
    model->joins[model->n_joins++] = UINT32_MAX;
    for (size_t i = 0; i < thread->n; i++) {
        struct rg_step *step = &thread->steps[i];
        const uint64_t from = main_starts[i] - step->gap, to = main_starts[i];
        uint64_t latest = 0;
        if (step->gap < JOIN_NS)
            continue;
        const size_t list = model->n_joins;
        for (uint32_t j = 1; j < model->n_threads; j++)
            if (ends[j] > from && ends[j] <= to) {
                model->joins[model->n_joins++] = j;
                latest = ends[j] > latest ? ends[j] : latest;
            }
        if (model->n_joins == list)
            continue;
        model->joins[model->n_joins++] = UINT32_MAX;
        step->join = (uint32_t)list;
        step->gap = to - latest;
    }
    return true;
}

static bool relate_threads(struct rg_model *model)
{
    uint64_t *main_starts = starts_of(&model->threads[0]);
    uint64_t *ends = calloc(model->n_threads, sizeof *ends);
    bool good = main_starts && ends;
    for (uint32_t i = 1; good && i < model->n_threads; i++) {
        uint64_t *starts = starts_of(&model->threads[i]);
        good = starts != NULL;
        if (good)
            ends[i] = starts[model->threads[i].n - 1];
        free(starts);
        if (good)
            find_parent(model, i, main_starts);
    }
    good = good && find_joins(model, main_starts, ends);
    free(main_starts);
    free(ends);
    return good;
}

/* --- queries in a loop --------------------------------------------------------------------------------------------- */

static bool same_query(const struct rg_record_model *a, const struct rg_record_model *b)
{
    return a->use.act == b->use.act && a->use.stream == b->use.stream && a->use.event == b->use.event;
}

/* What step asks about, if it asks; NULL: it does not. */
static struct rg_record_model *asked(const struct rg_model *model, const struct rg_step *step)
{
    if (step->kind != RG_STEP_POST && step->kind != RG_STEP_POLL)
        return NULL;
    struct rg_record_model *record = &model->records[step->record];
    return record->flags & (RG_RECORD_QUERY | RG_RECORD_POLL) ? record : NULL;
}

/* For each query: the step behind the last one of the loop that it is in. */
static void find_loops(struct rg_model *model, struct rg_thread_model *thread)
{
    for (size_t i = thread->n; i-- > 0;) {
        struct rg_record_model *record = asked(model, &thread->steps[i]);
        if (!record)
            continue;
        record->skip = (uint32_t)i + (thread->steps[i].kind == RG_STEP_POLL ? 1 : 2); /* behind its reply */
        if (record->flags & RG_RECORD_READY || record->skip >= thread->n)
            continue;
        const struct rg_record_model *next = asked(model, &thread->steps[record->skip]);
        if (next && same_query(record, next))
            record->skip = next->skip;
    }
}

/* --- what the worker measured ---------------------------------------------------------------------------------------- */

static const struct rg_time *find_time(const struct rg_trace *trace, uint64_t seq)
{
    size_t low = 0, high = trace->n_times;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (trace->times[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < trace->n_times && trace->times[low].seq == seq ? &trace->times[low] : NULL;
}

/* A reply is on its way from here on. */
static uint64_t left_at(const struct rg_record_model *record, const struct rg_time *time)
{
    return record->out > RG_LITTLE_REPLY ? time->sent : time->reply;
}

/*
 * The quickest round trip lays the clocks over each other: its ways were equal. Where few calls wait, each of them may have
 * stood behind other work at the worker; then the quickest way there of one record and the quickest way back of another one
 * are together what a round trip takes at most, whatever the clocks say.
 */
static void find_offset(struct making *making)
{
    uint64_t least = UINT64_MAX;
    int64_t there_least = INT64_MAX, back_least = INT64_MAX; /* by two clocks */
    for (size_t i = 0; i < making->model->n_records; i++) {
        const struct rg_record_model *record = &making->model->records[i];
        const struct seen *seen = &making->seen[i];
        if (seen->time && (int64_t)(seen->time->begin - seen->sent_at) < there_least)
            there_least = (int64_t)(seen->time->begin - seen->sent_at);
        if (!seen->time || !seen->back_at || !seen->time->reply)
            continue;
        if ((int64_t)(seen->back_at - left_at(record, seen->time)) < back_least)
            back_least = (int64_t)(seen->back_at - left_at(record, seen->time));
        const uint64_t there = left_at(record, seen->time) - seen->time->begin;
        const uint64_t all = seen->back_at - seen->sent_at;
        if (all < there || all - there >= least)
            continue;
        making->model->round_trip = least = all - there;
        making->offset = (int64_t)(seen->time->begin - seen->sent_at) - (int64_t)(least / 2);
    }
    const int64_t both = back_least == INT64_MAX ? 0 : there_least + back_least;
    if (both > 0 && least / 2 > (uint64_t)both) {
        making->model->round_trip = (uint64_t)both;
        making->offset = there_least - both / 2;
    }
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t gap(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

/*
 * Where the ways can be seen, they are what they were; else those of the quickest round trip. What a record waits for that
 * nobody waits for is the sender's, of four such the shortest but one.
 */
static bool find_ways(struct making *making, const uint32_t *order, size_t n)
{
    struct rg_model *model = making->model;
    uint64_t *wakes = malloc((n + 1) * sizeof *wakes);
    if (!wakes)
        return false;
    size_t n_wakes = 0;
    uint64_t busy_until = 0;
    if (!model->round_trip)
        model->round_trip = 2 * USUAL_NS;
    model->up = model->down = model->round_trip / 2;
    for (size_t i = 0; i < n; i++) {
        struct rg_record_model *record = &model->records[order[i]];
        const struct seen *seen = &making->seen[order[i]];
        const struct rg_time *time = seen->time; /* NULL for polls, which have no place in the order */
        record->up = model->up;
        record->down = model->down;
        if (!time)
            continue;
        const uint64_t sent = seen->sent_at + (uint64_t)making->offset;
        const bool visible = sent >= busy_until; /* else it may have waited for others there */
        if (seen->back_at && time->reply) {
            if (visible)
                record->up = gap(sent, time->begin);
            record->down = gap(left_at(record, time), seen->back_at + (uint64_t)making->offset);
        } else if (visible) {
            wakes[n_wakes++] = gap(sent, time->begin);
        }
        if (time->served > busy_until)
            busy_until = time->served;
    }
    qsort(wakes, n_wakes, sizeof *wakes, by_number);
    model->wake = n_wakes ? gap(model->up, wakes[n_wakes / 4]) : USUAL_NS;
    if (model->wake > WAKE_MOST_NS)
        model->wake = WAKE_MOST_NS;
    free(wakes);
    return true;
}

/*
 * What a record did, from the worker's times; `device` as it was when the record began. *goes_on, by operation: it did not
 * wait for the device, though it might have and the device was at work.
 */
static void learn(struct rg_model *model, struct rg_record_model *record, const struct rg_time *time,
                  struct rg_device *device, bool *goes_on)
{
    const uint64_t begin = time->begin, served = time->served, replied = time->reply ? time->reply : served;
    record->service = served - begin;
    record->tail = gap(served, replied);
    if (record->out > RG_LITTLE_REPLY)
        record->transfer = gap(replied, time->sent);
    if (record->flags & RG_RECORD_QUERY) {
        record->flags |= time->result == 0 ? RG_RECORD_READY : 0;
        return;
    }
    if (record->flags & RG_RECORD_WAITS) {
        const uint64_t waited = gap(begin, rg_device_done(device, &record->use));
        const uint64_t polled = waited < RG_WAIT_POLL_NS ? waited : RG_WAIT_POLL_NS;
        record->service = gap(polled, record->service);
        record->tail = gap(begin + waited, replied);
        if (record->out > RG_LITTLE_REPLY)
            record->transfer = gap(begin + waited, time->sent);
        if (record->out && record->use.act == RG_DEVICE_SYNC_STREAM)
            rg_device_end(device, record->use.stream, replied);
        return;
    }
    if (time->flags & RG_TIME_BLOCKS) {
        record->use.act = RG_DEVICE_SYNC_ALL;
        if (served >= device->all) {
            record->flags |= RG_RECORD_BLOCKS;
            record->service = gap(gap(begin, device->all), record->service);
        } else {
            goes_on[record->op] = true;
        }
        return;
    }
    if (record->use.act == RG_DEVICE_RECORD || record->use.act == RG_DEVICE_WAIT_EVENT) {
        rg_device_order(device, &record->use, begin);
        return;
    }
    if (time->flags & RG_TIME_WORK && time->flags & RG_TIME_END) {
        record->use.act = RG_DEVICE_WORK;
        record->use.time = gap(rg_device_start(device, record->use.stream, begin), time->end);
        model->device_busy += record->use.time;
        rg_device_end(device, record->use.stream, time->end);
    } else if (record->use.act == RG_DEVICE_WORK) {
        record->use.act = RG_DEVICE_NOTHING;
    }
}

/* A record that the server did not measure: it takes nothing, and a wait for its reply was the device's. */
static void assume(struct rg_model *model, struct rg_record_model *record, const struct seen *seen)
{
    record->service = 1000;
    if (seen->back_at && seen->back_at - seen->sent_at > model->round_trip)
        record->tail = seen->back_at - seen->sent_at - model->round_trip;
    if (record->use.act == RG_DEVICE_WORK)
        record->use.act = RG_DEVICE_NOTHING;
    record->flags |= record->flags & RG_RECORD_QUERY ? RG_RECORD_READY : 0;
}

/* To sort records by. */
struct place {
    uint64_t place;
    uint32_t record;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

/* The records in the worker's order. The caller frees it. */
static uint32_t *order_of(const struct making *making)
{
    const size_t n = making->model->n_records;
    struct place *places = malloc((n + 1) * sizeof *places);
    uint32_t *order = malloc((n + 1) * sizeof *order);
    if (!places || !order) {
        free(places);
        free(order);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        places[i] = (struct place){making->seen[i].place, (uint32_t)i};
    qsort(places, n, sizeof *places, by_place);
    for (size_t i = 0; i < n; i++)
        order[i] = places[i].record;
    free(places);
    return order;
}

static bool name_polled(struct rg_model *model, struct rg_device_use *use, uint64_t handle)
{
    const bool event = use->act == RG_DEVICE_SYNC_EVENT;
    use->stream = event ? 0 : rg_device_stream(&model->names, handle, false);
    use->event = event ? rg_device_event(&model->names, handle) : 0;
    return use->stream != UINT32_MAX && use->event != UINT32_MAX;
}

static bool name_objects(struct making *making)
{
    struct rg_model *model = making->model;
    if (!rg_device_names_init(&model->names))
        return false;
    for (size_t i = 0; i < model->n_records; i++) {
        if (model->records[i].flags & RG_RECORD_POLL) {
            if (!name_polled(model, &model->records[i].use, making->seen[i].seq))
                return false;
            continue;
        }
        const struct rg_time *time = making->seen[i].time = find_time(making->trace, making->seen[i].seq);
        if (!time)
            continue;
        struct rg_device_use *use = &model->records[i].use;
        use->stream = rg_device_stream(&model->names, time->stream, time->flags & RG_TIME_NON_BLOCKING);
        use->event = rg_device_event(&model->names, time->event);
        if (use->stream == UINT32_MAX || use->event == UINT32_MAX)
            return false;
    }
    return true;
}

static bool learn_all(struct making *making)
{
    struct rg_model *model = making->model;
    struct rg_device device = {0};
    uint32_t *order = order_of(making);
    bool *goes_on = calloc(making->trace->operations.n + 1, sizeof *goes_on);
    bool good = order && goes_on && name_objects(making) && rg_device_init(&device, &model->names);
    if (good) {
        find_offset(making);
        good = find_ways(making, order, model->n_records);
    }
    for (size_t i = 0; good && i < model->n_records; i++) {
        struct rg_record_model *record = &model->records[order[i]];
        const struct seen *seen = &making->seen[order[i]];
        if (record->flags & RG_RECORD_POLL) {
            const uint64_t done = rg_device_done(&device, &record->use), there = seen->back_at;
            const bool awaited = record->flags & RG_RECORD_READY && there;
            record->down = awaited ? gap(done, there + (uint64_t)making->offset) : model->down;
            continue;
        }
        if (seen->time)
            learn(model, record, seen->time, &device, goes_on);
        else
            assume(model, record, seen);
    }
    for (size_t i = 0; good && i < model->n_records; i++)
        if (goes_on[model->records[i].op])
            model->records[i].flags &= ~(unsigned)RG_RECORD_BLOCKS;
    rg_device_free(&device);
    free(goes_on);
    free(order);
    return good;
}

/* --- the whole ------------------------------------------------------------------------------------------------------------ */

/* The thread that the process began with comes first. */
static size_t main_thread(const struct rg_trace *trace)
{
    for (size_t i = 0; i < trace->n_threads; i++)
        if (trace->threads[i].number == trace->pid)
            return i;
    return 0;
}

enum rg_status rg_model_make(const struct rg_trace *trace, struct rg_model *model)
{
    *model = (struct rg_model){.trace = trace,
                               .elapsed = trace->elapsed,
                               .round_trips = trace->round_trips,
                               .n_threads = trace->n_threads};
    struct making making = {.trace = trace, .model = model};
    const size_t first = main_thread(trace);
    model->threads = calloc(trace->n_threads, sizeof *model->threads);
    making.failed = !model->threads;
    for (size_t i = 0; i < trace->n_threads && !making.failed; i++) {
        const size_t from = i == 0 ? first : i <= first ? i - 1 : i;
        make_thread(&making, &trace->threads[from], i == 0, &model->threads[i]);
    }
    making.failed = making.failed || !relate_threads(model) || !learn_all(&making);
    for (size_t i = 0; i < model->n_threads && !making.failed; i++)
        find_loops(model, &model->threads[i]);
    free(making.seen);
    return making.failed ? RG_ERR_NO_MEMORY : RG_OK;
}

void rg_model_free(struct rg_model *model)
{
    for (size_t i = 0; model->threads && i < model->n_threads; i++)
        free(model->threads[i].steps);
    free(model->threads);
    free(model->records);
    free(model->joins);
    rg_device_names_free(&model->names);
    *model = (struct rg_model){0};
}
