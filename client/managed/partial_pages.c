/* partial_pages.c - see partial_pages.h. */
#include "client/managed/partial_pages.h"

#include "client/managed/faults.h"
#include "client/managed/outgoing.h"
#include "client/managed/page_request.h"
#include "client/managed/twin.h"
#include "common/base/cleanup.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ONE_PAGE_WORDS (RG_PAGE_WORDS + 1) /* what lies on one page, at any address */
#define UNSTEADY_MAX   64                  /* exchanges in a row whose two readings differ */

static_assert(RG_UNIFIED_EXCHANGED_BYTES + 16 <= RG_BULK_MAX, "one request asks for a whole part");

struct part {
    struct part *next;
    struct rg_session *session;
    uint64_t context, start, id;
    uint64_t sent;          /* how often something has left */
    uint64_t asked, merged; /* questions by number; the last one whose answer was taken */
    unsigned unsteady;      /* answers in a row that were left */
    uint64_t *words;
    size_t n;
    uint64_t first, last; /* masks */
    uint64_t twin[];
};

static struct part *parts;
atomic_uint rg_partial_pages_n;
static atomic_uint n_long; /* of more than a page */
static uint64_t next_id;

static void send_all(struct part *part, const void *bytes, uint64_t size)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, part->session, part->context);
    rg_outgoing_add_from(&out, part->start, bytes, size);
    rg_outgoing_send(&out);
}

bool rg_partial_pages_add(struct rg_session *session, uint64_t context, uint64_t start, uint64_t size)
{
    const uint64_t from = start & ~7ull, to = (start + size + 7) & ~7ull;
    const size_t n = (to - from) / 8;
    struct part *part = malloc(sizeof *part + n * 8);
    if (!part)
        return false;
    *part = (struct part){.next = parts,
                          .session = session,
                          .context = context,
                          .start = start,
                          .id = ++next_id,
                          .words = (uint64_t *)(uintptr_t)from,
                          .n = n,
                          .first = UINT64_MAX << (start - from) * 8,
                          .last = UINT64_MAX >> (to - start - size) * 8};
    memcpy(part->twin, part->words, n * 8);
    send_all(part, (unsigned char *)part->twin + (start - from), size);
    parts = part;
    atomic_fetch_add(&n_long, n > ONE_PAGE_WORDS);
    atomic_fetch_add(&rg_partial_pages_n, 1);
    return true;
}

static void drop(struct part **at)
{
    struct part *part = *at;
    *at = part->next;
    atomic_fetch_sub(&n_long, part->n > ONE_PAGE_WORDS);
    free(part);
    atomic_fetch_sub(&rg_partial_pages_n, 1);
}

void rg_partial_pages_remove(uint64_t start)
{
    for (struct part **at = &parts; *at; at = &(*at)->next)
        if ((*at)->start == start) {
            drop(at);
            return;
        }
}

void rg_partial_pages_drop_context(uint64_t context)
{
    for (struct part **at = &parts; *at;)
        if ((*at)->context == context)
            drop(at);
        else
            at = &(*at)->next;
}

bool rg_partial_pages_are_much(void)
{
    return atomic_load(&n_long) != 0;
}

static void send_changes(struct part *part)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, part->session, part->context);
    if (rg_twin_send(part->words, part->twin, part->n, part->first, part->last, &out))
        part->sent++;
    rg_outgoing_send(&out);
}

/* The application may have unmapped it (as rg_unified_take_out_gone). */
static bool gone(const struct part *part)
{
    return rg_pages_gone((uint64_t)(uintptr_t)part->words, part->n * 8);
}

static void drop_gone(void)
{
    for (struct part **at = &parts; *at;)
        if (gone(*at))
            drop(at);
        else
            at = &(*at)->next;
}

void rg_partial_pages_send(void)
{
    drop_gone();
    for (struct part *part = parts; part; part = part->next)
        send_changes(part);
}

/* The one with the lowest number from `id` on that is still there. */
static struct part *next_from(uint64_t id)
{
    for (;;) {
        struct part **best = NULL;
        for (struct part **at = &parts; *at; at = &(*at)->next)
            if ((*at)->id >= id && (!best || (*at)->id < (*best)->id))
                best = at;
        if (!best || !gone(*best))
            return best ? *best : NULL;
        drop(best);
    }
}

/* Whether what was read may be taken: see partial_pages.h. */
static bool may_take(struct part *part, const struct rg_page_request *request, bool waited)
{
    if (!waited && !request->steady && part->n > ONE_PAGE_WORDS && ++part->unsteady < UNSTEADY_MAX)
        return false;
    part->unsteady = 0;
    return true;
}

/* Exchanges one; whether the device may be at work. `theirs` has room for all of it. */
static bool exchange(struct part *part, uint64_t *theirs, pthread_mutex_t *lock, bool waited)
{
    const uint64_t id = part->id, sent = part->sent, number = ++part->asked;
    struct rg_page_request request = {.session = part->session,
                                      .context = part->context,
                                      .address = (uint64_t)(uintptr_t)part->words,
                                      .size = part->n * 8,
                                      .flags = RG_MANAGED_STEADY,
                                      .data = theirs};
    pthread_mutex_unlock(lock);
    rg_page_request_send(&request);
    rg_page_request_wait(&request);
    pthread_mutex_lock(lock);
    part = next_from(id);
    if (request.result == CUDA_SUCCESS && part && part->id == id && part->sent == sent &&
        number > part->merged && may_take(part, &request, waited)) {
        part->merged = number;
        (void)rg_twin_merge(part->words, part->twin, theirs, part->n, part->first, part->last);
    }
    return request.busy;
}

bool rg_partial_pages_exchange(pthread_mutex_t *lock, bool waited)
{
    uint64_t one_page[ONE_PAGE_WORDS];
    bool busy = false;
    uint64_t id = 0;
    for (struct part *part; (part = next_from(id)); id++) {
        send_changes(part);
        id = part->id;
        RG_CLEANUP_FREE uint64_t *more = part->n > ONE_PAGE_WORDS ? malloc(part->n * 8) : NULL;
        if (part->n > ONE_PAGE_WORDS && !more) {
            rg_warn("no memory to look for what the device has written to memory that is mapped twice");
            busy = true; /* so that it is tried again */
            continue;
        }
        busy |= exchange(part, more ? more : one_page, lock, waited);
    }
    return busy;
}
