/*
 * watch.c - the watch: first all keys below the prefix by a range, then a stream of what changes from the next revision on.
 *
 * The stream is one HTTP request whose answer does not end, a JSON object a line. When it breaks, or calls have found its
 * endpoint not to answer, it is asked for again from the revision behind the last that was told; where etcd has thrown that
 * away (compaction), everything is told anew.
 */
#include "pool/etcd/internal.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "pool/etcd/events.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS 200000000ull

enum phase {
    ABSENT,  /* nothing is under way; `again_ns` says when */
    READING, /* the range */
    STREAMING,
};

struct rg_etcd_watch_state {
    struct rg_etcd *etcd;
    struct rg_etcd_watcher watcher;
    char *prefix;
    enum phase phase;
    bool known; /* `revision` has been told */
    int64_t revision;
    uint64_t again_ns;
    struct rg_etcd_transfer transfer;
    char *body;
    struct rg_etcd_text line;
    bool cancelled; /* etcd has ended the stream */
    char why[RG_ETCD_WHY];
};

static void later(struct rg_etcd_watch_state *watch)
{
    watch->phase = ABSENT;
    watch->again_ns = rg_now_ns() + AGAIN_NS;
}

/* --- the stream --------------------------------------------------------------------------------------------- */

static void take_line(struct rg_etcd_watch_state *watch, const char *text, size_t size)
{
    switch (rg_etcd_tell_line(text, size, watch->prefix, &watch->watcher, &watch->revision)) {
    case RG_ETCD_LINE_NOTHING:
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

static void stream_ended(struct rg_etcd_transfer *transfer, CURLcode code)
{
    struct rg_etcd_watch_state *watch = transfer->data;
    if (code != CURLE_OK && !watch->cancelled)
        rg_etcd_give_up(watch->etcd, transfer->endpoint);
    drop_stream(watch);
    later(watch);
}

static void stream(struct rg_etcd_watch_state *watch)
{
    json_t *body = json_pack("{s:{s:o, s:o, s:o}}", "create_request", "key", rg_etcd_bytes(watch->prefix),
                             "range_end", rg_etcd_prefix_end(watch->prefix), "start_revision",
                             rg_etcd_number(watch->revision < INT64_MAX ? watch->revision + 1 : INT64_MAX));
    watch->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    watch->cancelled = false;
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

static void range_done(void *data, enum rg_status status, const json_t *reply, const char *why)
{
    struct rg_etcd_watch_state *watch = data;
    snprintf(watch->why, sizeof watch->why, "%s", status == RG_OK ? "" : why);
    if (status != RG_OK) {
        later(watch);
        return;
    }
    watch->watcher.reset(watch->watcher.data);
    rg_etcd_tell_pairs(json_object_get(reply, "kvs"), watch->prefix, &watch->watcher);
    watch->revision = rg_etcd_get_number(json_object_get(reply, "header"), "revision");
    watch->known = true;
    watch->watcher.whole(watch->watcher.data, watch->revision);
    stream(watch);
}

static void begin(struct rg_etcd_watch_state *watch)
{
    if (watch->known) {
        stream(watch);
        return;
    }
    watch->phase = READING;
    rg_etcd_call(watch->etcd, "/v3/kv/range",
                 json_pack("{s:o, s:o}", "key", rg_etcd_bytes(watch->prefix), "range_end",
                           rg_etcd_prefix_end(watch->prefix)),
                 range_done, watch);
}

const char *rg_etcd_watch_why(const struct rg_etcd *etcd)
{
    return etcd->watch ? etcd->watch->why : "";
}

bool rg_etcd_watch(struct rg_etcd *etcd, const char *prefix, const struct rg_etcd_watcher *watcher)
{
    struct rg_etcd_watch_state *watch = calloc(1, sizeof *watch);
    char *copy = strdup(prefix);
    if (!watch || !copy) {
        free(watch);
        free(copy);
        return false;
    }
    *watch = (struct rg_etcd_watch_state){.etcd = etcd, .watcher = *watcher, .prefix = copy};
    etcd->watch = watch;
    return true;
}

int rg_etcd_watch_look(struct rg_etcd *etcd)
{
    struct rg_etcd_watch_state *watch = etcd->watch;
    if (!watch)
        return -1;
    if (watch->phase == STREAMING && watch->transfer.endpoint != etcd->current) {
        drop_stream(watch); /* calls have found that it does not answer */
        watch->phase = ABSENT;
        watch->again_ns = 0;
    }
    const uint64_t now = rg_now_ns();
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
    free(watch->prefix);
    free(watch);
    etcd->watch = NULL;
}
