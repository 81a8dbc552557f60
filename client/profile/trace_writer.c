/*
 * trace_writer.c - what threads have noted and the worker has measured becomes blocks of the trace (trace_writer.h).
 *
 * A block is put together in `payload` as numbers of variable length, mostly as what they differ by from the one before, and written
 * with its checksum. Ten times a second the thread takes what is new of all threads; the worker's times are fetched long before it must
 * drop any, and the rest at the end. What fails (a full disk, no memory) is said once; the file lacks its last block then, so nobody
 * takes it for whole.
 */
#include "client/profile/trace_writer.h"

#include "client/core/optimisations.h"
#include "client/core/queue.h"
#include "client/core/session.h"
#include "client/profile/output_file.h"
#include "client/profile/server_times.h"
#include "client/profile/threads.h"
#include "client/profile/trace_format.h"
#include "common/base/clock.h"
#include "common/base/crc32.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_NS   100000000
#define FETCH_AFTER (RG_TIMES_MAX / 4) /* records: long before the worker must drop some */

struct bytes {
    unsigned char *data;
    size_t used, capacity;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static char path[PATH_MAX];
static int fd = -1;
static bool over, failed;
static struct bytes payload;
static uint64_t n_events, n_times, times_dropped[RG_SERVERS_MAX];
static uint64_t posted, fetched_at; /* records so far, and when times were fetched */
static unsigned n_told;             /* sessions that the file has been told of */

/* --- the file ------------------------------------------------------------------------------------------- */

static void fail(const char *why)
{
    if (!failed)
        rg_warn("the trace %s is unusable: %s", path, why);
    failed = true;
}

static void put_bytes(const void *data, size_t size)
{
    if (payload.capacity - payload.used < size) {
        const size_t capacity = (payload.used + size) * 2;
        unsigned char *grown = realloc(payload.data, capacity);
        if (!grown) {
            fail("out of memory");
            return;
        }
        payload.data = grown;
        payload.capacity = capacity;
    }
    memcpy(payload.data + payload.used, data, size);
    payload.used += size;
}

static void put(uint64_t number)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[n++] = (unsigned char)(number | 0x80);
    bytes[n++] = (unsigned char)number;
    put_bytes(bytes, n);
}

/* A difference of two numbers, whichever is larger. */
static void put_since(uint64_t number, uint64_t before)
{
    const uint64_t d = number - before;
    put(d << 1 ^ (d >> 63 ? UINT64_MAX : 0));
}

static void put_text(const char *text)
{
    put(strlen(text));
    put_bytes(text, strlen(text));
}

static void write_all(const void *data, size_t size)
{
    if (!failed && !rg_file_write(fd, data, size))
        fail(strerror(errno));
}

/* Writes the payload as one block, and empties it. */
static void end_block(enum rg_trace_type type)
{
    const struct rg_trace_block block = {type, rg_crc32(0, payload.data, payload.used), payload.used};
    write_all(&block, sizeof block);
    write_all(payload.data, payload.used);
    payload.used = 0;
}

/* --- events --------------------------------------------------------------------------------------------- */

static void put_event(const struct rg_profile_event *event, uint64_t *time, uint64_t *seq)
{
    static const unsigned char kinds[] = {
        [RG_PROFILE_CALL] = RG_TRACE_CALL,   [RG_PROFILE_WAIT] = RG_TRACE_WAIT,
        [RG_PROFILE_POST] = RG_TRACE_POST,   [RG_PROFILE_POLL] = RG_TRACE_POLL,
        [RG_PROFILE_SAVED] = RG_TRACE_SAVED, [RG_PROFILE_EXCHANGE] = RG_TRACE_EXCHANGE};
    const uint64_t start = event->start - rg_profile_started();
    put(kinds[event->kind]);
    put_since(start, *time);
    *time = start;
    switch (event->kind) {
    case RG_PROFILE_CALL:
    case RG_PROFILE_WAIT:
        put(event->end - event->start);
        put(event->kind == RG_PROFILE_CALL ? event->api : event->round_trips);
        put(event->sent);
        put(event->received);
        return;
    case RG_PROFILE_POST:
        put(event->session);
        put_since(event->seq, *seq);
        *seq = event->seq;
        put(event->api);
        put(event->size);
        put(event->sent);
        put(event->received);
        posted++;
        return;
    case RG_PROFILE_POLL:
        put(event->session);
        put(event->end - event->start);
        put(event->round_trips);
        put(event->api);
        put(event->seq);
        return;
    case RG_PROFILE_SAVED:
        put(event->api);
        return;
    case RG_PROFILE_EXCHANGE:
        put(event->seq);
        put(event->sent);
        put(event->received);
        put(event->round_trips);
        put(event->size);
        return;
    }
}

static void write_events(struct rg_profile_chunk *chunk, unsigned n)
{
    uint64_t time = 0, seq = 0;
    put((uint64_t)chunk->thread);
    put(n - chunk->written);
    n_events += n - chunk->written;
    for (; chunk->written < n; chunk->written++)
        put_event(&chunk->events[chunk->written], &time, &seq);
    end_block(RG_TRACE_THREAD);
}

static void take_events(void)
{
    struct rg_profile_chunk *previous = NULL, *chunk = rg_profile_chunks();
    while (chunk) {
        const bool closed = atomic_load_explicit(&chunk->closed, memory_order_acquire);
        const unsigned n = atomic_load_explicit(&chunk->n, memory_order_acquire);
        if (chunk->written < n)
            write_events(chunk, n);
        if (closed) {
            chunk = rg_profile_chunk_drop(previous, chunk);
        } else {
            previous = chunk;
            chunk = atomic_load(&chunk->next);
        }
    }
}

/* --- the worker's times --------------------------------------------------------------------------------- */

static void put_time(const struct rg_time *time, const struct rg_time *before)
{
    put_since(time->seq, before->seq);
    put(time->op);
    put(time->flags);
    put_since((uint64_t)(int64_t)time->result, 0);
    put_since(time->begin, before->begin);
    put(time->served - time->begin);
    put(time->reply ? time->reply - time->begin + 1 : 0);
    if (time->reply)
        put(time->sent - time->reply);
    if (time->flags & RG_TIME_END)
        put_since(time->end, time->begin);
    put(time->stream ^ before->stream);
    put(time->event ^ before->event);
}

static bool timed(const struct rg_session *session)
{
    return session->hello.capabilities & RG_CONTROL_CAP_TIMES;
}

/* The worker's numbers of operations are its own. */
static uint16_t our_number(const struct rg_session *session, uint16_t theirs)
{
    for (unsigned op = 1; op < RG_OP_COUNT; op++)
        if (session->op_numbers[op] == theirs)
            return (uint16_t)op;
    return 0;
}

static void take_times(struct rg_session *session, bool all)
{
    struct rg_time *times = malloc(RG_TIMES_PART * sizeof *times);
    uint64_t more = 1;
    const bool same = session->op_numbers[RG_OP_COUNT - 1] == RG_OP_COUNT - 1;
    while (times && more) {
        uint64_t dropped = 0;
        const int n = rg_times_fetch(session, all, times, &more, &dropped);
        if (n < 0)
            break;
        struct rg_time before = {0};
        times_dropped[session->number] = dropped;
        put(session->number);
        put((uint64_t)n);
        for (int i = 0; i < n; i++) {
            if (!same)
                times[i].op = our_number(session, times[i].op);
            put_time(&times[i], &before);
            before = times[i];
        }
        n_times += (uint64_t)n;
        end_block(RG_TRACE_TIMES);
        if (!n)
            break;
    }
    if (!times || more)
        rg_info("the trace %s lacks times of the server", path);
    free(times);
}

static void take_all_times(bool all)
{
    for (unsigned i = 0; i < n_told; i++) {
        struct rg_session *session = &rg_sessions[i];
        if (!timed(session) || !rg_session_lives(session))
            continue;
        if (all)
            rg_queue_flush(session);
        take_times(session, all);
    }
}

/* --- beginning and end ---------------------------------------------------------------------------------- */

static void write_names(enum rg_trace_names kind, const char *const *names, size_t n)
{
    put(kind);
    put(n);
    for (size_t i = 0; i < n; i++) {
        put_text(names[i] ? names[i] : "");
        if (kind == RG_TRACE_FUNCTIONS)
            put_text(rg_profile_classes[i]);
    }
    end_block(RG_TRACE_NAMES);
}

static void *writer_main(void *unused)
{
    (void)unused;
    for (;;) {
        rg_pause(PERIOD_NS);
        pthread_mutex_lock(&lock);
        const bool end = over || failed;
        if (!end) {
            take_events();
            if (posted - fetched_at > FETCH_AFTER) {
                fetched_at = posted;
                take_all_times(false);
            }
        }
        pthread_mutex_unlock(&lock);
        if (end)
            return NULL;
    }
}

bool rg_trace_writer_start(const char *wanted)
{
    fd = rg_profile_create_file(wanted, path);
    if (fd < 0) {
        rg_warn("cannot write a trace to %s: %s", path, rg_profile_file_error(errno));
        return false;
    }
    struct rg_trace_head head = {.version = RG_TRACE_VERSION};
    memcpy(head.magic, RG_TRACE_MAGIC, sizeof head.magic);
    pthread_mutex_lock(&lock);
    write_all(&head, sizeof head);
    write_names(RG_TRACE_FUNCTIONS, rg_profile_names, RG_API_COUNT);
    write_names(RG_TRACE_OPERATIONS, rg_op_names, RG_OP_COUNT);
    const char *optimisations[RG_OPT_COUNT];
    for (int i = 0; i < RG_OPT_COUNT; i++)
        optimisations[i] = rg_optimisation_name((enum rg_optimisation)i);
    write_names(RG_TRACE_OPTIMISATIONS, optimisations, RG_OPT_COUNT);
    pthread_mutex_unlock(&lock);
    if (rg_thread_create_detached("rg-record", writer_main, NULL) != RG_OK)
        rg_warn("cannot start a thread; the trace is written at the end only");
    return true;
}

static void write_program(void)
{
    uint64_t on = 0;
    for (int i = 0; i < RG_OPT_COUNT; i++)
        on |= (uint64_t)rg_optimise[i] << i;
    put_text(program_invocation_short_name);
    put((uint64_t)getpid());
    put(on);
    end_block(RG_TRACE_PROGRAM);
}

void rg_trace_writer_sessions(void)
{
    RG_SCOPED_LOCK(&lock);
    if (!n_told)
        write_program();
    for (; n_told < rg_n_sessions; n_told++) {
        const struct rg_session *session = &rg_sessions[n_told];
        if (!timed(session))
            rg_warn(
                "the server %s is too old to measure its part: predictions from the trace %s will take all "
                "waiting for the device's work",
                session->server, path);
        put_text(session->server);
        put_text(rg_conn_transport(session->conn));
        put_text(session->hello.driver.kind);
        put(timed(session) ? RG_TRACE_TIMED : 0);
        end_block(RG_TRACE_SERVER);
    }
}

void rg_trace_writer_finish(void)
{
    RG_SCOPED_LOCK(&lock);
    if (over || failed)
        return;
    over = true;
    const uint64_t elapsed = rg_now_ns() - rg_profile_started();
    uint64_t sent = 0, received = 0, round_trips = 0, repeated = 0, all_dropped = 0;
    for (unsigned i = 0; i < n_told; i++) {
        sent += rg_sessions[i].stats.sent_bytes;
        received += rg_sessions[i].stats.received_bytes;
        round_trips += rg_sessions[i].stats.round_trips;
        repeated += rg_sessions[i].stats.repeated_bytes;
    }
    take_all_times(true);
    for (unsigned i = 0; i < n_told; i++)
        all_dropped += times_dropped[i];
    take_events();
    put(n_events);
    put(rg_profile_dropped());
    put(n_times);
    put(all_dropped);
    put(elapsed);
    put(sent);
    put(received);
    put(round_trips);
    put(repeated);
    end_block(RG_TRACE_END);
    if (close(fd) != 0)
        fail(strerror(errno));
    if (rg_profile_dropped())
        rg_warn("the trace %s ends early: it is full, and %llu later events are left out "
                "(REMOTE_GPU_RECORD_EVENTS sets the limit)",
                path, (unsigned long long)rg_profile_dropped());
}
