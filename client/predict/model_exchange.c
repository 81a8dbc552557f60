/*
 * model_exchange.c - what servers had to exchange for which records, and how long that took (model_making.h).
 *
 * Records of one key wait for each other: what is exchanged begins when the last of their streams has got there. Where the others are in
 * no record of the trace, as with ranks in other processes, the quickest of equal exchanges is taken for one that did not wait for them.
 */
#include "client/predict/model_making.h"

#include <stdlib.h>

static struct rg_exchange_model *add(struct rg_model *model)
{
    if ((model->n_exchanges & (model->n_exchanges - 1)) == 0) { /* as many as there is room for */
        struct rg_exchange_model *larger = realloc(
            model->exchanges, (model->n_exchanges ? model->n_exchanges * 2 : 1) * sizeof *model->exchanges);
        if (!larger)
            return NULL;
        model->exchanges = larger;
    }
    struct rg_exchange_model *exchange = &model->exchanges[model->n_exchanges++];
    *exchange = (struct rg_exchange_model){.record = RG_MODEL_NO_RECORD};
    return exchange;
}

bool rg_model_add_exchange(struct rg_model *model, uint32_t record, const struct rg_trace_item *item)
{
    if (model->records[record].exchange)
        return true; /* one each */
    if (!model->n_exchanges && !add(model))
        return false;
    struct rg_exchange_model *exchange = add(model);
    if (!exchange)
        return false;
    *exchange = (struct rg_exchange_model){.key = item->seq,
                                           .sent = item->sent,
                                           .received = item->received,
                                           .ways = item->code,
                                           .turns = item->size,
                                           .record = record};
    model->records[record].exchange = (uint32_t)model->n_exchanges - 1;
    model->records[record].use.act = RG_DEVICE_WORK;
    return true;
}

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_key(const void *a, const void *b)
{
    const struct rg_exchange_model *x = a, *y = b;
    return x->key != y->key ? order(x->key, y->key) : order(x->record, y->record);
}

void rg_model_relate_exchanges(struct rg_model *model)
{
    struct rg_exchange_model *all = model->exchanges;
    if (!model->n_exchanges)
        return;
    qsort(all + 1, model->n_exchanges - 1, sizeof *all, by_key);
    for (uint32_t i = 1, first = 1; i < model->n_exchanges; i++) {
        if (all[i].key != all[first].key || !all[i].key)
            first = i;
        all[i].first = first;
        all[first].n = i - first + 1;
        model->records[all[i].record].exchange = i;
    }
}

/* --- how long they took --------------------------------------------------------------------------------- */

void rg_model_learn_exchange(struct rg_model_making *making, uint32_t number, uint64_t start, uint64_t end)
{
    struct rg_model *model = making->model;
    struct rg_exchange_model *all = model->exchanges, *own = &all[number];
    struct rg_exchange_model *first = &all[own->first];
    own->start = start;
    own->end = end;
    own->seen = true;
    struct rg_record_model *const own_record = &model->records[own->record];
    own_record->use.time = end > start ? end - start : 0;
    rg_device_end(&making->devices[own_record->server], own_record->use.stream,
                  end + (uint64_t)making->offsets[own_record->server]);
    uint64_t latest = 0;
    for (struct rg_exchange_model *one = first; one < first + first->n; one++) {
        if (!one->seen)
            return;
        latest = one->start > latest ? one->start : latest;
    }
    for (struct rg_exchange_model *one = first; one < first + first->n; one++) {
        struct rg_record_model *record = &model->records[one->record];
        const uint64_t begin = one->ways ? latest : one->start;
        record->use.time = one->end > begin ? one->end - begin : 0;
        model->device_busy += record->use.time;
        rg_device_end(&making->devices[record->server], record->use.stream,
                      (one->end > begin ? one->end : begin) + (uint64_t)making->offsets[record->server]);
    }
}

/* The time of an exchange, to find the least of equal ones. */
struct timed {
    uint64_t sent, received, time;
    uint32_t exchange;
};

static int by_size(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->sent != y->sent)
        return order(x->sent, y->sent);
    return x->received != y->received ? order(x->received, y->received) : order(x->time, y->time);
}

bool rg_model_weigh_exchanges(struct rg_model *model)
{
    struct timed *timed = malloc((model->n_exchanges + 1) * sizeof *timed);
    size_t n = 0;
    if (!timed)
        return false;
    for (uint32_t i = 1; i < model->n_exchanges; i++) {
        const uint64_t time = model->records[model->exchanges[i].record].use.time;
        model->exchanges[i].itself = time;
        if (model->exchanges[model->exchanges[i].first].n == 1)
            timed[n++] = (struct timed){model->exchanges[i].sent, model->exchanges[i].received, time, i};
    }
    qsort(timed, n, sizeof *timed, by_size);
    for (size_t i = 0, first = 0; i < n; i++) {
        if (timed[i].sent != timed[first].sent || timed[i].received != timed[first].received)
            first = i;
        model->exchanges[timed[i].exchange].itself = timed[first].time;
    }
    free(timed);
    return true;
}
