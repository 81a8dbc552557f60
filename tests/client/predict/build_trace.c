/* build_trace.c - see build_trace.h. */
#include "tests/client/predict/build_trace.h"

#include "common/base/crc32.h"
#include "proto/times.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WAY_NS     5000
#define SERVICE_NS 1000
#define POST_NS    1000
#define OFFSET_NS  1000000000000ull /* the server's clock */

void put_bytes(struct built *built, const void *data, size_t size)
{
    if (built->capacity - built->size < size) {
        built->capacity = (built->size + size) * 2;
        built->data = realloc(built->data, built->capacity);
        if (!built->data)
            abort();
    }
    memcpy(built->data + built->size, data, size);
    built->size += size;
}

void put_number(struct built *built, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        put_bytes(built, &(unsigned char){(unsigned char)(number | 0x80)}, 1);
    put_bytes(built, &(unsigned char){(unsigned char)number}, 1);
}

void put_signed(struct built *built, int64_t number)
{
    put_number(built, (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0));
}

void put_text(struct built *built, const char *text)
{
    put_number(built, strlen(text));
    put_bytes(built, text, strlen(text));
}

void begin_block(struct built *built, enum rg_trace_type type)
{
    const struct rg_trace_block block = {.type = type};
    put_bytes(built, &block, sizeof block);
    built->payload = built->size;
}

static void finish(struct built *built, size_t payload, size_t size)
{
    struct rg_trace_block block;
    memcpy(&block, built->data + payload - sizeof block, sizeof block);
    block.size = size;
    block.crc = rg_crc32(0, built->data + payload, size);
    memcpy(built->data + payload - sizeof block, &block, sizeof block);
}

void end_block(struct built *built)
{
    finish(built, built->payload, built->size - built->payload);
}

void mend_checksums(struct built *built)
{
    size_t at = sizeof(struct rg_trace_head);
    struct rg_trace_block block;
    while (built->size - at >= sizeof block) {
        memcpy(&block, built->data + at, sizeof block);
        at += sizeof block;
        if (block.size > built->size - at)
            return;
        finish(built, at, block.size);
        at += block.size;
    }
}

static void names(struct built *built, enum rg_trace_names kind, const char *const *list, size_t n)
{
    begin_block(built, RG_TRACE_NAMES);
    put_number(built, kind);
    put_number(built, n);
    for (size_t i = 0; i < n; i++) {
        put_text(built, list[i]);
        if (kind == RG_TRACE_FUNCTIONS)
            put_text(built, "async");
    }
    end_block(built);
}

void begin_trace(struct built *built, unsigned servers)
{
    static const char *const functions[] = {"cuLaunchKernel"};
    static const char *const operations[] = {"",
                                             "rgLaunch",
                                             "cuCtxSynchronize",
                                             "rgCopyIn",
                                             "rgAskInfo",
                                             "cuEventQuery",
                                             "cuEventRecord",
                                             "rgNcclPost",
                                             "rgPeerReceive",
                                             "rgPeerSend",
                                             "rgPeerSignal",
                                             "rgPeerWait"};
    static const char *const optimisations[] = {"async", "batch", "query-cache", "delta"};
    const struct rg_trace_head head = {.magic = RG_TRACE_MAGIC, .version = RG_TRACE_VERSION};
    put_bytes(built, &head, sizeof head);
    names(built, RG_TRACE_FUNCTIONS, functions, 1);
    names(built, RG_TRACE_OPERATIONS, operations, OP_PEER_WAIT + 1);
    names(built, RG_TRACE_OPTIMISATIONS, optimisations, 4);
    begin_block(built, RG_TRACE_PROGRAM);
    put_text(built, "program");
    put_number(built, 77);
    put_number(built, 15);
    end_block(built);
    for (unsigned i = 0; i < servers; i++) {
        begin_block(built, RG_TRACE_SERVER);
        put_text(built, i ? "other:1" : "server:1");
        put_text(built, "tcp");
        put_text(built, "soft");
        put_number(built, RG_TRACE_TIMED);
        end_block(built);
    }
}

void end_trace(struct built *built, uint64_t events, uint64_t times, uint64_t elapsed, uint64_t round_trips)
{
    begin_block(built, RG_TRACE_END);
    const uint64_t all[] = {events, 0, times, 0, elapsed, 1000, 1000, round_trips, 0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        put_number(built, all[i]);
    end_block(built);
}

/* A server as it is while a trace is made. */
struct server {
    struct built times;
    uint64_t seq, last_begin, device, dispatcher;
};

/* What is kept while the program's and the servers' sides are made. */
struct making {
    struct built thread;
    struct server servers[2];
    struct server *at; /* whose records are put */
    uint64_t now, last_start, last_seq;
    uint64_t events;
};

static void event(struct making *m, enum rg_trace_event kind, uint64_t start)
{
    put_number(&m->thread, kind);
    put_signed(&m->thread, (int64_t)(start - m->last_start));
    m->last_start = start;
    m->events++;
}

/* A record that the worker begins at `begin` and has served at `served`. */
static void time_of(struct making *m, unsigned op, unsigned flags, uint64_t begin, uint64_t served,
                    uint64_t replied, uint64_t end)
{
    struct built *out = &m->at->times;
    const uint64_t offset = OFFSET_NS * (uint64_t)(m->at - m->servers + 1);
    put_signed(out, 1);
    put_number(out, op);
    put_number(out, flags);
    put_signed(out, 0);
    put_signed(out, (int64_t)(begin + offset - m->at->last_begin));
    m->at->last_begin = begin + offset;
    put_number(out, served - begin);
    put_number(out, replied ? replied - begin + 1 : 0);
    if (replied)
        put_number(out, 0);
    if (flags & RG_TIME_END)
        put_signed(out, (int64_t)(end - begin));
    put_number(out, m->at->seq == 1 ? 1 : 0); /* the legacy stream, each time */
    put_number(out, 0);
}

static void post(struct making *m, unsigned op, uint64_t sent)
{
    event(m, RG_TRACE_POST, m->now);
    put_number(&m->thread, (uint64_t)(m->at - m->servers));
    m->at->seq++;
    put_signed(&m->thread, (int64_t)(m->at->seq - m->last_seq));
    m->last_seq = m->at->seq;
    put_number(&m->thread, op);
    put_number(&m->thread, 100);
    put_number(&m->thread, sent);
    put_number(&m->thread, 0);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A record that is put; returns when the worker has served it. */
static void work(struct making *m, unsigned op, uint64_t kernel_ns)
{
    post(m, op, 0);
    const uint64_t begin = later(m->now + WAY_NS, m->at->dispatcher);
    m->at->dispatcher = begin + SERVICE_NS;
    m->at->device = later(m->at->device, begin) + kernel_ns;
    time_of(m, op, RG_TIME_WORK | RG_TIME_END, begin, m->at->dispatcher, 0, m->at->device);
    m->now += POST_NS;
}

static void synchronise(struct making *m)
{
    post(m, OP_SYNC, 0);
    const uint64_t began = m->now, begin = later(m->now + WAY_NS, m->at->dispatcher);
    m->at->dispatcher = begin + SERVICE_NS;
    const uint64_t replied = later(m->at->dispatcher, m->at->device);
    time_of(m, OP_SYNC, RG_TIME_YIELDED, begin, m->at->dispatcher, replied, 0);
    m->now = replied + WAY_NS;
    event(m, RG_TRACE_WAIT, began);
    put_number(&m->thread, m->now - began);
    put_number(&m->thread, 1);
    put_number(&m->thread, 0);
    put_number(&m->thread, 50);
    m->now += POST_NS;
}

static void send_bulk(struct making *m, uint64_t bulk)
{
    work(m, OP_COPY_IN, 0);
    m->now -= POST_NS;
    event(m, RG_TRACE_WAIT, m->now);
    put_number(&m->thread, POST_NS);
    put_number(&m->thread, 0);
    put_number(&m->thread, bulk);
    put_number(&m->thread, 0);
    m->now += POST_NS;
}

static void end_making(struct built *built, struct making *m, uint64_t round_trips)
{
    uint64_t times = 0;
    begin_block(built, RG_TRACE_THREAD);
    put_number(built, 77);
    put_number(built, m->events);
    put_bytes(built, m->thread.data, m->thread.size);
    end_block(built);
    for (unsigned i = 0; i < 2 && m->servers[i].seq; i++) {
        times += m->servers[i].seq;
        begin_block(built, RG_TRACE_TIMES);
        put_number(built, i);
        put_number(built, m->servers[i].seq);
        put_bytes(built, m->servers[i].times.data, m->servers[i].times.size);
        end_block(built);
        free_built(&m->servers[i].times);
    }
    end_trace(built, m->events, times, m->now, round_trips);
    free_built(&m->thread);
}

void build_steps(struct built *built, unsigned steps, unsigned launches, uint64_t kernel_ns, uint64_t bulk)
{
    struct making m = {.now = 100000};
    m.at = m.servers;
    begin_trace(built, 1);
    for (unsigned i = 0; i < steps; i++) {
        event(&m, RG_TRACE_SAVED, m.now);
        put_number(&m.thread, OPT_SHADOW);
        if (bulk)
            send_bulk(&m, bulk);
        for (unsigned j = 0; j < launches; j++)
            work(&m, OP_LAUNCH, kernel_ns);
        synchronise(&m);
    }
    end_making(built, &m, steps);
}

/* --- two servers ------------------------------------------------------------------------------------------ */

static void exchange(struct making *m, uint64_t key, uint64_t sent, uint64_t received, unsigned ways)
{
    event(m, RG_TRACE_EXCHANGE, m->now);
    put_number(&m->thread, key);
    put_number(&m->thread, sent);
    put_number(&m->thread, received);
    put_number(&m->thread, ways);
    put_number(&m->thread, 0);
}

/* A record whose device begins with it when both have got there, at `start`, and ends after `ns`. */
static void half(struct making *m, unsigned op, uint64_t start, uint64_t ns, bool timed)
{
    post(m, op, 0);
    const uint64_t begin = later(m->now + WAY_NS, m->at->dispatcher);
    m->at->dispatcher = begin + SERVICE_NS;
    m->at->device = later(later(m->at->device, begin), start) + ns;
    time_of(m, op, timed ? RG_TIME_WORK | RG_TIME_END : 0, begin, m->at->dispatcher, 0,
            timed ? m->at->device : 0);
    m->now += POST_NS;
}

/* What both servers do: the first is the one that waits. */
static void both(struct making *m, enum between between, uint64_t key, uint64_t bytes)
{
    static const unsigned ops[][2] = {[A_SUM] = {OP_NCCL, OP_NCCL},
                                      [A_COPY] = {OP_PEER_RECEIVE, OP_PEER_SEND},
                                      [A_FENCE] = {OP_PEER_WAIT, OP_PEER_SIGNAL}};
    const bool fence = between == A_FENCE;
    const uint64_t start = later(later(m->servers[0].device, m->servers[1].device),
                                 m->now + 2 * POST_NS + WAY_NS); /* all has been put by then */
    for (unsigned i = 0; i < 2; i++) {
        m->at = &m->servers[i];
        half(m, ops[between][i], fence && i ? 0 : start, fence ? 0 : BETWEEN_NS, !fence);
        exchange(m, key, fence || (between == A_COPY && i == 0) ? 0 : bytes,
                 fence || (between == A_COPY && i == 1) ? 0 : bytes, fence ? 1 - i : 2);
    }
}

void build_servers(struct built *built, unsigned steps, enum between between, uint64_t kernel_ns,
                   uint64_t bytes)
{
    struct making m = {.now = 100000};
    const unsigned n = between == A_SUM_WITH_ANOTHER_PROCESS ? 1 : 2;
    begin_trace(built, n);
    for (unsigned i = 0; i < steps; i++) {
        for (unsigned k = 0; k < n; k++) {
            m.at = &m.servers[k];
            work(&m, OP_LAUNCH, kernel_ns * (k + 1));
        }
        if (n == 2) {
            both(&m, between, i + 1, bytes);
        } else { /* the other one comes later and later */
            half(&m, OP_NCCL, 0, BETWEEN_NS + i * kernel_ns, true);
            exchange(&m, 0, bytes, bytes, 2);
        }
        m.at = m.servers;
        work(&m, OP_LAUNCH, kernel_ns);
        for (unsigned k = n; k-- > 0;) {
            m.at = &m.servers[k];
            synchronise(&m);
        }
    }
    end_making(built, &m, steps * n);
}

void free_built(struct built *built)
{
    free(built->data);
    *built = (struct built){0};
}
