/*
 * trace.c - reads a trace, block by block, and checks it (trace.h).
 *
 * Each block's checksum is compared before a reader of its kind takes it apart with a cursor, which
 * remembers that anything was wrong. What is good is there when the last block's counts agree; what is not is a sentence for the user.
 */
#include "client/predict/trace.h"

#include "common/base/crc32.h"
#include "common/base/printable.h"

#include <stdlib.h>
#include <string.h>

#define TIME_MAX  (1ull << 60) /* ns; what is later is not a time */
#define BYTES_MAX (1ull << 50)
#define ITEMS_MAX (64u << 20) /* of a thread, of times */
#define WAYS_MAX  (1u << 24)  /* of one exchange */

/* The payload of a block. After anything wrong, `bad` is set and all that is read is 0. */
struct cursor {
    const unsigned char *at, *end;
    bool bad;
};

static uint64_t get(struct cursor *cursor, uint64_t max)
{
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
        const unsigned char byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            break;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        if (number > max)
            break;
        return number;
    }
    cursor->bad = true;
    cursor->at = cursor->end;
    return 0;
}

/* A number given as its difference from `before`; both at most `max`. */
static uint64_t get_since(struct cursor *cursor, uint64_t before, uint64_t max)
{
    const uint64_t zigzag = get(cursor, UINT64_MAX);
    const uint64_t number = before + (zigzag >> 1 ^ (zigzag & 1 ? UINT64_MAX : 0));
    if (number > max)
        cursor->bad = true;
    return cursor->bad ? 0 : number;
}

/* A text; NULL: bad, or no memory. The caller frees it. */
static char *get_text(struct cursor *cursor)
{
    const uint64_t size = get(cursor, RG_TRACE_TEXT_MAX);
    if (cursor->bad || size > (uint64_t)(cursor->end - cursor->at) || memchr(cursor->at, 0, size)) {
        cursor->bad = true;
        return NULL;
    }
    char *text = strndup((const char *)cursor->at, size);
    cursor->at += size;
    if (!text)
        cursor->bad = true;
    else
        rg_printable_clean(text); /* it will be shown */
    return text;
}

static size_t left(const struct cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* Makes room for `more` items; false: too many, or no memory. */
static bool grow(void **items, size_t n, size_t *capacity, size_t more, size_t size)
{
    if (more > ITEMS_MAX - n)
        return false;
    if (n + more <= *capacity)
        return true;
    size_t wanted = *capacity * 2 > n + more ? *capacity * 2 : n + more;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* --- blocks --------------------------------------------------------------------------------------------- */

static bool read_names(struct rg_trace *trace, struct cursor *in)
{
    const uint64_t kind = get(in, RG_TRACE_OPTIMISATIONS), n = get(in, RG_TRACE_NAMES_MAX);
    struct rg_trace_list *list = kind == RG_TRACE_FUNCTIONS       ? &trace->functions
                                 : kind == RG_TRACE_OPERATIONS    ? &trace->operations
                                 : kind == RG_TRACE_OPTIMISATIONS ? &trace->optimisations
                                                                  : NULL;
    if (in->bad || !list || list->names || n > left(in) ||
        (kind == RG_TRACE_OPTIMISATIONS && n > 64)) /* they are bits of a number */
        return false;
    list->names = calloc(n + 1, sizeof *list->names);
    list->classes = kind == RG_TRACE_FUNCTIONS ? calloc(n + 1, sizeof *list->classes) : NULL;
    if (!list->names || (kind == RG_TRACE_FUNCTIONS && !list->classes))
        return false;
    list->n = n;
    for (uint64_t i = 0; i < n; i++) {
        list->names[i] = get_text(in);
        if (list->classes)
            list->classes[i] = get_text(in);
    }
    return true;
}

static bool read_program(struct rg_trace *trace, struct cursor *in)
{
    if (trace->program)
        return false;
    trace->program = get_text(in);
    trace->pid = get(in, UINT32_MAX);
    trace->optimisations_on = get(in, UINT64_MAX);
    return true;
}

static bool read_server(struct rg_trace *trace, struct cursor *in)
{
    if (trace->n_servers == RG_SERVERS_MAX)
        return false;
    struct rg_trace_server *server = &trace->servers[trace->n_servers++];
    server->name = get_text(in);
    server->transport = get_text(in);
    server->device = get_text(in);
    server->timed = get(in, UINT64_MAX) & RG_TRACE_TIMED;
    return true;
}

static struct rg_trace_thread *find_thread(struct rg_trace *trace, uint64_t number)
{
    for (size_t i = 0; i < trace->n_threads; i++)
        if (trace->threads[i].number == number)
            return &trace->threads[i];
    struct rg_trace_thread *threads =
        realloc(trace->threads, (trace->n_threads + 1) * sizeof *trace->threads);
    if (!threads)
        return NULL;
    trace->threads = threads;
    threads[trace->n_threads] = (struct rg_trace_thread){.number = number};
    return &threads[trace->n_threads++];
}

static void read_exchange(struct cursor *in, struct rg_trace_item *item)
{
    item->seq = get(in, UINT64_MAX);
    item->sent = get(in, BYTES_MAX);
    item->received = get(in, BYTES_MAX);
    item->code = (uint32_t)get(in, WAYS_MAX);
    item->size = (uint32_t)get(in, WAYS_MAX);
}

static void read_item(const struct rg_trace *trace, struct cursor *in, struct rg_trace_item *item,
                      uint64_t *time, uint64_t *seq)
{
    *item = (struct rg_trace_item){.kind = (uint8_t)get(in, RG_TRACE_EXCHANGE)};
    item->start = *time = get_since(in, *time, TIME_MAX);
    uint64_t codes = 0;
    switch (item->kind) {
    case RG_TRACE_CALL:
    case RG_TRACE_WAIT:
        item->duration = get(in, TIME_MAX);
        codes = item->kind == RG_TRACE_CALL ? trace->functions.n + 1 : 1u << 20; /* + 1: no call */
        break;
    case RG_TRACE_POST:
        item->server = (uint8_t)get(in, RG_SERVERS_MAX - 1);
        item->seq = *seq = get_since(in, *seq, UINT64_MAX);
        codes = trace->operations.n;
        break;
    case RG_TRACE_POLL:
        item->server = (uint8_t)get(in, RG_SERVERS_MAX - 1);
        item->duration = get(in, TIME_MAX);
        codes = 2;
        break;
    case RG_TRACE_SAVED:
        codes = trace->optimisations.n;
        break;
    case RG_TRACE_EXCHANGE:
        read_exchange(in, item);
        return;
    default:
        in->bad = true;
    }
    item->code = (uint32_t)get(in, UINT32_MAX);
    if (item->code >= codes)
        in->bad = true;
    if (item->kind == RG_TRACE_POLL) {
        item->size = (uint32_t)get(in, 1);
        item->seq = get(in, UINT64_MAX);
    }
    if (item->kind == RG_TRACE_SAVED || item->kind == RG_TRACE_POLL)
        return;
    if (item->kind == RG_TRACE_POST)
        item->size = (uint32_t)get(in, UINT32_MAX);
    item->sent = get(in, BYTES_MAX);
    item->received = get(in, BYTES_MAX);
}

static bool read_thread(struct rg_trace *trace, struct cursor *in)
{
    const uint64_t number = get(in, UINT32_MAX),
                   n = get(in, left(in) / 3); /* an event has 3 bytes at least */
    struct rg_trace_thread *thread = in->bad ? NULL : find_thread(trace, number);
    if (!thread || trace->n_threads > RG_TRACE_NAMES_MAX ||
        !grow((void **)&thread->items, thread->n, &thread->capacity, n, sizeof *thread->items))
        return false;
    uint64_t time = 0, seq = 0;
    for (uint64_t i = 0; i < n && !in->bad; i++)
        read_item(trace, in, &thread->items[thread->n++], &time, &seq);
    trace->events += n;
    return true;
}

static void read_time(const struct rg_trace *trace, struct cursor *in, struct rg_time *out,
                      const struct rg_time *before)
{
    out->seq = get_since(in, before->seq, UINT64_MAX);
    out->op = (uint16_t)get(in, UINT16_MAX);
    out->flags = (uint16_t)get(in, UINT16_MAX);
    out->result = (int32_t)get_since(in, 0, UINT64_MAX);
    out->begin = get_since(in, before->begin, TIME_MAX * 2);
    out->served = out->begin + get(in, TIME_MAX);
    const uint64_t reply = get(in, TIME_MAX);
    out->reply = reply ? out->begin + reply - 1 : 0;
    out->sent = reply ? out->reply + get(in, TIME_MAX) : 0;
    out->end = out->flags & RG_TIME_END ? get_since(in, out->begin, TIME_MAX * 2) : 0;
    out->stream = get(in, UINT64_MAX) ^ before->stream;
    out->event = get(in, UINT64_MAX) ^ before->event;
    if (out->op >= trace->operations.n)
        in->bad = true;
}

static bool read_times(struct rg_trace *trace, struct cursor *in)
{
    struct rg_trace_server *server = &trace->servers[get(in, RG_SERVERS_MAX - 1)];
    const uint64_t n = get(in, left(in) / 9); /* a record has so many bytes at least */
    if (in->bad ||
        !grow((void **)&server->times, server->n_times, &server->times_capacity, n, sizeof *server->times))
        return false;
    struct rg_time before = {0};
    for (uint64_t i = 0; i < n && !in->bad; i++) {
        struct rg_time *time = &server->times[server->n_times++];
        read_time(trace, in, time, &before);
        before = *time;
    }
    return true;
}

static bool read_end(struct rg_trace *trace, struct cursor *in)
{
    const uint64_t events = get(in, UINT64_MAX);
    trace->events_dropped = get(in, UINT64_MAX);
    const uint64_t times = get(in, UINT64_MAX);
    trace->times_dropped = get(in, UINT64_MAX);
    trace->elapsed = get(in, TIME_MAX);
    trace->sent = get(in, BYTES_MAX);
    trace->received = get(in, BYTES_MAX);
    trace->round_trips = get(in, UINT64_MAX);
    trace->repeated = get(in, BYTES_MAX);
    uint64_t n_times = 0;
    for (size_t i = 0; i < RG_SERVERS_MAX; i++)
        n_times += trace->servers[i].n_times;
    return events == trace->events && times == n_times;
}

/* What threads did is of servers that the file names. */
static bool servers_are_known(const struct rg_trace *trace)
{
    for (size_t i = 0; i < trace->n_threads; i++)
        for (size_t j = 0; j < trace->threads[i].n; j++)
            if (trace->threads[i].items[j].server >= trace->n_servers)
                return false;
    return trace->n_servers > 0;
}

/* --- the file ------------------------------------------------------------------------------------------- */

static int by_seq(const void *a, const void *b)
{
    const struct rg_time *x = a, *y = b;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Reads one block; *end: it was the last. */
static enum rg_status read_block(struct rg_trace *trace, const unsigned char **at, const unsigned char *limit,
                                 bool *end, char *why, size_t why_size)
{
    static bool (*const readers[])(struct rg_trace *, struct cursor *) = {
        [RG_TRACE_NAMES] = read_names,   [RG_TRACE_PROGRAM] = read_program, [RG_TRACE_SERVER] = read_server,
        [RG_TRACE_THREAD] = read_thread, [RG_TRACE_TIMES] = read_times,     [RG_TRACE_END] = read_end,
    };
    struct rg_trace_block block;
    if ((size_t)(limit - *at) < sizeof block)
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "it is not whole (the program may still run, or did not end by exit); record it again");
    memcpy(&block, *at, sizeof block);
    *at += sizeof block;
    if (block.type == 0 || block.type > RG_TRACE_END || block.size > RG_TRACE_BLOCK_MAX)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is damaged (a block of kind %u with %llu bytes)",
                         block.type, (unsigned long long)block.size);
    if (block.size > (uint64_t)(limit - *at))
        return RG_FAILED(
            RG_ERR_INVALID, why, why_size,
            "it is not whole (the program may still run, or did not end by exit); record it again");
    struct cursor in = {*at, *at + block.size, false};
    *at += block.size;
    if (rg_crc32(0, in.at, block.size) != block.crc)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is damaged (a checksum is wrong)");
    if (!readers[block.type](trace, &in) || in.bad || in.at != in.end)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is damaged (a block of kind %u makes no sense)",
                         block.type);
    *end = block.type == RG_TRACE_END;
    return RG_OK;
}

enum rg_status rg_trace_parse(const void *data, size_t size, struct rg_trace *trace, char *why,
                              size_t why_size)
{
    *trace = (struct rg_trace){0};
    const unsigned char *at = data, *const limit = at + size;
    struct rg_trace_head head;
    if (size < sizeof head)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is not a trace of remote-gpu run --record");
    memcpy(&head, at, sizeof head);
    if (memcmp(head.magic, RG_TRACE_MAGIC, sizeof head.magic) != 0)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is not a trace of remote-gpu run --record");
    if (head.version != RG_TRACE_VERSION)
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "it has version %u, and this remote-gpu reads version %u; record it again",
                         head.version, RG_TRACE_VERSION);
    at += sizeof head;
    for (bool end = false; !end;) {
        RG_TRY(read_block(trace, &at, limit, &end, why, why_size));
    }
    if (at != limit)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is damaged (there is something behind its end)");
    if (!trace->program || !trace->n_threads)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "the program that was recorded has not used the GPU");
    if (!servers_are_known(trace))
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it is damaged (it does not name its servers)");
    for (size_t i = 0; i < trace->n_servers; i++)
        if (trace->servers[i].n_times)
            qsort(trace->servers[i].times, trace->servers[i].n_times, sizeof *trace->servers[i].times,
                  by_seq);
    return RG_OK;
}

static void free_list(struct rg_trace_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->names[i]);
        if (list->classes)
            free(list->classes[i]);
    }
    free(list->names);
    free(list->classes);
}

void rg_trace_free(struct rg_trace *trace)
{
    free_list(&trace->functions);
    free_list(&trace->operations);
    free_list(&trace->optimisations);
    free(trace->program);
    for (size_t i = 0; i < RG_SERVERS_MAX; i++) {
        free(trace->servers[i].name);
        free(trace->servers[i].transport);
        free(trace->servers[i].device);
        free(trace->servers[i].times);
    }
    for (size_t i = 0; i < trace->n_threads; i++)
        free(trace->threads[i].items);
    free(trace->threads);
    *trace = (struct rg_trace){0};
}
