/*
 * transfer.c - the table of transfers and host calls, the thread that runs host calls, the queue of pulls.
 *
 * The worker names a transfer by its id; everything else it says (offset, size) is checked against what this side
 * registered before any memory is touched. Host functions run on one thread of ours, one after another, as the
 * driver's do; pulls are answered by the sender thread, so the reader never sends.
 *
 * Memory of the application's is touched only while its call, or the copy that it has queued, lasts, whatever the worker sends
 * and when: a transfer ends when it is out of the table *and* nothing is received into it or sent from it any more (`filling`,
 * the parts of a pull). Whoever ends one waits for that; so does the end of a session, before any call is told of it.
 *
 * One long file, because all kinds are in one table under one lock, which nothing outside of it should know.
 */
#include "client/transfer/transfer.h"

#include "client/core/hooks.h"
#include "client/core/probe.h"
#include "client/core/queue.h"
#include "client/core/receiver.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/timeline/timeline.h"
#include "client/transfer/pieces.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/uncancelled.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum transfer_kind { LANDING, LATE_LANDING, STAGED_LANDING, PULL, HOST_CALL, POINT, QUESTION };

struct transfer {
    struct transfer *next; /* in its bucket, later in the queue of due host calls */
    uint64_t id;
    struct rg_session *session;
    enum transfer_kind kind;
    struct rg_host_region region;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *user;
    CUresult status; /* for callbacks */
    void (*landed)(void *user, bool complete);
    uint64_t received; /* STAGED_LANDING: bytes */
    struct rg_lazy_source *supply;
    void (*reached)(void *user, bool alive);
    struct rg_page_request *question;
    bool lent;    /* landings: the memory is lent to the worker, to place the data there */
    bool revoked; /* the memory is the application's again: what comes is dropped; zeros are sent */
};

/* What the sender thread has to send: a part of a pull, or that a point is released. */
struct pull_part {
    struct pull_part *next;
    struct rg_session *session;
    uint64_t id, offset, size;
    struct rg_host_region region;
    struct rg_lazy_source *last_of; /* whose last part this is */
    bool supplied; /* from memory of ours, which goes when it has been sent; else of the application's */
    bool revoked;  /* zeros are sent in place of the memory */
    bool release;
};

#define BUCKETS    256
#define LEND_MIN   8192   /* bytes of a landing that are worth a word ahead */
#define COPY_SMALL 16384u /* bytes that a connection holds while nobody reads */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct transfer *buckets[BUCKETS];
static uint64_t next_id = 1;
static unsigned n_host_writers; /* late landings and host calls not finished */

static pthread_cond_t call_due = PTHREAD_COND_INITIALIZER;
static struct transfer *due_first, **due_last = &due_first;
static bool call_thread_started;

static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;

static struct pull_part *pull_first, **pull_last = &pull_first;

/* What the thread that reads a session's connection receives into just now, by its id; of each session. 0: nothing. */
static uint64_t filling[RG_SERVERS_MAX];
static pthread_cond_t let_go =
    PTHREAD_COND_INITIALIZER; /* something was filled, or a part of a pull has been sent */

static uint64_t add(struct transfer *transfer)
{
    const enum transfer_kind kind = transfer->kind;
    const uint64_t size = rg_region_size(&transfer->region);
    struct rg_session *const session = transfer->session;
    pthread_mutex_lock(&lock);
    const uint64_t id = next_id++;
    transfer->id = id;
    transfer->next = buckets[id % BUCKETS];
    buckets[id % BUCKETS] = transfer;
    if (kind == LATE_LANDING || kind == HOST_CALL)
        n_host_writers++;
    pthread_mutex_unlock(&lock); /* from here on the end of the session may free it */
    if (kind == PULL)
        rg_probe_bytes(size, 0);
    else if (kind != LANDING) /* its data may come with the reply instead */
        rg_probe_bytes(0, size);
    if (kind == LATE_LANDING && size <= COPY_SMALL)
        rg_receiver_expect_copy(session);
    else if (kind != LANDING)
        rg_receiver_expect_notices(session, 1);
    return id;
}

/* Unlinks the transfer; the lock is held. */
static struct transfer *take(uint64_t id)
{
    for (struct transfer **at = &buckets[id % BUCKETS]; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct transfer *transfer = *at;
            *at = transfer->next;
            transfer->next = NULL;
            return transfer;
        }
    return NULL;
}

/* Waits until nothing is received into a transfer that is out of the table, or revoked, which may be gone then. The lock is
 * held. */
static void wait_until_filled(const struct rg_session *session, uint64_t id)
{
    RG_UNCANCELLED;
    while (filling[session->number] == id)
        pthread_cond_wait(&let_go, &lock);
}

/* Waits until no part of a pull of the application's is being sent any more; the lock is held. */
static void wait_until_sent(const struct rg_session *session, uint64_t id)
{
    RG_UNCANCELLED;
    struct pull_part *part = pull_first;
    while (part) {
        if (part->session == session && part->id == id && !part->supplied && !part->release) {
            pthread_cond_wait(&let_go, &lock);
            part = pull_first;
        } else {
            part = part->next;
        }
    }
}

/* What a session's worker names by `id`; the lock is held. */
static struct transfer *find(const struct rg_session *session, uint64_t id)
{
    for (struct transfer *transfer = buckets[id % BUCKETS]; transfer; transfer = transfer->next)
        if (transfer->id == id && transfer->session == session)
            return transfer;
    return NULL;
}

static uint64_t create(struct rg_session *session, enum transfer_kind kind,
                       const struct rg_host_region *region)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return 0;
    transfer->session = session;
    transfer->kind = kind;
    if (region)
        transfer->region = *region;
    return add(transfer);
}

bool rg_deferred_read_gains(const struct rg_session *session, const struct rg_host_region *region)
{
    return (rg_conn_caps(session->conn) & RG_CAP_ADVERTISES) && rg_region_size(region) >= LEND_MIN &&
           rg_region_extent(region) == rg_region_size(region);
}

uint64_t rg_deferred_read_create(struct rg_session *session, const struct rg_host_region *region, bool late)
{
    const uint64_t id = create(session, late ? LATE_LANDING : LANDING, region);
    if (!id || !rg_deferred_read_gains(session, region) ||
        rg_conn_advertise(session->conn, id, 0, region->memory, rg_region_size(region)) != RG_OK)
        return id;
    pthread_mutex_lock(&lock);
    struct transfer *transfer = find(session, id);
    const bool lent = transfer && !atomic_load(&session->over);
    if (lent)
        transfer->lent = true;
    pthread_mutex_unlock(&lock);
    if (!lent) /* the session has just ended */
        rg_conn_withdraw(session->conn, id, region->memory);
    return id;
}

/* Frees a transfer that is in no list any more. NULL is fine. */
static void release(struct transfer *transfer)
{
    if (transfer && transfer->lent)
        rg_conn_withdraw(transfer->session->conn, transfer->id, transfer->region.memory);
    free(transfer);
}

uint64_t rg_rendezvous_create(struct rg_session *session, const struct rg_host_region *region)
{
    return create(session, PULL, region);
}

uint64_t rg_host_call_create(struct rg_session *session, CUhostFn function, CUstreamCallback callback,
                             CUstream stream, void *user)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return 0;
    transfer->session = session;
    transfer->kind = HOST_CALL;
    transfer->function = function;
    transfer->callback = callback;
    transfer->stream = stream;
    transfer->user = user;
    return add(transfer);
}

uint64_t rg_deferred_read_create_for(struct rg_session *session, size_t size,
                                     void (*landed)(void *user, bool complete), void *user)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return 0;
    transfer->session = session;
    transfer->kind = STAGED_LANDING;
    transfer->region = (struct rg_host_region){NULL, size, size, 1, 0, 0};
    transfer->landed = landed;
    transfer->user = user;
    return add(transfer);
}

void rg_deferred_read_memory(uint64_t id, unsigned char *memory)
{
    pthread_mutex_lock(&lock);
    for (struct transfer *transfer = buckets[id % BUCKETS]; transfer; transfer = transfer->next)
        if (transfer->id == id)
            transfer->region.memory = memory;
    pthread_mutex_unlock(&lock);
}

uint64_t rg_rendezvous_create_supplied(struct rg_session *session, size_t size, struct rg_lazy_source *supply)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return 0;
    transfer->session = session;
    transfer->kind = PULL;
    transfer->region = (struct rg_host_region){NULL, size, size, 1, 0, 0};
    transfer->supply = supply;
    return add(transfer);
}

uint64_t rg_fence_create(struct rg_session *session, void (*reached)(void *user, bool alive), void *user)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return 0;
    transfer->session = session;
    transfer->kind = POINT;
    transfer->reached = reached;
    transfer->user = user;
    return add(transfer);
}

void rg_deferred_read_destroy(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct transfer *transfer = take(id);
    if (transfer)
        wait_until_filled(transfer->session, id);
    pthread_mutex_unlock(&lock);
    if (transfer && transfer->kind == LANDING)
        rg_probe_bytes(0, transfer->received);
    release(transfer);
}

/* A transfer that the worker had a part in is finished. */
static void finished(enum transfer_kind kind)
{
    if (kind == LATE_LANDING || kind == HOST_CALL) {
        pthread_mutex_lock(&lock);
        n_host_writers--;
        pthread_mutex_unlock(&lock);
    }
}

bool rg_transfer_cancel(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct transfer *transfer = take(id);
    if (transfer) {
        wait_until_filled(transfer->session, id);
        wait_until_sent(transfer->session, id);
    }
    pthread_mutex_unlock(&lock);
    if (!transfer)
        return false;
    finished(transfer->kind);
    if (transfer->kind != LANDING)
        rg_receiver_expect_notices(transfer->session, -1);
    release(transfer);
    return true;
}

/* The worker places nothing in the transfer's memory any more. The lock is held, and given up meanwhile: it may be gone then. */
static void take_back(struct transfer *transfer)
{
    struct rg_session *session = transfer->session;
    const uint64_t id = transfer->id;
    void *memory = transfer->region.memory;
    if (!transfer->lent)
        return;
    pthread_mutex_unlock(&lock);
    rg_conn_withdraw(session->conn, id,
                     memory); /* whoever ends the transfer meanwhile does so, too: that is no harm */
    pthread_mutex_lock(&lock);
    if ((transfer = find(session, id)))
        transfer->lent = false;
}

/* The memory is the application's again; the lock is held, and given up while something of it is under way. */
static void revoke_held(struct transfer *transfer)
{
    struct rg_session *session = transfer->session;
    const uint64_t id = transfer->id;
    transfer->revoked = true;
    wait_until_filled(session, id);
    transfer = find(session, id);
    if (transfer)
        take_back(transfer);
    wait_until_sent(session, id);
}

void rg_transfer_revoke(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct transfer *transfer = buckets[id % BUCKETS];
    while (transfer && transfer->id != id)
        transfer = transfer->next;
    if (transfer)
        revoke_held(transfer);
    pthread_mutex_unlock(&lock);
}

bool rg_transfers_may_write_host(void)
{
    pthread_mutex_lock(&lock);
    bool may = n_host_writers != 0;
    pthread_mutex_unlock(&lock);
    return may;
}

void rg_transfers_drop(struct rg_session *session)
{
    struct transfer *dropped = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct transfer **at = &buckets[i]; *at;) {
            struct transfer *transfer = *at;
            if (transfer->session != session) {
                at = &transfer->next;
                continue;
            }
            *at = transfer->next;
            if (transfer->kind == LATE_LANDING || transfer->kind == HOST_CALL)
                n_host_writers--;
            if (transfer->kind == QUESTION) {
                transfer->question->done = true;
                transfer->question->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
            }
            transfer->next = dropped;
            dropped = transfer;
        }
    pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&lock);
    rg_transfers_settle(session);
    while (dropped) {
        struct transfer *transfer = dropped;
        dropped = transfer->next;
        if (transfer->reached)
            transfer->reached(transfer->user, false);
        if (transfer->landed)
            transfer->landed(transfer->user, false);
        if (transfer->supply)
            transfer->supply->finish(transfer->supply);
        release(transfer);
    }
}

/* One whose memory is lent to the session's worker; NULL: none is. The lock is held. */
static struct transfer *find_lent(const struct rg_session *session)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct transfer *transfer = buckets[i]; transfer; transfer = transfer->next)
            if (transfer->session == session && transfer->lent)
                return transfer;
    return NULL;
}

void rg_transfers_settle(const struct rg_session *session)
{
    RG_UNCANCELLED;
    pthread_mutex_lock(&lock);
    while (filling[session->number])
        pthread_cond_wait(&let_go, &lock);
    for (struct transfer *transfer; (transfer = find_lent(session));)
        take_back(transfer);
    pthread_mutex_unlock(&lock);
}

static bool meets(const struct rg_host_region *region, uint64_t start, uint64_t size)
{
    const uint64_t first = (uint64_t)(uintptr_t)region->memory;
    return first < start + size && start < first + rg_region_extent(region);
}

/* A transfer that uses memory of the application's in [start, start + size); `queued`: after its call has returned. */
static struct transfer *find_user(uint64_t start, uint64_t size, bool queued)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct transfer *transfer = buckets[i]; transfer; transfer = transfer->next)
            if ((queued ? transfer->kind == LATE_LANDING || transfer->kind == PULL
                        : transfer->kind != HOST_CALL && transfer->kind != QUESTION) &&
                !transfer->revoked && meets(&transfer->region, start, size))
                return transfer;
    return NULL;
}

bool rg_transfers_meet(uint64_t start, uint64_t size)
{
    pthread_mutex_lock(&lock);
    bool found = find_user(start, size, false) != NULL;
    for (const struct pull_part *part = pull_first; part && !found; part = part->next)
        found = !part->revoked && meets(&part->region, start, size);
    pthread_mutex_unlock(&lock);
    return found;
}

void rg_transfers_revoke(uint64_t start, uint64_t size)
{
    RG_UNCANCELLED;
    pthread_mutex_lock(&lock);
    for (struct transfer *transfer; (transfer = find_user(start, size, true));)
        revoke_held(transfer);
    for (const struct pull_part *part = pull_first;
         part;) { /* the last of a pull, which is in no table any more */
        if (!part->revoked && meets(&part->region, start, size)) {
            pthread_cond_wait(&let_go, &lock);
            part = pull_first;
        } else {
            part = part->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* --- host calls ---------------------------------------------------------------------------------------- */

/* The application's code runs on this thread: what it does wrong, or what it touches, raises signals as elsewhere. */
static void allow_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaddset(&set, faults[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void *call_main(void *unused)
{
    (void)unused;
    allow_faults();
    struct rg_thread *thread = rg_thread_current();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!due_first)
            pthread_cond_wait(&call_due, &lock);
        struct transfer *call = due_first;
        due_first = call->next;
        if (!due_first)
            due_last = &due_first;
        pthread_mutex_unlock(&lock);
        if (thread)
            thread->host_call = true;
        rg_timeline_new_epoch(); /* that it runs shows how far the stream is */
        rg_hooks.host_call_begins();
        if (call->callback)
            call->callback(call->stream, call->status, call->user);
        else
            call->function(call->user);
        rg_hooks.host_call_ends();
        finished(HOST_CALL);
        struct rg_answer answer = {.type = RG_ANSWER_HOST_DONE, .id = call->id};
        rg_queue_answer(call->session, &answer, NULL, 0, NULL);
        free(call);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

static enum rg_status host_call_due(struct rg_session *session, const struct rg_notice *notice)
{
    pthread_mutex_lock(&lock);
    struct transfer *call = find(session, notice->id);
    if (!call || (call->kind != HOST_CALL && call->kind != POINT)) {
        pthread_mutex_unlock(&lock);
        return RG_ERR_PROTOCOL;
    }
    if (call->kind == POINT) {
        take(notice->id);
        pthread_mutex_unlock(&lock);
        rg_receiver_expect_notices(session, -1);
        call->reached(call->user, !notice->arg[1]);
        free(call);
        return RG_OK;
    }
    if (notice->arg[1]) { /* the driver refused it */
        pthread_mutex_unlock(&lock);
        rg_transfer_cancel(notice->id);
        return RG_OK;
    }
    take(notice->id);
    call->status = (CUresult)notice->arg[0];
    *due_last = call;
    due_last = &call->next;
    if (!call_thread_started)
        call_thread_started = rg_thread_create_detached("rg-host-call", call_main, NULL) == RG_OK;
    pthread_cond_signal(&call_due);
    pthread_mutex_unlock(&lock);
    rg_receiver_expect_notices(session, -1);
    return RG_OK;
}

/* --- landings ------------------------------------------------------------------------------------------ */

/* The reader has received what it was at. `ended`: the transfer that ends with this, or 0. It is the caller's then, or NULL: the
 * end of the session was faster. */
static struct transfer *filled(const struct rg_session *session, uint64_t ended)
{
    pthread_mutex_lock(&lock);
    filling[session->number] = 0;
    pthread_cond_broadcast(&let_go);
    struct transfer *transfer = ended ? take(ended) : NULL;
    pthread_mutex_unlock(&lock);
    return transfer;
}

static enum rg_status landing_part(struct rg_session *session, const struct rg_notice *notice,
                                   size_t bulk_size)
{
    const uint64_t offset = notice->arg[0], size = notice->arg[1];
    pthread_mutex_lock(&lock);
    struct transfer *transfer = find(session, notice->id);
    bool good = transfer && transfer->kind <= STAGED_LANDING && size == bulk_size &&
                offset <= rg_region_size(&transfer->region) &&
                size <= rg_region_size(&transfer->region) - offset && (transfer->region.memory || !size);
    const bool over = atomic_load(&session->over), revoked = good && transfer->revoked;
    struct rg_host_region region = good ? transfer->region : (struct rg_host_region){0};
    enum transfer_kind kind = good ? transfer->kind : LANDING;
    if (good)
        transfer->received += size;
    const bool complete = good && transfer->received == rg_region_size(&transfer->region);
    void (*landed)(void *, bool) = good ? transfer->landed : NULL;
    void *user = good ? transfer->user : NULL;
    if (good && !over && !revoked)
        filling[session->number] = notice->id;
    pthread_mutex_unlock(&lock);
    if (!good)
        return RG_ERR_PROTOCOL;
    enum rg_status status = revoked || over ? rg_conn_recv_bulk(session->conn, NULL, size)
                                            : rg_region_receive(&region, offset, size, session->conn);
    const bool received = status == RG_OK || status == RG_ERR_FAULT, last = notice->arg[2] && kind != LANDING;
    transfer = filled(session,
                      received && last && !over ? notice->id : 0); /* else whoever ends the session has it */
    if (!received)
        return RG_OK; /* the next receive reports the broken connection */
    if (status == RG_ERR_FAULT)
        rg_session_async_error(session, CUDA_ERROR_INVALID_VALUE, RG_OP_rgCopyOut);
    if (transfer) {
        finished(kind);
        release(transfer);
        rg_receiver_expect_notices(session, -1);
        if (landed)
            landed(user, complete);
    }
    return RG_OK;
}

/* --- pulls --------------------------------------------------------------------------------------------- */

/* For the sender thread; the lock is held. */
static void enqueue(struct pull_part *part)
{
    *pull_last = part;
    pull_last = &part->next;
}

static enum rg_status pull_due(struct rg_session *session, const struct rg_notice *notice)
{
    struct pull_part *part = calloc(1, sizeof *part);
    pthread_mutex_lock(&lock);
    struct transfer *transfer = find(session, notice->id);
    const uint64_t total = transfer ? rg_region_size(&transfer->region) : 0;
    bool good = part && transfer && transfer->kind == PULL && notice->arg[1] <= RG_BULK_MAX &&
                notice->arg[0] <= total && notice->arg[1] <= total - notice->arg[0];
    if (!good) {
        pthread_mutex_unlock(&lock);
        free(part);
        return RG_ERR_PROTOCOL;
    }
    part->session = session;
    part->id = notice->id;
    part->offset = notice->arg[0];
    part->size = notice->arg[1];
    part->region = transfer->region;
    part->revoked = transfer->revoked;
    bool last = part->offset + part->size == total;
    struct rg_lazy_source *supply = transfer->supply, *start = NULL;
    part->supplied = supply != NULL;
    if (last && supply)
        part->last_of = supply;
    if (supply && supply->memory)
        part->region.memory = supply->memory;
    if (supply && !supply->memory && part->size) {
        start = supply->started ? NULL : supply;
        if (start)
            start->keep(start);
        supply->started = true;
        struct pull_part **end = &supply->waiting;
        while (*end)
            end = &(*end)->next;
        *end = part;
    } else {
        enqueue(part);
    }
    if (last)
        free(take(notice->id));
    pthread_mutex_unlock(&lock);
    if (last)
        rg_receiver_expect_notices(session, -1);
    if (start)
        start->start(start);
    rg_queue_wake_sender(session);
    return RG_OK;
}

void rg_lazy_source_ready(struct rg_session *session, struct rg_lazy_source *supply, unsigned char *memory)
{
    pthread_mutex_lock(&lock);
    supply->memory = memory;
    supply->started = true;
    while (supply->waiting) {
        struct pull_part *part = supply->waiting;
        supply->waiting = part->next;
        part->next = NULL;
        part->region.memory = memory;
        enqueue(part);
    }
    pthread_mutex_unlock(&lock);
    rg_queue_wake_sender(session);
}

void rg_fence_release(struct rg_session *session, uint64_t id)
{
    struct pull_part *part = calloc(1, sizeof *part);
    if (!part) {
        rg_session_end(session, CUDA_ERROR_OUT_OF_MEMORY, "no memory to let a stream of %s go on",
                       session->server);
        return;
    }
    part->session = session;
    part->id = id;
    part->release = true;
    pthread_mutex_lock(&lock);
    enqueue(part);
    pthread_mutex_unlock(&lock);
    rg_queue_wake_sender(session);
}

enum { ROWS = 512 }; /* of a piece of a pull, at most */

/* Rows of [part->offset, part->offset + size), as far as ROWS go; *covered: the bytes. */
static int rows_of(const struct pull_part *part, size_t size, struct iovec *rows, size_t *covered)
{
    static const unsigned char zeros[65536];
    if (!part->revoked)
        return rg_region_iovec(&part->region, part->offset, size, rows, ROWS, covered);
    int n = 0;
    for (*covered = 0; *covered < size && n < ROWS; n++) {
        const size_t left = size - *covered;
        rows[n] = (struct iovec){(void *)zeros, left < sizeof zeros ? left : sizeof zeros};
        *covered += rows[n].iov_len;
    }
    return n;
}

bool rg_rendezvous_send_next(struct rg_session *session)
{
    pthread_mutex_lock(&lock);
    struct pull_part *part = pull_first;
    while (part && part->session != session)
        part = part->next;
    pthread_mutex_unlock(&lock);
    if (!part)
        return false;
    if (part->release) {
        struct rg_answer done = {.type = RG_ANSWER_HOST_DONE, .id = part->id};
        rg_queue_answer(session, &done, NULL, 0, NULL);
    }
    if (part->size) {
        struct iovec rows[ROWS];
        size_t covered, piece = rg_piece(session);
        piece = part->size < piece ? part->size : piece;
        int n = rows_of(part, piece, rows, &covered);
        struct rg_answer answer = {.type = RG_ANSWER_DATA, .id = part->id, .arg = {part->offset, covered}};
        const uint64_t began = rg_now_ns();
        if (rg_queue_answer(session, &answer, rows, n, part->supplied ? NULL : &rg_lease_until_reply) ==
            RG_ERR_FAULT)
            rg_session_async_error(session, CUDA_ERROR_INVALID_VALUE, RG_OP_rgCopyInLate);
        rg_piece_sent(session, covered, began);
        part->offset += covered;
        part->size -= covered;
        if (part->size)
            return true;
    }
    if (part->last_of)
        part->last_of->finish(part->last_of);
    /* It has been in the list all the time (rg_transfers_meet); its session has one sender, which this thread is. */
    pthread_mutex_lock(&lock);
    struct pull_part **at = &pull_first;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    if (!part->next)
        pull_last = at;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&lock);
    free(part);
    return true;
}

/* --- questions ----------------------------------------------------------------------------------------- */

void rg_page_request_send(struct rg_page_request *question)
{
    question->result = CUDA_ERROR_OUT_OF_MEMORY;
    question->busy = question->done = false;
    question->id = 0;
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return;
    transfer->session = question->session;
    transfer->kind = QUESTION;
    transfer->region = (struct rg_host_region){
        .memory = question->data, .pitch = question->size, .width = question->size, .height = 1};
    transfer->question = question;
    question->id = add(transfer);
    struct rg_answer answer = {.type = RG_ANSWER_MANAGED_OUT,
                               .reserved = question->flags,
                               .id = question->id,
                               .arg = {question->address, question->size, question->context}};
    rg_queue_answer(question->session, &answer, NULL, 0, NULL);
}

void rg_page_request_wait(struct rg_page_request *question)
{
    struct transfer *transfer = NULL;
    if (!question->id)
        return;
    const uint64_t since = rg_probe_wait();
    pthread_mutex_lock(&lock);
    while (!question->done) {
        /* the session is over; if it is not in the table any more, the reader is about to be done with it */
        if (atomic_load(&question->session->ended) != CUDA_SUCCESS && (transfer = take(question->id))) {
            question->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
            break;
        }
        pthread_cond_wait(&answered, &lock);
    }
    pthread_mutex_unlock(&lock);
    rg_probe_waited(since, 0);
    free(transfer);
    rg_receiver_expect_notices(question->session, -1);
}

static enum rg_status question_answered(struct rg_session *session, const struct rg_notice *notice,
                                        size_t bulk_size)
{
    pthread_mutex_lock(&lock);
    struct transfer *transfer = find(session, notice->id);
    const bool good = transfer && transfer->kind == QUESTION && notice->arg[1] == bulk_size &&
                      (bulk_size == 0 || bulk_size == rg_region_size(&transfer->region));
    if (good)
        take(notice->id);
    pthread_mutex_unlock(&lock);
    if (!good)
        return RG_ERR_PROTOCOL;
    enum rg_status status =
        bulk_size ? rg_region_receive(&transfer->region, 0, bulk_size, session->conn) : RG_OK;
    pthread_mutex_lock(&lock);
    transfer->question->busy = notice->arg[2] & 1;
    transfer->question->steady = !(notice->arg[2] & 2);
    transfer->question->result = status == RG_OK ? (CUresult)notice->arg[0] : CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (status == RG_OK && notice->arg[0] == CUDA_SUCCESS && !bulk_size && !transfer->question->busy)
        transfer->question->result = CUDA_ERROR_UNKNOWN; /* no data, and no reason */
    transfer->question->done = true;
    pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&lock);
    free(transfer);
    return RG_OK;
}

static enum rg_status dispatch(struct rg_session *session, const struct rg_notice *notice, size_t bulk_size)
{
    switch (notice->type) {
    case RG_NOTICE_HOST_CALL:
        return host_call_due(session, notice);
    case RG_NOTICE_DEFERRED_READ:
        return landing_part(session, notice, bulk_size);
    case RG_NOTICE_RENDEZVOUS:
        return pull_due(session, notice);
    case RG_NOTICE_MANAGED:
        return question_answered(session, notice, bulk_size);
    default:
        return RG_ERR_PROTOCOL;
    }
}

bool rg_transfer_notice(struct rg_session *session, const struct rg_notice *notice, struct rg_reader *in,
                        size_t bulk_size)
{
    (void)in;
    return dispatch(session, notice, bulk_size) != RG_ERR_PROTOCOL;
}
