/*
 * simulate_exchange.c - what servers have to exchange, over the link between them (simulation.h).
 *
 * An exchange begins when the streams of all that wait for each other have got there; those whose records were executed before are told
 * then. It takes what it took, or what its bytes take on the link if that is more, and the ways there and back on which no data goes.
 */
#include "client/predict/simulation.h"

#define QUEUED                                                                                               \
    ((uint64_t)256                                                                                           \
     << 10) /* bytes of data that are before a small message: a piece, and what the kernel holds */

/* When data may go a way that is wanted at `begin`: behind what goes there at that time. */
static uint64_t free_at(const struct rg_sim_use *use, uint64_t begin)
{
    return begin >= use->begin && begin < use->end ? use->end : begin;
}

static void take(struct rg_sim_use *use, uint64_t begin, uint64_t cost)
{
    if (begin != use->end)
        use->begin = begin;
    use->end = begin + cost;
}

/* When an exchange that is wanted at `begin` has the server's link, each way as far as it needs that. */
static uint64_t take_link(struct rg_sim_server *server, uint64_t begin, uint64_t sends, uint64_t receives)
{
    if (sends)
        begin = free_at(&server->sends, begin);
    if (receives)
        begin = free_at(&server->receives, begin);
    if (sends)
        take(&server->sends, begin, sends);
    if (receives)
        take(&server->receives, begin, receives);
    return begin;
}

/* Whether somebody who takes part in the exchange is sending data at that time. */
static bool is_busy(const struct rg_simulation *s, const struct rg_exchange_model *exchange, uint64_t at)
{
    const struct rg_exchange_model *first = &s->model->exchanges[exchange->first];
    bool busy = false;
    for (const struct rg_exchange_model *one = first; one < first + first->n; one++) {
        const struct rg_sim_use *use = &s->servers[s->model->records[one->record].server].sends;
        busy = busy || (at >= use->begin && at < use->end);
    }
    return busy;
}

/* How long a message without data is on its way: behind what is before it of others' data. */
static uint64_t way(const struct rg_simulation *s, const struct rg_exchange_model *exchange, uint64_t at)
{
    return s->wire->between_oneway_ns +
           (is_busy(s, exchange, at) ? rg_sim_cost(QUEUED, s->wire->between_bytes_per_second) : 0);
}

/* When an exchange is over that begins at `begin`, if a message takes so long; `whole`: and that will not change. */
static uint64_t end_of(struct rg_simulation *s, const struct rg_exchange_model *exchange,
                       const struct rg_record_model *record, uint64_t begin, uint64_t way_ns, bool whole)
{
    const struct rg_wire *wire = s->wire;
    const uint64_t sends = rg_sim_cost(exchange->sent, wire->between_bytes_per_second),
                   receives = rg_sim_cost(exchange->received, wire->between_bytes_per_second),
                   turns = 2 * exchange->turns * wire->between_oneway_ns;
    const uint64_t from = whole ? take_link(&s->servers[record->server], begin, sends, receives) : begin;
    return from + rg_sim_gap(exchange->itself, record->use.time) +
           rg_sim_later(exchange->itself, rg_sim_later(rg_sim_later(sends, receives), turns)) +
           exchange->ways * way_ns;
}

void rg_sim_exchange(struct rg_simulation *s, const struct rg_record_model *record, uint64_t start)
{
    const struct rg_exchange_model *all = s->model->exchanges, *own = &all[record->exchange];
    const struct rg_exchange_model *first = &all[own->first];
    struct rg_sim_exchange *common = &s->exchanges[own->first];
    struct rg_sim_exchange *here = &s->exchanges[record->exchange];
    if (!here->there)
        common->come++;
    here->there = true;
    here->start = start;
    common->latest = rg_sim_later(common->latest, start);
    /* the last one tells all; one before is over when it would be if it were the last */
    const bool whole = common->come == first->n;
    const uint32_t from = whole ? own->first : record->exchange;
    const uint64_t way_ns = way(s, own, common->latest);
    for (uint32_t i = from; i < from + (whole ? first->n : 1); i++) {
        const struct rg_record_model *one = &s->model->records[all[i].record];
        const uint64_t begin = all[i].ways ? common->latest : s->exchanges[i].start;
        rg_device_end(&s->servers[one->server].device, one->use.stream,
                      end_of(s, &all[i], one, begin, way_ns, whole));
    }
}
