/*
 * unified_fetch.c - pages that the host touches, or will: the service thread fetches them from the device
 * (unified.h). The lock is not held while it waits for contents.
 */
#include "client/core/session.h"
#include "client/managed/faults.h"
#include "client/managed/managed_ranges.h"
#include "client/managed/page_request.h"
#include "client/managed/partial_pages.h"
#include "client/managed/write_shared.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define FETCH_MAX          RG_BULK_MAX
#define PENDING            256u
#define PATIENCE           2000000000ull /* ns for which a touch of managed memory waits for an idle device */
#define ROUND_LEAST        1000000u      /* ns from one exchange of what both sides write to the next */
#define WRITE_SHARED_FETCH 16u           /* pages that become WRITE_SHARED at a touch */

static unsigned char *fetched; /* FETCH_MAX bytes, the service's */

/* --- a touch -------------------------------------------------------------------------------------------- */

enum outcome { DONE, NOT_OURS, LATER };

/* What a touch fetches. */
struct stretch {
    uint64_t id, context, epoch;
    struct rg_session *session;
    uint64_t start;
    size_t first, end; /* pages */
    bool patient;
};

/* Puts what was fetched in place: the pages are the host's. */
static bool take(struct rg_managed_range *range, const struct stretch *s, size_t page, bool write)
{
    const uint64_t start = rg_managed_range_page(range, s->first);
    if (!rg_pages_fill(&range->trap, start, fetched, (uint64_t)(s->end - s->first) * RG_PAGE, false))
        return false;
    rg_managed_range_set_state(range, s->first, s->end, RG_PAGE_SHARED);
    range->next_fetch = s->end;
    if (!write)
        return true;
    rg_managed_range_set_state(range, page, page + 1, RG_PAGE_DIRTY);
    range->next_write = page + 1;
    range->write_run = 1;
    return rg_pages_open(&range->trap, rg_managed_range_page(range, page), RG_PAGE);
}

/* The host writes to a page that it may read: opens it, and more and more if pages are written in order. */
static bool open_for_writing(struct rg_managed_range *range, size_t page)
{
    const bool in_order = page == range->next_write && range->write_run < FETCH_MAX / RG_PAGE;
    range->write_run = in_order ? range->write_run * 2 : 1;
    size_t end = page;
    while (end < range->n_pages && range->state[end] == RG_PAGE_SHARED && end - page < range->write_run)
        end++;
    rg_managed_range_set_state(range, page, end, RG_PAGE_DIRTY);
    range->next_write = end;
    return rg_pages_open(&range->trap, rg_managed_range_page(range, page), (uint64_t)(end - page) * RG_PAGE);
}

/* A page that was to leave and could not: it is the host's as before, with its contents, or none yet. */
static bool keep(struct rg_managed_range *range, size_t page)
{
    const uint64_t start = rg_managed_range_page(range, page);
    if (range->trap.by_uffd) {
        memset(fetched, 0, RG_PAGE);
        if (!rg_pages_fill(&range->trap, start, fetched, RG_PAGE, true)) /* contents that are there stay */
            return false;
    }
    return rg_pages_open(&range->trap, start, RG_PAGE);
}

/* Which pages a touch of `page` fetches: more and more at once if they are touched in order. */
static void choose(struct rg_managed_range *range, size_t page, struct stretch *s)
{
    if (page == range->next_fetch && range->stretch < FETCH_MAX / RG_PAGE)
        range->stretch *= 2;
    else if (page != range->next_fetch)
        range->stretch = range->expected ? FETCH_MAX / RG_PAGE : RG_FETCH_GROUP;
    size_t first = page, end = page;
    while (end < range->n_pages && range->state[end] == RG_PAGE_DEVICE && end - page < range->stretch)
        end++;
    while (first > 0 && page - first < page % RG_FETCH_GROUP && range->state[first - 1] == RG_PAGE_DEVICE &&
           end - first < FETCH_MAX / RG_PAGE)
        first--;
    *s = (struct stretch){.id = range->id,
                          .context = range->context,
                          .epoch = rg_managed_ranges.epoch,
                          .session = range->session,
                          .start = rg_managed_range_page(range, first),
                          .first = first,
                          .end = end,
                          .patient = range->kind != RG_UNIFIED_HOST};
}

/* The contents could not be had. */
static void lose(struct rg_managed_range *range, const struct stretch *s, CUresult status)
{
    const uint64_t start = rg_managed_range_page(range, s->first),
                   size = (uint64_t)(s->end - s->first) * RG_PAGE;
    if (!rg_session_lives(s->session)) {
        static atomic_bool told;
        if (!atomic_exchange(&told, true))
            rg_error("memory at %#llx was on the server when that was lost; who touches it gets SIGBUS",
                     (unsigned long long)start);
        rg_pages_lose(start, size);
    } else {
        rg_error("memory at %#llx could not be fetched from the device (error %d); it reads as zeros",
                 (unsigned long long)start, (int)status);
        memset(fetched, 0, size);
        (void)rg_pages_fill(&range->trap, start, fetched, size, true);
    }
    rg_managed_range_set_state(range, s->first, s->end, RG_PAGE_LOST);
}

/* The device is at work: the page that was touched, and some behind it if they can be had as they are all at
 * one time, become WRITE_SHARED. */
static enum outcome write_share(const struct rg_touch *touch, uint64_t id)
{
    enum outcome outcome = NOT_OURS;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    struct rg_managed_range *range = rg_managed_ranges_find(touch->address);
    if (range && range->id == id) {
        const size_t page = (touch->address - range->start) / RG_PAGE;
        size_t end = page;
        while (end < range->n_pages && end - page < WRITE_SHARED_FETCH && range->state[end] == RG_PAGE_DEVICE)
            end++;
        struct rg_page_request request = {.session = range->session,
                                          .context = range->context,
                                          .address = rg_managed_range_page(range, page),
                                          .size = (end - page) * RG_PAGE,
                                          .flags = RG_MANAGED_STEADY,
                                          .data = fetched};
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        rg_page_request_send(&request);
        rg_page_request_wait(&request);
        pthread_mutex_lock(&rg_managed_ranges.lock);
        range = rg_managed_ranges_find(touch->address);
        if (request.result == CUDA_SUCCESS && range && range->id == id &&
            rg_write_shared_add(range, page, request.steady ? end : page + 1, fetched) &&
            (!touch->write || rg_write_shared_open(range, page)))
            outcome = DONE;
        else if (request.result != CUDA_SUCCESS)
            outcome = LATER; /* and then it is lost */
    }
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    return outcome;
}

/* A touch that has waited for `waited` ns. The service thread. */
static enum outcome touched(const struct rg_touch *touch, uint64_t waited)
{
    struct stretch s;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    struct rg_managed_range *range = rg_managed_ranges_find(touch->address);
    if (!range || !range->trapped) {
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        return range ? DONE : NOT_OURS;
    }
    const size_t page = (touch->address - range->start) / RG_PAGE;
    const enum rg_page_state state = range->state[page];
    if (state != RG_PAGE_DEVICE) {
        bool good = true;
        if (touch->write && state == RG_PAGE_SHARED)
            good = open_for_writing(range, page);
        else if (touch->write && state == RG_PAGE_WRITE_SHARED)
            good = rg_write_shared_open(range, page);
        else if (state == RG_PAGE_DIRTY || state == RG_PAGE_FRESH)
            good = keep(range, page);
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        return good ? DONE : NOT_OURS;
    }
    choose(range, page, &s);
    pthread_mutex_unlock(&rg_managed_ranges.lock);

    const bool patient = s.patient && waited < PATIENCE && atomic_load(&rg_managed_ranges.host_calls) == 0;
    struct rg_page_request request = {.session = s.session,
                                      .context = s.context,
                                      .address = s.start,
                                      .size = (s.end - s.first) * RG_PAGE,
                                      .flags = patient ? RG_MANAGED_IF_IDLE : 0,
                                      .data = fetched};
    rg_page_request_send(&request);
    rg_page_request_wait(&request);

    enum outcome outcome = DONE;
    bool share = false;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    const bool busy = request.busy || rg_managed_ranges.epoch !=
                                          s.epoch; /* what came may be older than what was put in meanwhile */
    range = rg_managed_ranges_find(touch->address);
    if (!range || range->id != s.id)
        outcome = NOT_OURS;
    else if (request.result != CUDA_SUCCESS)
        lose(range, &s, request.result);
    else if (busy && patient)
        outcome = LATER;
    else if (busy && !range->leaving && !(rg_managed_ranges.forks && range->kind == RG_UNIFIED_HOST))
        share = true;
    else if (!take(range, &s, page, touch->write))
        outcome = NOT_OURS;
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    return share ? write_share(touch, s.id) : outcome;
}

/* While the device is at work, what it and the host write into memory on pages that are not trapped. */
static void exchange_parts(void)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    const uint64_t before = rg_managed_ranges.epoch;
    if (rg_managed_ranges.partial_at_work && !rg_partial_pages_exchange(&rg_managed_ranges.lock, false) &&
        rg_managed_ranges.epoch == before)
        rg_managed_ranges.partial_at_work = false;
}

static void take_out_gone(void)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    rg_unified_take_out_gone_shared();
}

/* --- the service ---------------------------------------------------------------------------------------- */

static void *service_main(void *unused)
{
    struct rg_touch list[PENDING];
    uint64_t since[PENDING], next_round = 0;
    size_t n = 0;
    (void)unused;
    for (;;) {
        const size_t more = rg_touches_wait(
            list + n, PENDING - n, n || rg_write_shared_any() || rg_managed_ranges.partial_at_work ? 1 : -1);
        uint64_t now = rg_now_ns();
        for (size_t i = 0; i < more; i++)
            since[n + i] = now;
        n += more;
        size_t left = 0;
        for (size_t i = 0; i < n; i++) {
            const enum outcome outcome = touched(&list[i], rg_now_ns() - since[i]);
            if (outcome == LATER) {
                list[left] = list[i];
                since[left++] = since[i];
            } else {
                rg_touch_done(&list[i], outcome == DONE);
            }
        }
        n = left;
        now = rg_now_ns();
        if ((rg_write_shared_any() || rg_managed_ranges.partial_at_work) && now >= next_round) {
            take_out_gone();
            rg_write_shared_round(&rg_managed_ranges.lock, &rg_managed_ranges.epoch);
            exchange_parts();
            /* of much memory, half of the link is left to others */
            const uint64_t ended = rg_now_ns(), took = ended - now;
            next_round = ended + (took > ROUND_LEAST && rg_partial_pages_are_much() ? took : ROUND_LEAST);
        }
    }
    return NULL;
}

static bool is_child; /* of a fork: nothing is shared here, and no lock may be trusted */

/* Memory of the application's own, of the range with that index, that the device has; 0: none. False: there is no such range. */
static bool is_missing(size_t index, uint64_t *start, uint64_t *size)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    *size = 0;
    if (index >= rg_managed_ranges.n)
        return false;
    const struct rg_managed_range *range = rg_managed_ranges.at[index];
    if (range->kind == RG_UNIFIED_HOST && rg_session_lives(range->session) &&
        memchr(range->state, RG_PAGE_DEVICE, range->n_pages)) {
        *start = range->start;
        *size = range->size;
    }
    return true;
}

/*
 * The child of a fork has copies of what its parent's host held; the application's own memory is made whole before, and stays so until
 * the child is there: other threads that give the device work wait.
 */
static void before_fork(void)
{
    uint64_t start, size;
    if (is_child)
        return;
    pthread_mutex_lock(&rg_managed_ranges.lock);
    rg_managed_ranges_fork(true);
    rg_write_shared_close_all();
    pthread_mutex_unlock(&rg_managed_ranges.lock);
    for (size_t i = 0; is_missing(i, &start, &size); i++)
        if (size)
            rg_unified_recall(start, size);
}

/* The device may have been at work on what has come meanwhile: it is asked again. */
static void after_fork(void)
{
    if (is_child)
        return;
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    rg_managed_ranges_fork(false);
    (void)rg_unified_release_all();
}

/*
 * Opens what is protected here as in the parent. Where another thread of that was just at the ranges, each page is opened when it is
 * touched.
 */
static void after_fork_in_child(void)
{
    if (is_child)
        return;
    is_child = true;
    if (pthread_mutex_trylock(&rg_managed_ranges.lock) != 0)
        return;
    for (size_t i = 0; i < rg_managed_ranges.n; i++)
        if (rg_managed_ranges.at[i]->kind == RG_UNIFIED_HOST && rg_managed_ranges.at[i]->trapped)
            rg_trap_end_in_child(&rg_managed_ranges.at[i]->trap);
    rg_faults_end_in_child();
    pthread_mutex_unlock(&rg_managed_ranges.lock);
}

bool rg_unified_start_service(void)
{
    static bool service_started;
    if (service_started)
        return true;
    fetched = mmap(NULL, FETCH_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fetched == MAP_FAILED || pthread_atfork(before_fork, after_fork, after_fork_in_child) != 0)
        return false;
    rg_faults_start();
    service_started = rg_thread_create_detached("rg-share", service_main, NULL) == RG_OK;
    if (!service_started)
        rg_error("memory that host and device share needs one more thread than this process may have");
    return service_started;
}

/* --- what the host will touch --------------------------------------------------------------------------- */

void rg_unified_expect(uint64_t start, uint64_t size)
{
    RG_SCOPED_LOCK(&rg_managed_ranges.lock);
    for (size_t at = rg_managed_ranges_after(start + size - 1);
         at-- > 0 && rg_managed_ranges.at[at]->start + rg_managed_ranges.at[at]->size > start;)
        rg_managed_ranges.at[at]->expected = true;
}

void rg_unified_recall(uint64_t start, uint64_t size)
{
    const uint64_t end = start + size;
    sigset_t faults, before;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, &before); /* a touch may come by it; the application may block it */
    for (uint64_t at = start & ~(uint64_t)(RG_PAGE - 1); at < end;) {
        pthread_mutex_lock(&rg_managed_ranges.lock);
        const struct rg_managed_range *range = rg_managed_ranges_find(at);
        const size_t next = rg_managed_ranges_after(at);
        size_t page = range ? (at - range->start) / RG_PAGE : 0;
        while (range && page < range->n_pages && range->state[page] != RG_PAGE_DEVICE)
            page++;
        const uint64_t range_end = range ? range->start + range->size : 0;
        const bool closed = range && page < range->n_pages && !rg_unified_take_out_gone(next - 1);
        at = closed  ? rg_managed_range_page(range, page)
             : range ? range_end
                     : (next < rg_managed_ranges.n ? rg_managed_ranges.at[next]->start : end);
        pthread_mutex_unlock(&rg_managed_ranges.lock);
        if (closed && at < end)
            (void)*(volatile const unsigned char *)(uintptr_t)at; /* the service brings it */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
