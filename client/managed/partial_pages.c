/* partial_pages.c - see partial_pages.h. */
#include "client/managed/partial_pages.h"

#include "client/managed/twin.h"
#include "client/transfer/transfer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct edge {
    struct edge *next;
    struct rg_session *session;
    uint64_t context, start, id;
    uint64_t sent;          /* how often something has left */
    uint64_t asked, merged; /* questions by number; the last one whose answer was taken */
    uint64_t *words;
    size_t n;
    uint64_t first, last; /* masks */
    uint64_t twin[];
};

static struct edge *edges;
static atomic_uint n_edges;
static uint64_t next_id;

bool rg_partial_pages_any(void)
{
    return atomic_load_explicit(&n_edges, memory_order_acquire) != 0;
}

static void send_all(struct edge *edge, const void *bytes, uint64_t size)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, edge->session, edge->context);
    rg_outgoing_add_from(&out, edge->start, bytes, size);
    rg_outgoing_send(&out);
}

bool rg_partial_pages_add(struct rg_session *session, uint64_t context, uint64_t start, uint64_t size)
{
    const uint64_t from = start & ~7ull, to = (start + size + 7) & ~7ull;
    const size_t n = (to - from) / 8;
    struct edge *edge = malloc(sizeof *edge + n * 8);
    if (!edge)
        return false;
    *edge = (struct edge){.next = edges,
                          .session = session,
                          .context = context,
                          .start = start,
                          .id = ++next_id,
                          .words = (uint64_t *)(uintptr_t)from,
                          .n = n,
                          .first = UINT64_MAX << (start - from) * 8,
                          .last = UINT64_MAX >> (to - start - size) * 8};
    memcpy(edge->twin, edge->words, n * 8);
    send_all(edge, (unsigned char *)edge->twin + (start - from), size);
    edges = edge;
    atomic_fetch_add(&n_edges, 1);
    return true;
}

static void drop(struct edge **at)
{
    struct edge *edge = *at;
    *at = edge->next;
    free(edge);
    atomic_fetch_sub(&n_edges, 1);
}

void rg_partial_pages_remove(uint64_t start)
{
    for (struct edge **at = &edges; *at; at = &(*at)->next)
        if ((*at)->start == start) {
            drop(at);
            return;
        }
}

void rg_partial_pages_drop_context(uint64_t context)
{
    for (struct edge **at = &edges; *at;)
        if ((*at)->context == context)
            drop(at);
        else
            at = &(*at)->next;
}

static void send_changes(struct edge *edge)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, edge->session, edge->context);
    if (rg_twin_send(edge->words, edge->twin, edge->n, edge->first, edge->last, &out))
        edge->sent++;
    rg_outgoing_send(&out);
}

void rg_partial_pages_send(void)
{
    for (struct edge *edge = edges; edge; edge = edge->next)
        send_changes(edge);
}

/* The one with the lowest number from `id` on. */
static struct edge *next_from(uint64_t id)
{
    struct edge *best = NULL;
    for (struct edge *edge = edges; edge; edge = edge->next)
        if (edge->id >= id && (!best || edge->id < best->id))
            best = edge;
    return best;
}

bool rg_partial_pages_exchange(pthread_mutex_t *lock)
{
    uint64_t theirs[RG_PAGE_WORDS + 1];
    bool busy = false;
    uint64_t id = 0;
    for (struct edge *edge; (edge = next_from(id)); id++) {
        send_changes(edge);
        id = edge->id;
        const uint64_t sent = edge->sent, number = ++edge->asked;
        struct rg_page_request request = {.session = edge->session,
                                          .context = edge->context,
                                          .address = (uint64_t)(uintptr_t)edge->words,
                                          .size = edge->n * 8,
                                          .flags = RG_MANAGED_STEADY,
                                          .data = theirs};
        pthread_mutex_unlock(lock);
        rg_page_request_send(&request);
        rg_page_request_wait(&request);
        pthread_mutex_lock(lock);
        busy = busy || request.busy;
        edge = next_from(id);
        if (request.result == CUDA_SUCCESS && edge && edge->id == id && edge->sent == sent &&
            number > edge->merged) {
            edge->merged = number;
            (void)rg_twin_merge(edge->words, edge->twin, theirs, edge->n, edge->first, edge->last);
        }
    }
    return busy;
}
