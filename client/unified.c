/*
 * unified.c - see unified.h. `lock` guards the shares, the states of their pages and the LIVE pages; it is held while pages
 * leave, but not while the service thread waits for a page's contents. So that contents which were asked for before some
 * work was appended are not taken for what is there after it, `epoch` counts the work. The lock comes before the send
 * lock of a session.
 */
#include "client/unified.h"

#include "client/context.h"
#include "client/edges.h"
#include "client/faults.h"
#include "client/handle.h"
#include "client/live.h"
#include "client/owner.h"
#include "client/pinned.h"
#include "client/transfer.h"
#include "client/unified_pages.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "generated/client/operations.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GROUP      16u /* pages that are fetched at a touch at least */
#define FETCH_MAX  RG_BULK_MAX
#define PENDING    256u
#define PATIENCE   2000000000ull /* ns for which a touch of managed memory waits for an idle device */
#define LIVE_FETCH 16u           /* pages that become LIVE at a touch */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_pages **shares; /* by start, disjoint */
static size_t capacity;
static atomic_size_t n_shares;
static size_t n_held; /* pages that are neither DEVICE nor LIVE */
static uint64_t epoch, next_id;
static atomic_uint host_calls;    /* host functions that run */
static atomic_bool edges_at_work; /* the device may be changing memory on pages that are not watched */
static struct rg_pinned_list
    wanted; /* what the device will want of page-locked memory: pointers to it have left */
static bool service_started;
static unsigned char *fetched; /* FETCH_MAX bytes, the service's */

/* --- the shares -------------------------------------------------------------------------------------------------- */

/* Index of the first share that starts after `address`. */
static size_t after(uint64_t address)
{
    size_t low = 0, high = n_shares;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (shares[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct rg_pages *find(uint64_t address)
{
    const size_t at = after(address);
    return at > 0 && address - shares[at - 1]->start < shares[at - 1]->size ? shares[at - 1] : NULL;
}

static bool meets(uint64_t start, uint64_t size)
{
    const uint64_t first = start & ~(uint64_t)(RG_PAGE - 1), end = start + size;
    const size_t at = after(first);
    return (at > 0 && first - shares[at - 1]->start < shares[at - 1]->size) ||
           (at < n_shares && shares[at]->start < end);
}

bool rg_unified_meets(uint64_t start, uint64_t size)
{
    if (atomic_load_explicit(&n_shares, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&lock);
    const bool does = meets(start, size);
    pthread_mutex_unlock(&lock);
    return does;
}

static bool insert(struct rg_pages *share)
{
    if (n_shares == capacity) {
        const size_t more = capacity ? capacity * 2 : 64;
        struct rg_pages **bigger = realloc(shares, more * sizeof *bigger);
        if (!bigger)
            return false;
        shares = bigger;
        capacity = more;
    }
    const size_t at = after(share->start);
    memmove(&shares[at + 1], &shares[at], (n_shares - at) * sizeof *shares);
    shares[at] = share;
    atomic_fetch_add(&n_shares, 1);
    return true;
}

/* Changes the state of pages, and what is counted. */
static void set_state(struct rg_pages *share, size_t first, size_t end, enum rg_page_state state)
{
    size_t held = 0;
    for (size_t i = first; i < end; i++)
        held += rg_page_held(share->state[i]);
    share->n_held -= held;
    n_held -= held;
    memset(&share->state[first], state, end - first);
    if (rg_page_held(state)) {
        share->n_held += end - first;
        n_held += end - first;
    }
}

static uint64_t page_address(const struct rg_pages *share, size_t page)
{
    return share->start + (uint64_t)page * RG_PAGE;
}

/* The end of the run of pages that are as `first` is. */
static size_t run_end(const struct rg_pages *share, size_t first)
{
    size_t end = first + 1;
    while (end < share->n_pages && share->state[end] == share->state[first])
        end++;
    return end;
}

/* --- to the device ----------------------------------------------------------------------------------------------- */

/* Puts pages on their way. What they point to, the device will want as well. */
static void send_pages(struct rg_outgoing *out, uint64_t start, uint64_t size)
{
    if (!rg_pinned_find((const void *)(uintptr_t)start, size, &wanted))
        rg_warn("no memory to note page-locked memory that the device will want");
    rg_outgoing_add(out, start, size);
}

/* Puts those of a run of pages on their way that were ever touched. */
static bool send_touched(struct rg_pages *share, size_t first, size_t end, struct rg_outgoing *out)
{
    unsigned char touched[1024];
    for (size_t at = first; at < end;) {
        const size_t part = end - at < sizeof touched ? end - at : sizeof touched;
        if (!share->watch.anonymous || !rg_pages_touched(page_address(share, at), part, touched))
            memset(touched, 1, part);
        for (size_t i = 0; i < part;) {
            size_t to = i;
            while (to < part && touched[to])
                to++;
            if (to > i)
                send_pages(out, page_address(share, at + i), (to - i) * RG_PAGE);
            i = to > i ? to : i + 1;
        }
        at += part;
    }
    return true;
}

static bool watch(struct rg_pages *share)
{
    if (!share->watched) {
        share->watch.start = share->start;
        share->watch.size = share->size;
        share->watched = rg_watch_begin(&share->watch);
    }
    return share->watched;
}

/* Gives all that the host holds of a share to the device. */
static CUresult release(struct rg_pages *share)
{
    struct rg_outgoing out;
    rg_outgoing_begin(&out, share->session, share->context);
    if (!watch(share)) {
        rg_error("memory that host and device share cannot be watched in this process");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool good = true;
    for (size_t i = 0, end; i < share->n_pages && good; i = end) {
        end = run_end(share, i);
        const enum rg_page_state state = share->state[i];
        const uint64_t start = page_address(share, i), size = (uint64_t)(end - i) * RG_PAGE;
        if (state != RG_PAGE_DIRTY && state != RG_PAGE_FRESH)
            continue;
        good = rg_pages_freeze(&share->watch, start, size);
        if (good && state == RG_PAGE_DIRTY)
            send_pages(&out, start, size);
        else if (good)
            good = send_touched(share, i, end, &out);
    }
    rg_outgoing_send(&out);
    for (size_t i = 0, end; i < share->n_pages && good; i = end) {
        end = run_end(share, i);
        if (!rg_page_held(share->state[i]))
            continue;
        while (end < share->n_pages && rg_page_held(share->state[end]))
            end = run_end(share, end);
        good = rg_pages_close(&share->watch, page_address(share, i), (uint64_t)(end - i) * RG_PAGE);
        if (good)
            set_state(share, i, end, RG_PAGE_DEVICE);
    }
    if (!good)
        rg_error("memory that host and device share cannot be protected (too many mappings?)");
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether anything is shared. */
static bool any(void)
{
    return atomic_load_explicit(&n_shares, memory_order_acquire) != 0 || rg_edges_any();
}

static CUresult release_all(void)
{
    CUresult status = CUDA_SUCCESS;
    rg_faults_refresh();
    rg_edges_send();
    rg_live_send();
    for (size_t i = 0; i < n_shares && status == CUDA_SUCCESS; i++)
        if (shares[i]->n_held)
            status = release(shares[i]);
    return status;
}

CUresult rg_unified_begin_work(bool kernel, bool *begun)
{
    *begun = false;
    if (!any())
        return CUDA_SUCCESS;
    CUresult status = CUDA_SUCCESS;
    for (;;) {
        pthread_mutex_lock(&lock);
        if (n_held || rg_live_any() || rg_edges_any())
            status = release_all();
        if (!kernel || !wanted.n || status != CUDA_SUCCESS)
            break;
        struct rg_pinned_list list = wanted;
        wanted = (struct rg_pinned_list){0};
        pthread_mutex_unlock(&lock);
        status = rg_pinned_map_list(&list);
        if (status != CUDA_SUCCESS)
            return status;
    }
    *begun = status == CUDA_SUCCESS;
    if (!*begun)
        pthread_mutex_unlock(&lock);
    return status;
}

void rg_unified_end_work(void)
{
    epoch++;
    const bool wake = rg_edges_any() && !edges_at_work;
    edges_at_work = rg_edges_any();
    pthread_mutex_unlock(&lock);
    if (wake)
        rg_touches_wake();
}

void rg_unified_settle(void)
{
    if (!rg_live_any() && !edges_at_work)
        return;
    pthread_mutex_lock(&lock);
    rg_live_close_all();
    if (edges_at_work)
        (void)rg_edges_exchange(&lock);
    pthread_mutex_unlock(&lock);
}

void rg_unified_host_call_begins(void)
{
    atomic_fetch_add(&host_calls, 1);
    rg_unified_settle();
}

void rg_unified_host_call_ends(void)
{
    if (any()) {
        pthread_mutex_lock(&lock);
        (void)release_all();
        rg_live_close_all();
        pthread_mutex_unlock(&lock);
    }
    atomic_fetch_sub(&host_calls, 1);
}

/* --- to the host ------------------------------------------------------------------------------------------------- */

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
static bool take(struct rg_pages *share, const struct stretch *s, size_t page, bool write)
{
    const uint64_t start = page_address(share, s->first);
    if (!rg_pages_fill(&share->watch, start, fetched, (uint64_t)(s->end - s->first) * RG_PAGE, false))
        return false;
    set_state(share, s->first, s->end, RG_PAGE_SHARED);
    share->next_fetch = s->end;
    if (!write)
        return true;
    set_state(share, page, page + 1, RG_PAGE_DIRTY);
    share->next_write = page + 1;
    share->write_run = 1;
    return rg_pages_open(&share->watch, page_address(share, page), RG_PAGE);
}

/* The host writes to a page that it may read: opens it, and more and more if pages are written in order. */
static bool open_for_writing(struct rg_pages *share, size_t page)
{
    const bool in_order = page == share->next_write && share->write_run < FETCH_MAX / RG_PAGE;
    share->write_run = in_order ? share->write_run * 2 : 1;
    size_t end = page;
    while (end < share->n_pages && share->state[end] == RG_PAGE_SHARED && end - page < share->write_run)
        end++;
    set_state(share, page, end, RG_PAGE_DIRTY);
    share->next_write = end;
    return rg_pages_open(&share->watch, page_address(share, page), (uint64_t)(end - page) * RG_PAGE);
}

/* Which pages a touch of `page` fetches: more and more at once if they are touched in order. */
static void choose(struct rg_pages *share, size_t page, struct stretch *s)
{
    if (page == share->next_fetch && share->stretch < FETCH_MAX / RG_PAGE)
        share->stretch *= 2;
    else if (page != share->next_fetch)
        share->stretch = share->expected ? FETCH_MAX / RG_PAGE : GROUP;
    size_t first = page, end = page;
    while (end < share->n_pages && share->state[end] == RG_PAGE_DEVICE && end - page < share->stretch)
        end++;
    while (first > 0 && page - first < page % GROUP && share->state[first - 1] == RG_PAGE_DEVICE &&
           end - first < FETCH_MAX / RG_PAGE)
        first--;
    *s = (struct stretch){.id = share->id,
                          .context = share->context,
                          .epoch = epoch,
                          .session = share->session,
                          .start = page_address(share, first),
                          .first = first,
                          .end = end,
                          .patient = share->kind != RG_UNIFIED_HOST};
}

/* The contents could not be had. */
static void lose(struct rg_pages *share, const struct stretch *s, CUresult status)
{
    const uint64_t start = page_address(share, s->first), size = (uint64_t)(s->end - s->first) * RG_PAGE;
    if (atomic_load(&s->session->ended) != CUDA_SUCCESS) {
        static atomic_bool told;
        if (!atomic_exchange(&told, true))
            rg_error("memory at %#llx was on the server when that was lost; who touches it gets SIGBUS",
                     (unsigned long long)start);
        rg_pages_lose(start, size);
    } else {
        rg_error("memory at %#llx could not be fetched from the device (error %d); it reads as zeros",
                 (unsigned long long)start, (int)status);
        memset(fetched, 0, size);
        (void)rg_pages_fill(&share->watch, start, fetched, size, true);
    }
    set_state(share, s->first, s->end, RG_PAGE_LOST);
}

/* The device is at work: the page that was touched, and some behind it if they can be had as they are all at one time,
 * become LIVE. */
static enum outcome make_live(const struct rg_touch *touch, uint64_t id)
{
    enum outcome outcome = NOT_OURS;
    pthread_mutex_lock(&lock);
    struct rg_pages *share = find(touch->address);
    if (share && share->id == id) {
        const size_t page = (touch->address - share->start) / RG_PAGE;
        size_t end = page;
        while (end < share->n_pages && end - page < LIVE_FETCH && share->state[end] == RG_PAGE_DEVICE)
            end++;
        struct rg_question question = {.session = share->session,
                                       .context = share->context,
                                       .address = page_address(share, page),
                                       .size = (end - page) * RG_PAGE,
                                       .flags = RG_UNIFIED_STEADY,
                                       .data = fetched};
        pthread_mutex_unlock(&lock);
        rg_question_ask(&question);
        rg_question_wait(&question);
        pthread_mutex_lock(&lock);
        share = find(touch->address);
        if (question.result == CUDA_SUCCESS && share && share->id == id &&
            rg_live_add(share, page, question.steady ? end : page + 1, fetched) &&
            (!touch->write || rg_live_open(share, page)))
            outcome = DONE;
        else if (question.result != CUDA_SUCCESS)
            outcome = LATER; /* and then it is lost */
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}

/* A touch that has waited for `waited` ns. The service thread. */
static enum outcome touched(const struct rg_touch *touch, uint64_t waited)
{
    struct stretch s;
    pthread_mutex_lock(&lock);
    struct rg_pages *share = find(touch->address);
    if (!share || !share->watched) {
        pthread_mutex_unlock(&lock);
        return share ? DONE : NOT_OURS;
    }
    const size_t page = (touch->address - share->start) / RG_PAGE;
    const enum rg_page_state state = share->state[page];
    if (state != RG_PAGE_DEVICE) {
        bool good = true;
        if (touch->write && state == RG_PAGE_SHARED)
            good = open_for_writing(share, page);
        else if (touch->write && state == RG_PAGE_LIVE)
            good = rg_live_open(share, page);
        pthread_mutex_unlock(&lock);
        return good ? DONE : NOT_OURS;
    }
    choose(share, page, &s);
    pthread_mutex_unlock(&lock);

    const bool patient = s.patient && waited < PATIENCE && atomic_load(&host_calls) == 0;
    struct rg_question question = {.session = s.session,
                                   .context = s.context,
                                   .address = s.start,
                                   .size = (s.end - s.first) * RG_PAGE,
                                   .flags = patient ? RG_UNIFIED_IF_IDLE : 0,
                                   .data = fetched};
    rg_question_ask(&question);
    rg_question_wait(&question);

    enum outcome outcome = DONE;
    bool live = false;
    pthread_mutex_lock(&lock);
    const bool busy =
        question.busy || epoch != s.epoch; /* what came may be older than what was put in meanwhile */
    share = find(touch->address);
    if (!share || share->id != s.id)
        outcome = NOT_OURS;
    else if (question.result != CUDA_SUCCESS)
        lose(share, &s, question.result);
    else if (busy && patient)
        outcome = LATER;
    else if (busy)
        live = true;
    else if (!take(share, &s, page, touch->write))
        outcome = NOT_OURS;
    pthread_mutex_unlock(&lock);
    return live ? make_live(touch, s.id) : outcome;
}

/* While the device is at work, what it and the host write into memory on pages that are not watched. */
static void exchange_edges(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t before = epoch;
    if (edges_at_work && !rg_edges_exchange(&lock) && epoch == before)
        edges_at_work = false;
    pthread_mutex_unlock(&lock);
}

static void *service_main(void *unused)
{
    struct rg_touch list[PENDING];
    uint64_t since[PENDING], next_round = 0;
    size_t n = 0;
    (void)unused;
    for (;;) {
        const size_t more =
            rg_touches_wait(list + n, PENDING - n, n || rg_live_any() || edges_at_work ? 1 : -1);
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
        if ((rg_live_any() || edges_at_work) && now >= next_round) {
            rg_live_round(&lock, &epoch);
            exchange_edges();
            next_round = rg_now_ns() + 1000000;
        }
    }
    return NULL;
}

void rg_unified_expect(uint64_t start, uint64_t size)
{
    pthread_mutex_lock(&lock);
    for (size_t at = after(start + size - 1); at-- > 0 && shares[at]->start + shares[at]->size > start;)
        shares[at]->expected = true;
    pthread_mutex_unlock(&lock);
}

void rg_unified_recall(uint64_t start, uint64_t size)
{
    const uint64_t end = start + size;
    for (uint64_t at = start & ~(uint64_t)(RG_PAGE - 1); at < end;) {
        pthread_mutex_lock(&lock);
        const struct rg_pages *share = find(at);
        const size_t next = after(at);
        size_t page = share ? (at - share->start) / RG_PAGE : 0;
        while (share && page < share->n_pages && share->state[page] != RG_PAGE_DEVICE)
            page++;
        const bool closed = share && page < share->n_pages;
        at = closed  ? page_address(share, page)
             : share ? share->start + share->size
                     : (next < n_shares ? shares[next]->start : end);
        pthread_mutex_unlock(&lock);
        if (closed && at < end)
            (void)*(volatile const unsigned char *)(uintptr_t)at; /* the service brings it */
    }
}

void rg_unified_recall_context(uint64_t context)
{
    for (size_t i = 0;; i++) {
        uint64_t start = 0, size = 0;
        pthread_mutex_lock(&lock);
        const bool there = i < n_shares;
        if (there && shares[i]->context == context && shares[i]->kind == RG_UNIFIED_HOST) {
            start = shares[i]->start;
            size = shares[i]->size;
        }
        pthread_mutex_unlock(&lock);
        if (!there)
            return;
        if (size)
            rg_unified_recall(start, size);
    }
}

/* --- beginning and end of a share ---------------------------------------------------------------------------------- */

/* The child of a fork has copies of what its parent's host held; the application's own memory is made whole before. */
static void before_fork(void)
{
    for (size_t i = 0;; i++) {
        uint64_t start = 0, size = 0;
        pthread_mutex_lock(&lock);
        const bool there = i < n_shares && atomic_load(&shares[i]->session->ended) == CUDA_SUCCESS;
        if (there && shares[i]->kind == RG_UNIFIED_HOST) {
            start = shares[i]->start;
            size = shares[i]->size;
        }
        pthread_mutex_unlock(&lock);
        if (!there)
            return;
        if (size)
            rg_unified_recall(start, size);
    }
}

static bool start_service(void)
{
    if (service_started)
        return true;
    fetched = mmap(NULL, FETCH_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fetched == MAP_FAILED || !rg_faults_start() || pthread_atfork(before_fork, NULL, NULL) != 0)
        return false;
    service_started = rg_thread_start("rg-share", service_main, NULL) == RG_OK;
    return service_started;
}

CUresult rg_unified_add(enum rg_unified_kind kind, uint64_t start, uint64_t size)
{
    const size_t n_pages = size / RG_PAGE;
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    struct rg_pages *share = malloc(sizeof *share + n_pages);
    if (!share)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *share = (struct rg_pages){.start = start,
                               .size = size,
                               .n_pages = n_pages,
                               .kind = kind,
                               .context = rg_context_current(),
                               .session = rg_session_current(),
                               .stretch = GROUP,
                               .write_run = 1};
    pthread_mutex_lock(&lock);
    bool good = start_service();
    if (good && kind == RG_UNIFIED_VARIABLE) {
        memset(share->state, RG_PAGE_DEVICE, n_pages);
        good = watch(share) && rg_pages_close(&share->watch, start, size);
    } else if (good) {
        memset(share->state, RG_PAGE_FRESH, n_pages);
        share->n_held = n_pages;
    }
    share->id = ++next_id;
    good = good && insert(share);
    if (good)
        n_held += share->n_held;
    pthread_mutex_unlock(&lock);
    if (!good)
        free(share);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rg_unified_add_edge(uint64_t start, uint64_t size)
{
    CUresult status = rg_op_rgUnifiedOpen();
    if (status != CUDA_SUCCESS)
        return status;
    pthread_mutex_lock(&lock);
    const bool good =
        start_service() && rg_edges_add(rg_session_current(), rg_context_current(), start, size);
    pthread_mutex_unlock(&lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void rg_unified_remove_edge(uint64_t start)
{
    pthread_mutex_lock(&lock);
    if (edges_at_work)
        (void)rg_edges_exchange(&lock);
    rg_edges_remove(start);
    pthread_mutex_unlock(&lock);
}

/* Takes a share out; the lock is held. */
static void take_out(size_t at)
{
    struct rg_pages *share = shares[at];
    rg_live_forget(share);
    n_held -= share->n_held;
    memmove(&shares[at], &shares[at + 1], (n_shares - at - 1) * sizeof *shares);
    atomic_fetch_sub(&n_shares, 1);
    if (share->watched)
        rg_watch_end(&share->watch);
    if (share->kind != RG_UNIFIED_HOST) /* the addresses stay reserved */
        mmap((void *)(uintptr_t)share->start, share->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    free(share);
}

void rg_unified_remove(uint64_t start)
{
    pthread_mutex_lock(&lock);
    const size_t at = after(start);
    if (at > 0 && shares[at - 1]->start == start)
        take_out(at - 1);
    pthread_mutex_unlock(&lock);
}

void rg_unified_drop_context(uint64_t context)
{
    pthread_mutex_lock(&lock);
    rg_edges_drop_context(context);
    for (size_t i = 0; i < n_shares;)
        if (shares[i]->context == context)
            take_out(i);
        else
            i++;
    pthread_mutex_unlock(&lock);
}
