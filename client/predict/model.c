/*
 * model.c - from a trace to a model: what each thread did, with the time between; then how the threads depend
 * on one another (model_threads.c), and what the records cost (model_server.c). It fails only for lack of
 * memory.
 */
#include "client/predict/model_making.h"

#include "generated/proto/ops.h"

#include <stdlib.h>

/* --- operations ----------------------------------------------------------------------------------------- */

/* The traits of the trace's operations, by its numbers: another build may have made it. NULL: out of memory. */
static unsigned *traits_of(const struct rg_trace *trace)
{
    unsigned *traits = calloc(trace->operations.n + 1, sizeof *traits);
    for (size_t i = 0; traits && i < trace->operations.n; i++)
        traits[i] = rg_op_traits[rg_op_by_name(trace->operations.names[i])];
    return traits;
}

/* What an operation does to its stream; nothing is said of what is only work. */
static void classify(unsigned traits, struct rg_record_model *record)
{
    static const struct {
        unsigned traits;
        enum rg_device_act act;
    } acts[] = {
        {RG_TRAIT_RECORDS, RG_DEVICE_RECORD},
        {RG_TRAIT_FOLLOWS, RG_DEVICE_WAIT_EVENT},
        {RG_TRAIT_AWAITS_STREAM | RG_TRAIT_QUERIES_STREAM, RG_DEVICE_SYNC_STREAM},
        {RG_TRAIT_AWAITS_EVENT | RG_TRAIT_QUERIES_EVENT, RG_DEVICE_SYNC_EVENT},
        {RG_TRAIT_AWAITS_ALL, RG_DEVICE_SYNC_ALL},
        {RG_TRAIT_DEFERRED_IN | RG_TRAIT_DEFERRED_OUT | RG_TRAIT_HOST, RG_DEVICE_WORK},
    };
    static const struct {
        unsigned traits;
        enum rg_record_flags flag;
    } flags[] = {
        {RG_TRAIT_AWAITS_STREAM | RG_TRAIT_AWAITS_EVENT | RG_TRAIT_AWAITS_ALL, RG_RECORD_WAITS},
        {RG_TRAIT_QUERIES_STREAM | RG_TRAIT_QUERIES_EVENT, RG_RECORD_QUERY},
        {RG_TRAIT_DEFERRED_IN, RG_RECORD_DEFERRED_IN},
        {RG_TRAIT_DEFERRED_OUT, RG_RECORD_DEFERRED_OUT},
        {RG_TRAIT_HOST, RG_RECORD_HOST_CALL},
    };
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (traits & acts[i].traits)
            record->use.act = acts[i].act;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (traits & flags[i].traits)
            record->flags |= flags[i].flag;
}

/* --- threads -------------------------------------------------------------------------------------------- */

static uint32_t add_record(struct rg_model_making *making, const struct rg_trace_item *item)
{
    struct rg_model *model = making->model;
    if (model->n_records == making->capacity) {
        const size_t capacity = making->capacity ? making->capacity * 2 : 1024;
        struct rg_record_model *records = realloc(model->records, capacity * sizeof *records);
        if (records)
            model->records = records;
        struct rg_model_seen *seen = realloc(making->seen, capacity * sizeof *seen);
        if (seen)
            making->seen = seen;
        if (!records || !seen) {
            making->failed = true;
            return RG_MODEL_NO_RECORD;
        }
        making->capacity = capacity;
    }
    const uint32_t number = (uint32_t)model->n_records++;
    struct rg_record_model *record = &model->records[number];
    making->seen[number] = (struct rg_model_seen){
        .seq = item->seq, .place = item->seq, .put_at = item->start, .sent_at = item->start};
    if (item->kind == RG_TRACE_POLL) {
        const uint32_t last = making->last_on[item->server];
        making->seen[number].place = last == RG_MODEL_NO_RECORD ? 0 : making->seen[last].place;
        making->seen[number].back_at = item->duration ? item->start + item->duration : 0;
        *record =
            (struct rg_record_model){.flags = RG_RECORD_POLL | (item->code ? RG_RECORD_READY : 0),
                                     .server = item->server,
                                     .use.act = item->size ? RG_DEVICE_SYNC_EVENT : RG_DEVICE_SYNC_STREAM};
        return number;
    }
    making->last_on[item->server] = number;
    *record =
        (struct rg_record_model){.op = (uint16_t)item->code, .server = item->server, .size = item->size};
    classify(making->traits[record->op], record);
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

/* One event of the trace as a step; false: it is none. *last: the thread's last record, `before`: its
 * step. */
static bool make_step(struct rg_model_making *making, const struct rg_trace_item *item, uint32_t *last,
                      const struct rg_step *before, struct rg_step *step)
{
    struct rg_model *model = making->model;
    *step = (struct rg_step){.record = *last, .time = item->duration};
    if (item->kind == RG_TRACE_POST) {
        step->kind = RG_STEP_POST;
        step->record = *last = add_record(making, item);
        return !making->failed;
    }
    if (item->kind == RG_TRACE_POLL) {
        step->kind = RG_STEP_POLL;
        step->record = add_record(making, item);
        return !making->failed;
    }
    if (item->kind == RG_TRACE_SAVED) {
        step->kind = RG_STEP_SAVED;
        step->record = item->code;
        model->saved |= 1ull << item->code;
        return true;
    }
    if (item->kind == RG_TRACE_EXCHANGE && *last != RG_MODEL_NO_RECORD)
        making->failed = making->failed || !rg_model_add_exchange(model, *last, item);
    if (item->kind == RG_TRACE_CALL && *last != RG_MODEL_NO_RECORD) /* data that came beside the reply */
        model->records[*last].out += item->received;
    if (item->kind != RG_TRACE_WAIT)
        return false;
    model->waited += item->duration;
    if (*last == RG_MODEL_NO_RECORD) {
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

static void make_thread(struct rg_model_making *making, const struct rg_trace_thread *from, bool main,
                        struct rg_thread_model *to)
{
    uint64_t first, last;
    life(from, &first, &last);
    uint64_t now = main ? 0 : first;
    uint32_t last_record = RG_MODEL_NO_RECORD;
    for (size_t i = 0; i < RG_SERVERS_MAX; i++)
        making->last_on[i] = RG_MODEL_NO_RECORD;
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

/* --- the whole ------------------------------------------------------------------------------------------ */

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
    struct rg_model_making making = {.trace = trace, .traits = traits_of(trace), .model = model};
    const size_t first = main_thread(trace);
    model->threads = calloc(trace->n_threads, sizeof *model->threads);
    making.failed = !model->threads || !making.traits;
    for (size_t i = 0; i < trace->n_threads && !making.failed; i++) {
        const size_t from = i == 0 ? first : i <= first ? i - 1 : i;
        make_thread(&making, &trace->threads[from], i == 0, &model->threads[i]);
    }
    rg_model_relate_exchanges(model);
    making.failed = making.failed || !rg_model_relate_threads(model) || !rg_model_learn(&making);
    for (size_t i = 0; i < model->n_threads && !making.failed; i++)
        rg_model_find_loops(model, &model->threads[i]);
    free(making.seen);
    free(making.traits);
    return making.failed ? RG_ERR_NO_MEMORY : RG_OK;
}

void rg_model_free(struct rg_model *model)
{
    for (size_t i = 0; model->threads && i < model->n_threads; i++)
        free(model->threads[i].steps);
    free(model->threads);
    free(model->records);
    free(model->exchanges);
    free(model->joins);
    rg_device_names_free(&model->names);
    *model = (struct rg_model){0};
}
