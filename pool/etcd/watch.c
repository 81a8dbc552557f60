/*
 * watch.c - the watch: first all keys of the ranges, at one revision, then a stream of what changes from the next revision on.
 *
 * The stream is one HTTP request whose answer does not end, a JSON object a line; its body asks for a watch of each range. When it
 * breaks, or calls have found its endpoint not to answer, etcd is asked whether it still has what was told last (rewind.c), and the stream
 * for again from the revision behind that. Where etcd has thrown that away (compaction), where it cannot be told, or there are several
 * ranges, of which one may have been told less than another, everything is read anew, and so it is where etcd does not say of each that
 * it is watched.
 */
#include "pool/etcd/internal.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "pool/etcd/events.h"
#include "pool/etcd/ranges.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS   200000000ull
#define CREATED_NS 2000000000ull /* that etcd needs at most to say that it watches */
#define AT_ONCE    120u          /* ranges read by a transaction: etcd's have 128 operations at most */

enum phase {
    ABSENT,  /* nothing is under way; `again_ns` says when */
    READING, /* the range, or whether etcd has what was told */
    STREAMING,
};

struct rg_etcd_watch_state {
    struct rg_etcd *etcd;
    struct rg_etcd_watcher watcher, told; /* `told`: the same, noted on the way */
    char *prefix;
    struct rg_etcd_keys *ranges;
    uint32_t n_ranges;
    enum phase phase;
    bool stale; /* other ranges have been asked for since the reading began */
    bool known; /* `revision` has been told */
    bool broke; /* since then the stream has broken: etcd may have been given another past */
    int64_t revision;
    uint64_t again_ns;
    uint32_t n_read; /* ranges, while reading */
    json_t *read;    /* likewise: etcd's answers about them */
    struct rg_etcd_transfer transfer;
    char *body;
    struct rg_etcd_text line;
    bool cancelled;   /* etcd has ended the stream */
    uint32_t created; /* ranges that etcd has said it watches */
    uint64_t begun_ns;
    char why[RG_ETCD_WHY];
};

static void later(struct rg_etcd_watch_state *watch)
{
    watch->phase = ABSENT;
    watch->again_ns = rg_now_ns() + AGAIN_NS;
}

static void note_put(void *data, const struct rg_etcd_pair *pair)
{
    struct rg_etcd_watch_state *watch = data;
    rg_etcd_past_put(watch->etcd, pair);
    watch->watcher.put(watch->watcher.data, pair);
}

static void note_removed(void *data, const char *key)
{
    struct rg_etcd_watch_state *watch = data;
    watch->watcher.removed(watch->watcher.data, key);
}

static void note_whole(void *data, int64_t revision)
{
    struct rg_etcd_watch_state *watch = data;
    rg_etcd_past_told(watch->etcd, revision);
    watch->watcher.whole(watch->watcher.data, revision);
}

/* --- the stream --------------------------------------------------------------------------------------------- */

static void take_line(struct rg_etcd_watch_state *watch, const char *text, size_t size)
{
    switch (rg_etcd_tell_line(text, size, watch->prefix, &watch->told, &watch->revision)) {
    case RG_ETCD_LINE_NOTHING:
        break;
    case RG_ETCD_LINE_CREATED:
        watch->created++;
        break;
    case RG_ETCD_LINE_TOLD:
        watch->etcd->told = true;
        break;
    case RG_ETCD_LINE_COMPACTED:
        watch->known = false;
        watch->cancelled = true;
        break;
    case RG_ETCD_LINE_ENDED:
        watch->cancelled = true;
        break;
    }
}

static size_t stream_received(struct rg_etcd_transfer *transfer, const char *data, size_t size)
{
    struct rg_etcd_watch_state *watch = transfer->data;
    if (!rg_etcd_append(&watch->line, data, size))
        return 0;
    for (char *end; !watch->cancelled && (end = memchr(watch->line.data, '\n', watch->line.size)) != NULL;) {
        const size_t used = (size_t)(end - watch->line.data) + 1;
        take_line(watch, watch->line.data, used);
        watch->line.size -= used;
        memmove(watch->line.data, end + 1, watch->line.size);
    }
    return watch->cancelled ? 0 : size;
}

static void drop_stream(struct rg_etcd_watch_state *watch)
{
    rg_etcd_transfer_cancel(watch->etcd, &watch->transfer);
    free(watch->body);
    free(watch->line.data);
    watch->body = NULL;
    watch->line = (struct rg_etcd_text){0};
}

static void broken(struct rg_etcd_watch_state *watch)
{
    drop_stream(watch);
    watch->broke = true;
}

static void stream_ended(struct rg_etcd_transfer *transfer, CURLcode code)
{
    struct rg_etcd_watch_state *watch = transfer->data;
    if (code != CURLE_OK && !watch->cancelled)
        rg_etcd_give_up(watch->etcd, transfer->endpoint);
    broken(watch);
    later(watch);
}

/* What asks for a watch of each range; NULL: no memory. */
static char *stream_body(const struct rg_etcd_watch_state *watch)
{
    const int64_t from = watch->revision < INT64_MAX ? watch->revision + 1 : INT64_MAX;
    struct rg_etcd_text text = {0};
    bool good = true;
    for (uint32_t i = 0; i < watch->n_ranges && good; i++) {
        json_t *wanted = rg_etcd_keys_json(&watch->ranges[i]);
        (void)json_object_set_new(wanted, "start_revision", rg_etcd_number(from));
        json_t *one = json_pack("{s:o}", "create_request", wanted);
        RG_CLEANUP_FREE char *line = one ? json_dumps(one, JSON_COMPACT) : NULL;
        json_decref(one);
        good = line && rg_etcd_append(&text, line, strlen(line)) && rg_etcd_append(&text, "\n", 1);
    }
    if (good)
        return text.data;
    free(text.data);
    return NULL;
}

static void stream(struct rg_etcd_watch_state *watch)
{
    watch->body = stream_body(watch);
    watch->cancelled = false;
    watch->created = 0;
    watch->begun_ns = rg_now_ns();
    watch->transfer.received = stream_received;
    watch->transfer.ended = stream_ended;
    watch->transfer.data = watch;
    if (watch->body && rg_etcd_transfer_begin(watch->etcd, &watch->transfer, "/v3/watch", watch->body, 0)) {
        watch->phase = STREAMING;
        return;
    }
    drop_stream(watch);
    later(watch);
}

/* --- everything --------------------------------------------------------------------------------------------- */

static void begin(struct rg_etcd_watch_state *watch);
static void read_ranges(struct rg_etcd_watch_state *watch);

static void tell_everything(struct rg_etcd_watch_state *watch)
{
    const json_t *reply, *one;
    size_t i, j;
    watch->watcher.reset(watch->watcher.data);
    json_array_foreach(watch->read, i, reply) json_array_foreach(json_object_get(reply, "responses"), j, one)
        rg_etcd_tell_pairs(json_object_get(json_object_get(one, "response_range"), "kvs"), watch->prefix,
                           &watch->told);
    watch->known = true;
    note_whole(watch, watch->revision);
}

static void forget_read(struct rg_etcd_watch_state *watch)
{
    json_decref(watch->read);
    watch->read = NULL;
    watch->n_read = 0;
}

static void range_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_etcd_watch_state *watch = data;
    const uint32_t answers = (uint32_t)json_array_size(json_object_get(reply, "responses"));
    const bool good = answers > 0 && json_array_append(watch->read, (json_t *)(uintptr_t)reply) == 0;
    snprintf(watch->why, sizeof watch->why, "%s", status == RG_OK ? "" : why);
    if (good && !watch->stale) {
        if (!watch->n_read)
            watch->revision = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
        watch->n_read += answers;
        if (watch->n_read < watch->n_ranges) {
            read_ranges(watch);
            return;
        }
        tell_everything(watch);
    }
    forget_read(watch);
    watch->phase = ABSENT;
    if (good)
        begin(watch);
    else
        later(watch);
}

/* Those that have not been read yet, as many as a transaction takes, all of them as they were at the revision of the first. */
static void read_ranges(struct rg_etcd_watch_state *watch)
{
    json_t *reads = json_array();
    for (uint32_t i = watch->n_read; i < watch->n_ranges && i < watch->n_read + AT_ONCE; i++) {
        json_t *range = rg_etcd_keys_json(&watch->ranges[i]);
        if (watch->n_read)
            (void)json_object_set_new(range, "revision", rg_etcd_number(watch->revision));
        json_array_append_new(reads, json_pack("{s:o}", "request_range", range));
    }
    rg_etcd_call(watch->etcd, "/v3/kv/txn", json_pack("{s:o}", "success", reads), range_done, watch);
}

/* Whether etcd still has what was told last. */
static void past_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_etcd_watch_state *watch = data;
    watch->phase = ABSENT;
    if (status != RG_OK && status != RG_ERR_REFUSED) {
        snprintf(watch->why, sizeof watch->why, "%s", why);
        later(watch);
        return;
    }
    watch->broke = false;
    if (status == RG_OK && watch->known && !rg_etcd_past_is_there(watch->etcd, reply)) {
        rg_etcd_watch_rewound(watch->etcd);
        return;
    }
    /* it cannot be told, as by the revision's having been thrown away; or what was told of one range may be less than of another */
    watch->known = watch->known && status == RG_OK && watch->n_ranges == 1;
    begin(watch);
}

/* False: there is no need, or no way. */
static bool ask_past(struct rg_etcd_watch_state *watch)
{
    json_t *question =
        watch->known && watch->broke ? rg_etcd_past_question(watch->etcd, watch->revision) : NULL;
    watch->known = watch->known && (question || !watch->broke);
    watch->broke = watch->broke && question;
    if (!question)
        return false;
    watch->phase = READING;
    watch->stale = false;
    rg_etcd_call(watch->etcd, "/v3/kv/range", question, past_done, watch);
    return true;
}

static void begin(struct rg_etcd_watch_state *watch)
{
    if (ask_past(watch))
        return;
    if (watch->known) {
        stream(watch);
        return;
    }
    watch->phase = READING;
    watch->stale = false;
    watch->read = json_array();
    read_ranges(watch);
}

const char *rg_etcd_watch_why(const struct rg_etcd *etcd)
{
    return etcd->watch ? etcd->watch->why : "";
}

bool rg_etcd_watch_ranges(struct rg_etcd *etcd, const struct rg_etcd_range *ranges, uint32_t n)
{
    struct rg_etcd_watch_state *watch = etcd->watch;
    const uint32_t wanted = n ? n : 1;
    struct rg_etcd_keys *copy =
        wanted <= RG_ETCD_RANGES_MAX ? rg_etcd_keys_new(watch->prefix, ranges, n) : NULL;
    if (!copy)
        return false;
    rg_etcd_keys_free(watch->ranges, watch->n_ranges);
    watch->ranges = copy;
    watch->n_ranges = wanted;
    watch->known = false;
    if (watch->phase == READING) {
        watch->stale = true;
        return true;
    }
    drop_stream(watch);
    watch->phase = ABSENT;
    watch->again_ns = 0;
    return true;
}

void rg_etcd_watch_rewound(struct rg_etcd *etcd)
{
    struct rg_etcd_watch_state *watch = etcd->watch;
    if (!watch)
        return;
    rg_warn("etcd at %s has another past than before, as when a backup has been restored: all is read anew",
            rg_etcd_endpoint(etcd));
    watch->known = watch->broke = false;
    if (watch->phase == READING) {
        watch->stale = true;
    } else {
        drop_stream(watch);
        watch->phase = ABSENT;
        watch->again_ns = 0;
    }
    if (watch->watcher.rewound)
        watch->watcher.rewound(watch->watcher.data);
}

bool rg_etcd_watch(struct rg_etcd *etcd, const char *prefix, const struct rg_etcd_watcher *watcher)
{
    struct rg_etcd_watch_state *watch = calloc(1, sizeof *watch);
    char *copy = strdup(prefix);
    if (watch && copy) {
        *watch = (struct rg_etcd_watch_state){.etcd = etcd, .watcher = *watcher, .prefix = copy};
        watch->told = (struct rg_etcd_watcher){
            .put = note_put, .removed = note_removed, .whole = note_whole, .data = watch};
        etcd->watch = watch;
        if (rg_etcd_watch_ranges(etcd, NULL, 0))
            return true;
        etcd->watch = NULL;
    }
    free(watch);
    free(copy);
    return false;
}

int rg_etcd_watch_look(struct rg_etcd *etcd)
{
    struct rg_etcd_watch_state *watch = etcd->watch;
    if (!watch)
        return -1;
    if (watch->phase == STREAMING && watch->transfer.endpoint != etcd->current) {
        broken(watch); /* calls have found that it does not answer */
        watch->phase = ABSENT;
        watch->again_ns = 0;
    }
    const uint64_t now = rg_now_ns();
    /* a gateway that has lost a part of the body: what is read again and again is true as well */
    const bool partly = watch->phase == STREAMING && watch->created < watch->n_ranges && watch->n_ranges > 1;
    if (partly && now >= watch->begun_ns + CREATED_NS) {
        broken(watch);
        watch->phase = ABSENT;
        watch->again_ns = 0;
    } else if (partly) {
        return (int)((watch->begun_ns + CREATED_NS - now) / 1000000u) + 1;
    }
    if (watch->phase == ABSENT && now >= watch->again_ns)
        begin(watch);
    return watch->phase == ABSENT && watch->again_ns > now ? (int)((watch->again_ns - now) / 1000000u) + 1
                                                           : -1;
}

void rg_etcd_watch_end(struct rg_etcd *etcd)
{
    struct rg_etcd_watch_state *watch = etcd->watch;
    if (!watch)
        return;
    drop_stream(watch);
    forget_read(watch);
    rg_etcd_keys_free(watch->ranges, watch->n_ranges);
    free(watch->prefix);
    free(watch);
    etcd->watch = NULL;
}
