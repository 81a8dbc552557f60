/* write_shared.c - see write_shared.h. Of each WRITE_SHARED page there is a twin (twin.h). */
#include "client/managed/write_shared.h"

#include "client/managed/outgoing.h"
#include "client/managed/page_request.h"
#include "client/managed/twin.h"
#include "common/base/limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1024u /* pages */
/* Rounds without a change after which a page is closed, to see whether the host still wants it. */
#define QUIET 16u
#define WORDS RG_PAGE_WORDS

struct shared {
    struct rg_managed_range *range;
    uint64_t range_id;
    size_t page;
    unsigned quiet;
    bool sent; /* since the last round began */
    uint64_t twin[WORDS];
};

static struct shared *all[MOST];
static atomic_size_t n_all;
static struct shared *writable; /* the one that the host may write to; NULL: none */

static uint64_t address_of(const struct shared *shared)
{
    return shared->range->start + (uint64_t)shared->page * RG_PAGE;
}

static uint64_t *words_of(const struct shared *shared)
{
    return (uint64_t *)(uintptr_t)address_of(shared);
}

bool rg_write_shared_any(void)
{
    return atomic_load_explicit(&n_all, memory_order_acquire) != 0;
}

/* Sends what the host has changed of the page that it may write to. Its writers wait meanwhile, and from then
 * on unless it is to `stay` writable. */
static bool flush(bool stay)
{
    struct shared *shared = writable;
    if (!shared)
        return true;
    struct rg_outgoing out;
    rg_outgoing_begin(&out, shared->range->session, shared->range->context);
    if (!rg_pages_freeze(&shared->range->trap, address_of(shared), RG_PAGE))
        return false;
    if (rg_twin_send(words_of(shared), shared->twin, WORDS, UINT64_MAX, UINT64_MAX, &out)) {
        shared->quiet = 0;
        shared->sent = true;
    }
    rg_outgoing_send(&out);
    if (stay)
        return rg_pages_open(&shared->range->trap, address_of(shared), RG_PAGE);
    writable = NULL;
    return true;
}

void rg_write_shared_send(void)
{
    (void)flush(true);
}

static struct shared *find(uint64_t range_id, size_t page)
{
    for (size_t i = 0; i < n_all; i++)
        if (all[i]->range_id == range_id && all[i]->page == page)
            return all[i];
    return NULL;
}

bool rg_write_shared_open(struct rg_managed_range *range, size_t page)
{
    struct shared *shared = find(range->id, page);
    if (!shared)
        return false;
    if (shared == writable) /* another thread was faster */
        return rg_pages_open(&range->trap, address_of(shared), RG_PAGE);
    if (!flush(false))
        return false;
    writable = shared;
    shared->quiet = 0;
    return rg_pages_open(&range->trap, address_of(shared), RG_PAGE);
}

static void drop(size_t index)
{
    if (all[index] == writable)
        writable = NULL;
    all[index]->range->n_write_shared--;
    free(all[index]);
    all[index] = all[n_all - 1];
    atomic_fetch_sub(&n_all, 1);
}

/* Makes a page the device's. */
static void close_page(size_t index)
{
    struct shared *shared = all[index];
    struct rg_managed_range *range = shared->range;
    if (shared == writable && !flush(false))
        return;
    if (!rg_pages_close(&range->trap, address_of(shared), RG_PAGE))
        return;
    range->state[shared->page] = RG_PAGE_DEVICE;
    drop(index);
}

void rg_write_shared_close_all(void)
{
    for (size_t i = n_all; i-- > 0;)
        close_page(i);
}

void rg_write_shared_close(const struct rg_managed_range *range)
{
    for (size_t i = n_all; i-- > 0;)
        if (all[i]->range == range)
            close_page(i);
}

bool rg_write_shared_add(struct rg_managed_range *range, size_t first, size_t end, const unsigned char *data)
{
    for (size_t page = first; page < end && range->state[page] == RG_PAGE_DEVICE; page++, data += RG_PAGE) {
        if (n_all == MOST)
            close_page(0);
        struct shared *shared = n_all < MOST ? malloc(sizeof *shared) : NULL;
        if (!shared)
            return page > first;
        *shared = (struct shared){.range = range, .range_id = range->id, .page = page};
        memcpy(shared->twin, data, RG_PAGE);
        if (!rg_pages_fill(&range->trap, address_of(shared), data, RG_PAGE, false)) {
            free(shared);
            return page > first;
        }
        range->state[page] = RG_PAGE_WRITE_SHARED;
        range->n_write_shared++;
        all[n_all] = shared;
        atomic_fetch_add(&n_all, 1);
    }
    return true;
}

void rg_write_shared_forget(struct rg_managed_range *range)
{
    for (size_t i = n_all; range->n_write_shared && i-- > 0;)
        if (all[i]->range == range)
            drop(i);
}

static int by_address(const void *one, const void *other)
{
    const uint64_t a = address_of(*(struct shared *const *)one),
                   b = address_of(*(struct shared *const *)other);
    return (a > b) - (a < b);
}

/* Pages side by side, and the request for what the device has there. */
struct stretch {
    struct rg_page_request request;
    uint64_t range_id;
    size_t page, n;
};

static size_t stretches(struct stretch *list, unsigned char *data)
{
    size_t n = 0;
    qsort(all, n_all, sizeof *all, by_address);
    for (size_t i = 0; i < n_all; i++, data += RG_PAGE) {
        struct shared *shared = all[i];
        struct stretch *last = n ? &list[n - 1] : NULL;
        shared->sent = false;
        if (last && last->range_id == shared->range_id && last->page + last->n == shared->page) {
            last->n++;
            last->request.size += RG_PAGE;
            continue;
        }
        list[n++] = (struct stretch){.request = {.session = shared->range->session,
                                                 .context = shared->range->context,
                                                 .address = address_of(shared),
                                                 .size = RG_PAGE,
                                                 .data = data},
                                     .range_id = shared->range_id,
                                     .page = shared->page,
                                     .n = 1};
    }
    return n;
}

/* Whether the device has changed pages of a stretch since. */
static bool changed(const struct stretch *s)
{
    const unsigned char *theirs = s->request.data;
    for (size_t i = 0; i < s->n && s->request.result == CUDA_SUCCESS; i++) {
        struct shared *shared = find(s->range_id, s->page + i);
        if (!shared || shared->sent) /* what has left meanwhile is not in the answer */
            continue;
        shared->quiet++;
        if (memcmp(shared->twin, theirs + i * RG_PAGE, RG_PAGE) != 0)
            return true;
    }
    return false;
}

void rg_write_shared_round(pthread_mutex_t *lock, const uint64_t *epoch)
{
    static struct stretch list[MOST]; /* one thread does this */
    static unsigned char theirs[MOST * RG_PAGE];
    static_assert(sizeof theirs <= RG_BULK_MAX, "a request's contents");
    bool idle = true, close = false;
    pthread_mutex_lock(lock);
    const uint64_t before = *epoch;
    (void)flush(true);
    const size_t n = stretches(list, theirs);
    pthread_mutex_unlock(lock);
    for (size_t i = 0; i < n; i++)
        rg_page_request_send(&list[i].request);
    for (size_t i = 0; i < n; i++)
        rg_page_request_wait(&list[i].request);
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < n; i++) {
        idle = idle && !list[i].request.busy;
        close = close || changed(&list[i]);
    }
    if (close || (idle && *epoch == before))
        rg_write_shared_close_all();
    for (size_t i = n_all; i-- > 0;)
        if (all[i]->quiet > QUIET)
            close_page(i);
    pthread_mutex_unlock(lock);
}
