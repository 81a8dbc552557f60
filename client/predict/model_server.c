/*
 * model_server.c - what records cost at the server, and what they did on its device.
 *
 * The records are taken in the order in which the worker executed them: its times say how long it was busy,
 * and when the device was done with what; the clocks of the two machines are laid over each other by the
 * quickest round trip.
 */
#include "client/predict/model_making.h"
#include "common/base/tuning.h"

#include <stdlib.h>

#define WAKE_MOST_NS 200000 /* that a thread takes to wake up, on any machine worth predicting for */
#define USUAL_NS     5000   /* of a way, where nothing tells */

static const struct rg_time *find_time(const struct rg_trace_server *server, uint64_t seq)
{
    size_t low = 0, high = server->n_times;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (server->times[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < server->n_times && server->times[low].seq == seq ? &server->times[low] : NULL;
}

/* A reply is on its way from here on. */
static uint64_t left_at(const struct rg_record_model *record, const struct rg_time *time)
{
    return record->out > RG_LITTLE_REPLY ? time->sent : time->reply;
}

/*
 * The quickest round trip lays the clocks over each other: its ways were equal. Where few calls wait, each of
 * them may have stood behind other work at the worker; then the quickest way there of one record and the
 * quickest way back of another one are together what a round trip takes at most, whatever the clocks say.
 */
static void find_offset(struct rg_model_making *making, unsigned server)
{
    struct rg_way_model *way = &making->model->ways[server];
    uint64_t least = UINT64_MAX;
    int64_t there_least = INT64_MAX, back_least = INT64_MAX; /* by two clocks */
    for (size_t i = 0; i < making->model->n_records; i++) {
        const struct rg_record_model *record = &making->model->records[i];
        const struct rg_model_seen *seen = &making->seen[i];
        if (record->server != server)
            continue;
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
        way->round_trip = least = all - there;
        making->offsets[server] = (int64_t)(seen->time->begin - seen->sent_at) - (int64_t)(least / 2);
    }
    const int64_t both = back_least == INT64_MAX ? 0 : there_least + back_least;
    if (both > 0 && least / 2 > (uint64_t)both) {
        way->round_trip = (uint64_t)both;
        making->offsets[server] = there_least - both / 2;
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
 * Where the ways can be seen, they are what they were; else those of the quickest round trip. What a record
 * waits for that nobody waits for is the sender's, of four such the shortest but one.
 */
static bool find_way(struct rg_model_making *making, unsigned server, const uint32_t *order, size_t n)
{
    struct rg_model *model = making->model;
    struct rg_way_model *way = &model->ways[server];
    const uint64_t offset = (uint64_t)making->offsets[server];
    uint64_t *wakes = malloc((n + 1) * sizeof *wakes);
    if (!wakes)
        return false;
    size_t n_wakes = 0;
    uint64_t busy_until = 0;
    if (!way->round_trip)
        way->round_trip = 2 * USUAL_NS;
    way->up = way->down = way->round_trip / 2;
    for (size_t i = 0; i < n; i++) {
        struct rg_record_model *record = &model->records[order[i]];
        const struct rg_model_seen *seen = &making->seen[order[i]];
        const struct rg_time *time = seen->time; /* NULL for polls, which have no place in the order */
        if (record->server != server)
            continue;
        record->up = way->up;
        record->down = way->down;
        if (!time)
            continue;
        const uint64_t sent = seen->sent_at + offset;
        const bool visible = sent >= busy_until; /* else it may have waited for others there */
        if (seen->back_at && time->reply) {
            if (visible)
                record->up = gap(sent, time->begin);
            record->down = gap(left_at(record, time), seen->back_at + offset);
        } else if (visible) {
            wakes[n_wakes++] = gap(sent, time->begin);
        }
        if (time->served > busy_until)
            busy_until = time->served;
    }
    qsort(wakes, n_wakes, sizeof *wakes, by_number);
    way->wake = n_wakes ? gap(way->up, wakes[n_wakes / 4]) : USUAL_NS;
    if (way->wake > WAKE_MOST_NS)
        way->wake = WAKE_MOST_NS;
    free(wakes);
    return true;
}

/* A record for which servers had something to exchange. Of a fence nobody has measured when it was over. */
static void learn_exchange(struct rg_model_making *making, const struct rg_record_model *record,
                           const struct rg_time *time)
{
    const uint64_t offset = (uint64_t)making->offsets[record->server];
    const uint64_t start = rg_device_start(&making->devices[record->server], record->use.stream, time->begin);
    const uint64_t end = time->flags & RG_TIME_END && time->end > start ? time->end : start;
    rg_model_learn_exchange(making, record->exchange, start - offset, end - offset);
}

/*
 * What a record did, from the worker's times; the device is as it was when the record began. *goes_on, by
 * operation: it did not wait for the device, though it might have and the device was at work.
 */
static void learn(struct rg_model_making *making, struct rg_record_model *record, const struct rg_time *time,
                  bool *goes_on)
{
    struct rg_model *model = making->model;
    struct rg_device *device = &making->devices[record->server];
    const uint64_t begin = time->begin, served = time->served, replied = time->reply ? time->reply : served;
    record->service = served - begin;
    record->tail = gap(served, replied);
    if (record->out > RG_LITTLE_REPLY)
        record->transfer = gap(replied, time->sent);
    if (record->flags & RG_RECORD_QUERY) {
        record->flags |= time->result == 0 ? RG_RECORD_READY : 0;
        return;
    }
    if (record->exchange) {
        learn_exchange(making, record, time);
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
static void assume(struct rg_model *model, struct rg_record_model *record, const struct rg_model_seen *seen)
{
    record->service = 1000;
    record->exchange = 0;
    const uint64_t round_trip = model->ways[record->server].round_trip;
    if (seen->back_at && seen->back_at - seen->sent_at > round_trip)
        record->tail = seen->back_at - seen->sent_at - round_trip;
    if (record->use.act == RG_DEVICE_WORK)
        record->use.act = RG_DEVICE_NOTHING;
    record->flags |= record->flags & RG_RECORD_QUERY ? RG_RECORD_READY : 0;
}

/* To sort records by. */
struct place {
    uint64_t place, put_at;
    uint32_t record;
    uint8_t server;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->server != y->server)
        return x->server < y->server ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

/* Those of each worker, which follow each other, become one row, as they were put. */
static void merge(const struct place *places, size_t n, uint32_t *order)
{
    size_t next[RG_SERVERS_MAX + 1] = {0}, end[RG_SERVERS_MAX + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || places[i].server != places[i - 1].server)
            next[places[i].server] = i;
        end[places[i].server] = i + 1;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned first = RG_SERVERS_MAX;
        for (unsigned server = 0; server < RG_SERVERS_MAX; server++)
            if (next[server] < end[server] &&
                (first == RG_SERVERS_MAX || places[next[server]].put_at < places[next[first]].put_at))
                first = server;
        order[i] = places[next[first]++].record;
    }
}

/* The records in the workers' order. The caller frees it. */
static uint32_t *order_of(const struct rg_model_making *making)
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
        places[i] = (struct place){.place = making->seen[i].place,
                                   .put_at = making->seen[i].put_at,
                                   .record = (uint32_t)i,
                                   .server = making->model->records[i].server};
    qsort(places, n, sizeof *places, by_place);
    merge(places, n, order);
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

static bool name_objects(struct rg_model_making *making)
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
        const struct rg_time *time = making->seen[i].time =
            find_time(&making->trace->servers[model->records[i].server], making->seen[i].seq);
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

/* Clocks, ways and devices of all servers. False: out of memory. */
static bool begin_servers(struct rg_model_making *making, const uint32_t *order)
{
    struct rg_model *model = making->model;
    if (!name_objects(making))
        return false;
    for (unsigned i = 0; i < making->trace->n_servers; i++) {
        find_offset(making, i);
        if (!find_way(making, i, order, model->n_records) ||
            !rg_device_init(&making->devices[i], &model->names))
            return false;
        if (model->ways[i].round_trip > model->round_trip)
            model->round_trip = model->ways[i].round_trip;
    }
    return true;
}

/* One record, in the workers' order. */
static void learn_record(struct rg_model_making *making, uint32_t number, bool *goes_on)
{
    struct rg_model *model = making->model;
    struct rg_record_model *record = &model->records[number];
    const struct rg_model_seen *seen = &making->seen[number];
    if (record->flags & RG_RECORD_POLL) {
        const uint64_t done = rg_device_done(&making->devices[record->server], &record->use),
                       there = seen->back_at;
        const bool awaited = record->flags & RG_RECORD_READY && there;
        record->down = awaited ? gap(done, there + (uint64_t)making->offsets[record->server])
                               : model->ways[record->server].down;
    } else if (seen->time) {
        learn(making, record, seen->time, goes_on);
    } else {
        assume(model, record, seen);
    }
}

bool rg_model_learn(struct rg_model_making *making)
{
    struct rg_model *model = making->model;
    uint32_t *order = order_of(making);
    bool *goes_on = calloc(making->trace->operations.n + 1, sizeof *goes_on);
    const bool good = order && goes_on && begin_servers(making, order);
    for (size_t i = 0; good && i < model->n_records; i++)
        learn_record(making, order[i], goes_on);
    for (size_t i = 0; good && i < model->n_records; i++)
        if (goes_on[model->records[i].op])
            model->records[i].flags &= ~(unsigned)RG_RECORD_BLOCKS;
    for (unsigned i = 0; i < RG_SERVERS_MAX; i++)
        rg_device_free(&making->devices[i]);
    free(goes_on);
    free(order);
    return good && rg_model_weigh_exchanges(model);
}
