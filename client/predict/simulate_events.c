/* simulate_events.c - the events of a simulation: a heap, the earliest first, of equal ones that which was
 * added first. */
#include "client/predict/simulation.h"

#include <stdlib.h>

static bool before(const struct rg_sim_event *a, const struct rg_sim_event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

void rg_sim_push(struct rg_simulation *s, struct rg_sim_event event)
{
    if (s->n_events == s->events_capacity) {
        const size_t capacity = s->events_capacity ? s->events_capacity * 2 : 256;
        struct rg_sim_event *heap = realloc(s->heap, capacity * sizeof *heap);
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

struct rg_sim_event rg_sim_pop(struct rg_simulation *s)
{
    const struct rg_sim_event first = s->heap[0], last = s->heap[--s->n_events];
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
