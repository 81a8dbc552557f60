/* write_shared.c - see write_shared.h. Of each WRITE_SHARED page there is a twin (twin.h). */
#include "client/managed/write_shared.h"

#include "client/managed/outgoing.h"
#include "client/managed/page_request.h"
#include "client/managed/twin.h"
#include "common/base/limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LIVE_MAX 1024u /* pages */
#define QUIET                                                                                                \
    16u /* rounds without a change after which a page is closed, to see whether the host still wants it */
#define WORDS RG_PAGE_WORDS

struct live {
    struct rg_managed_range *range;
    uint64_t share_id;
    size_t page;
    unsigned quiet;
    bool sent; /* since the last round began */
    uint64_t twin[WORDS];
};

static struct live *lives[LIVE_MAX];
static atomic_size_t n_lives;
static struct live *writable; /* the one that the host may write to; NULL: none */

static uint64_t address_of(const struct live *live)
{
    return live->range->start + (uint64_t)live->page * RG_PAGE;
}

static uint64_t *words_of(const struct live *live)
{
    return (uint64_t *)(uintptr_t)address_of(live);
}

bool rg_write_shared_any(void)
{
    return atomic_load_explicit(&n_lives, memory_order_acquire) != 0;
}

/* Sends what the host has changed of the page that it may write to. Its writers wait meanwhile, and from then
 * on unless it is to `stay` writable. */
static bool flush(bool stay)
{
    struct live *live = writable;
    if (!live)
        return true;
    struct rg_outgoing out;
    rg_outgoing_begin(&out, live->range->session, live->range->context);
    if (!rg_pages_freeze(&live->range->watch, address_of(live), RG_PAGE))
        return false;
    if (rg_twin_send(words_of(live), live->twin, WORDS, UINT64_MAX, UINT64_MAX, &out)) {
        live->quiet = 0;
        live->sent = true;
    }
    rg_outgoing_send(&out);
    if (stay)
        return rg_pages_open(&live->range->watch, address_of(live), RG_PAGE);
    writable = NULL;
    return true;
}

void rg_write_shared_send(void)
{
    (void)flush(true);
}

static struct live *find(uint64_t share_id, size_t page)
{
    for (size_t i = 0; i < n_lives; i++)
        if (lives[i]->share_id == share_id && lives[i]->page == page)
            return lives[i];
    return NULL;
}

bool rg_write_shared_open(struct rg_managed_range *range, size_t page)
{
    struct live *live = find(range->id, page);
    if (!live)
        return false;
    if (live == writable) /* another thread was faster */
        return rg_pages_open(&range->watch, address_of(live), RG_PAGE);
    if (!flush(false))
        return false;
    writable = live;
    live->quiet = 0;
    return rg_pages_open(&range->watch, address_of(live), RG_PAGE);
}

static void drop(size_t index)
{
    if (lives[index] == writable)
        writable = NULL;
    lives[index]->range->n_live--;
    free(lives[index]);
    lives[index] = lives[n_lives - 1];
    atomic_fetch_sub(&n_lives, 1);
}

/* Makes a page the device's. */
static void close_page(size_t index)
{
    struct live *live = lives[index];
    struct rg_managed_range *range = live->range;
    if (live == writable && !flush(false))
        return;
    if (!rg_pages_close(&range->watch, address_of(live), RG_PAGE))
        return;
    range->state[live->page] = RG_PAGE_DEVICE;
    drop(index);
}

void rg_write_shared_close_all(void)
{
    for (size_t i = n_lives; i-- > 0;)
        close_page(i);
}

bool rg_write_shared_add(struct rg_managed_range *range, size_t first, size_t end, const unsigned char *data)
{
    for (size_t page = first; page < end && range->state[page] == RG_PAGE_DEVICE; page++, data += RG_PAGE) {
        if (n_lives == LIVE_MAX)
            close_page(0);
        struct live *live = n_lives < LIVE_MAX ? malloc(sizeof *live) : NULL;
        if (!live)
            return page > first;
        *live = (struct live){.range = range, .share_id = range->id, .page = page};
        memcpy(live->twin, data, RG_PAGE);
        if (!rg_pages_fill(&range->watch, address_of(live), data, RG_PAGE, false)) {
            free(live);
            return page > first;
        }
        range->state[page] = RG_PAGE_WRITE_SHARED;
        range->n_live++;
        lives[n_lives] = live;
        atomic_fetch_add(&n_lives, 1);
    }
    return true;
}

void rg_write_shared_forget(struct rg_managed_range *range)
{
    for (size_t i = n_lives; range->n_live && i-- > 0;)
        if (lives[i]->range == range)
            drop(i);
}

static int by_address(const void *one, const void *other)
{
    const uint64_t a = address_of(*(struct live *const *)one), b = address_of(*(struct live *const *)other);
    return (a > b) - (a < b);
}

/* Pages side by side, and the request what the device has there. */
struct stretch {
    struct rg_page_request request;
    uint64_t share_id;
    size_t page, n;
};

static size_t stretches(struct stretch *list, unsigned char *data)
{
    size_t n = 0;
    qsort(lives, n_lives, sizeof *lives, by_address);
    for (size_t i = 0; i < n_lives; i++, data += RG_PAGE) {
        struct live *live = lives[i];
        struct stretch *last = n ? &list[n - 1] : NULL;
        live->sent = false;
        if (last && last->share_id == live->share_id && last->page + last->n == live->page) {
            last->n++;
            last->request.size += RG_PAGE;
            continue;
        }
        list[n++] = (struct stretch){.request = {.session = live->range->session,
                                                 .context = live->range->context,
                                                 .address = address_of(live),
                                                 .size = RG_PAGE,
                                                 .data = data},
                                     .share_id = live->share_id,
                                     .page = live->page,
                                     .n = 1};
    }
    return n;
}

/* Whether the device has changed pages of a stretch since. */
static bool changed(const struct stretch *s)
{
    const unsigned char *theirs = s->request.data;
    for (size_t i = 0; i < s->n && s->request.result == CUDA_SUCCESS; i++) {
        struct live *live = find(s->share_id, s->page + i);
        if (!live || live->sent) /* what has left meanwhile is not in the answer */
            continue;
        live->quiet++;
        if (memcmp(live->twin, theirs + i * RG_PAGE, RG_PAGE) != 0)
            return true;
    }
    return false;
}

void rg_write_shared_round(pthread_mutex_t *lock, const uint64_t *epoch)
{
    static struct stretch list[LIVE_MAX]; /* one thread does this */
    static unsigned char theirs[LIVE_MAX * RG_PAGE];
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
    for (size_t i = n_lives; i-- > 0;)
        if (lives[i]->quiet > QUIET)
            close_page(i);
    pthread_mutex_unlock(lock);
}
