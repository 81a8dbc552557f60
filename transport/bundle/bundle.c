/* bundle.c - the connections of a bundle: adding, opening, ending. See bundle.h. */
#include "transport/bundle/bundle.h"

#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "transport/bundle/inside.h"

#include <stdlib.h>
#include <string.h>

enum {
    LANE_MS = 30000,       /* how long a lane that a message names may take to come */
    UNLANED_MAX = 1 << 20, /* bulk bytes over the first connection before one more is opened */
    RAIL_PIECE = 1 << 20,
    FIRST_TRY_BYTES = 64 << 20, /* before a second lane is tried */
};

void rg_bundle_interrupt(struct bundle *b)
{
    pthread_mutex_lock(&b->lock);
    b->interrupted = true;
    if (b->send_failed == RG_OK)
        b->send_failed = RG_ERR_CLOSED;
    const unsigned n = atomic_load(&b->n_lanes);
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    rg_conn_interrupt(b->first);
    for (unsigned i = 0; i < n; i++) /* under the lock: a rail's connection may be exchanged */
        if (b->lanes[i].conn)
            rg_conn_interrupt(b->lanes[i].conn);
    pthread_mutex_unlock(&b->lock);
}

void rg_bundle_break(struct bundle *b, const struct lane *lane, enum rg_status status, const char *doing)
{
    pthread_mutex_lock(&b->lock);
    const bool known = b->interrupted || b->send_failed != RG_OK;
    if (b->send_failed == RG_OK)
        b->send_failed = status == RG_ERR_CLOSED ? RG_ERR_LOST : status;
    pthread_mutex_unlock(&b->lock);
    if (known)
        return;
    if (lane)
        rg_warn("a connection for bulk data to %s is lost while %s (%s)", b->head.peer, doing,
                rg_status_string(status));
    if (lane)
        rg_bundle_interrupt(b);
}

enum rg_status rg_bundle_lanes_parse(const char *text, unsigned *out, bool *adaptive, char *why,
                                     size_t why_size)
{
    int64_t number = RG_BUNDLE_LANES;
    const bool automatic = !*text || strcmp(text, "auto") == 0;
    if (!automatic && rg_parse_integer(text, 0, RG_BUNDLE_LANES, &number, NULL, 0) != RG_OK) {
        rg_explain(why, why_size, "'%s' is neither auto nor a number up to %d", text, RG_BUNDLE_LANES);
        return RG_ERR_INVALID;
    }
    *out = (unsigned)number;
    *adaptive = automatic;
    return RG_OK;
}

unsigned rg_codecs_here(void)
{
    return (rg_codec_available(RG_COMPRESS_LZ4) ? 1u : 0) | (rg_codec_available(RG_COMPRESS_ZSTD) ? 2u : 0);
}

void rg_codecs_agree(unsigned asked, unsigned there, struct rg_bundle_options *out)
{
    out->compress = RG_COMPRESS_NONE;
    out->codecs = 0;
    if (asked == RG_COMPRESS_NONE || asked > RG_COMPRESS_AUTO)
        return;
    out->codecs = there & rg_codecs_here();
    const bool possible =
        asked == RG_COMPRESS_AUTO ? out->codecs != 0 : (out->codecs >> (asked - 1) & 1) != 0;
    if (possible)
        out->compress = (enum rg_compression)asked;
}

/* --- lanes --- */

enum rg_status rg_bundle_add(struct rg_conn *conn, struct rg_conn *lane)
{
    struct bundle *b = (struct bundle *)conn;
    if (b->options.rails)
        return rg_rails_add(b, lane, RG_BUNDLE_ANY);
    pthread_mutex_lock(&b->lock);
    const unsigned n = atomic_load(&b->n_lanes);
    const bool room = n < b->options.lanes && !b->ending, interrupted = b->interrupted;
    if (room) {
        b->lanes[n].conn = lane;
        atomic_store_explicit(&b->n_lanes, n + 1, memory_order_release);
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    if (room && interrupted)
        rg_conn_interrupt(lane);
    return room ? RG_OK : RG_ERR_LIMIT;
}

enum rg_status rg_bundle_add_rail(struct rg_conn *conn, struct rg_conn *rail, unsigned index)
{
    struct bundle *b = (struct bundle *)conn;
    return b->options.rails ? rg_rails_add(b, rail, index) : RG_ERR_UNSUPPORTED;
}

struct lane *rg_bundle_lane(struct bundle *b, unsigned index)
{
    if (index < atomic_load_explicit(&b->n_lanes, memory_order_acquire))
        return &b->lanes[index];
    const uint64_t until = rg_now_ns() + LANE_MS * 1000000ull;
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&b->lock);
    while (index >= atomic_load(&b->n_lanes) && !b->interrupted && !b->gave_up && error == 0)
        error = pthread_cond_timedwait(&b->changed, &b->lock, &time);
    const bool there = index < atomic_load(&b->n_lanes);
    pthread_mutex_unlock(&b->lock);
    return there ? &b->lanes[index] : NULL;
}

static void *opener_main(void *arg)
{
    struct bundle *b = arg;
    pthread_mutex_lock(&b->lock);
    while (b->wanted > atomic_load(&b->n_lanes) && !b->gave_up && !b->interrupted && !b->ending) {
        pthread_mutex_unlock(&b->lock);
        struct rg_conn *lane = b->options.open(b->options.user, atomic_load(&b->n_lanes));
        const bool added = lane && rg_bundle_add(&b->head, lane) == RG_OK;
        if (lane && !added)
            rg_conn_destroy(lane);
        pthread_mutex_lock(&b->lock);
        b->gave_up = !added;
    }
    b->opening = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

void rg_bundle_want(struct bundle *b, unsigned lanes, uint64_t unlaned)
{
    if (lanes > b->options.lanes)
        lanes = b->options.lanes;
    pthread_mutex_lock(&b->lock);
    b->unlaned += unlaned;
    if (!lanes && b->unlaned >= UNLANED_MAX)
        lanes = b->options.adaptive && !b->options.rails ? 1 : b->options.lanes;
    if (lanes > b->wanted)
        b->wanted = lanes;
    const bool rails = b->options.rails && b->options.open && b->wanted && !b->opener_started;
    const bool start = b->options.open && !b->options.rails && b->wanted > atomic_load(&b->n_lanes) &&
                       !b->opening && !b->gave_up && !b->interrupted && !b->ending;
    const bool join = start && b->opener_started; /* it has done all but return */
    if (start)
        b->opening = true;
    pthread_mutex_unlock(&b->lock);
    if (rails)
        rg_bundle_keep(b);
    if (join)
        pthread_join(b->opener, NULL);
    if (!start)
        return;
    const bool started = rg_thread_create(&b->opener, "rg-lanes", opener_main, b) == RG_OK;
    pthread_mutex_lock(&b->lock);
    b->opener_started = started;
    if (!started)
        b->opening = false, b->gave_up = true;
    pthread_mutex_unlock(&b->lock);
}

void rg_bundle_keep(struct bundle *b)
{
    pthread_mutex_lock(&b->lock);
    if (!b->opener_started && !b->interrupted && !b->ending) {
        b->opening = b->opener_started = rg_thread_create(&b->opener, "rg-rails", rg_rails_keep, b) == RG_OK;
        b->gave_up |= !b->opener_started;
    }
    pthread_mutex_unlock(&b->lock);
}

/* --- the operations --- */

static void bundle_interrupt(struct rg_conn *conn)
{
    rg_bundle_interrupt((struct bundle *)conn);
}

static void bundle_reset(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    const unsigned n = atomic_load(&b->n_lanes);
    rg_conn_reset(b->first);
    for (unsigned i = 0; i < n; i++) {
        struct lane *lane = &b->lanes[i];
        pthread_mutex_lock(&b->lock);
        struct rg_conn *lane_conn = lane->conn;
        lane->users += lane_conn != NULL; /* a rail's connection may be exchanged, but not while it is used */
        pthread_mutex_unlock(&b->lock);
        if (!lane_conn)
            continue;
        rg_conn_reset(lane_conn);
        pthread_mutex_lock(&b->lock);
        lane->users--;
        pthread_cond_broadcast(&b->changed);
        pthread_cond_broadcast(&b->keep);
        pthread_mutex_unlock(&b->lock);
    }
}

static void bundle_destroy(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    rg_bundle_end_threads(b);
    if (b->opener_started)
        pthread_join(b->opener, NULL);
    if (b->options.done)
        b->options.done(b->options.user);
    if (b->options.rails)
        rg_rails_end(b);
    for (unsigned i = 0; i < RG_BUNDLE_LANES; i++) {
        struct lane *lane = &b->lanes[i];
        rg_conn_destroy(lane->conn);
        pthread_cond_destroy(&lane->wake);
        free(lane->plain);
        free(lane->packed);
        free(lane->unpacked);
        free(lane->arrived);
    }
    rg_conn_destroy(b->first);
    rg_press_fini(&b->press);
    pthread_cond_destroy(&b->changed);
    pthread_cond_destroy(&b->keep);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->memory_lock);
    free(b->memory);
    free(b);
}

static void bundle_set_read_ahead(struct rg_conn *conn)
{
    rg_conn_set_read_ahead(((struct bundle *)conn)->first);
}

static bool bundle_has_credit(struct rg_conn *conn)
{
    return rg_conn_has_credit(((struct bundle *)conn)->first);
}

static void bundle_set_tether(struct rg_conn *conn, const struct rg_conn *tether)
{
    rg_conn_set_tether(((struct bundle *)conn)->first, tether);
}

static int bundle_fd(const struct rg_conn *conn)
{
    return rg_conn_fd(((const struct bundle *)conn)->first);
}

static void bundle_abandon(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    const unsigned n =
        atomic_load(&b->n_lanes); /* without the lock: another thread of the parent may have had it */
    rg_conn_abandon(b->first);
    for (unsigned i = 0; i < n; i++)
        if (b->lanes[i].conn)
            rg_conn_abandon(b->lanes[i].conn);
}

static enum rg_status bundle_register(struct rg_conn *conn, void *base, size_t size)
{
    struct bundle *b = (struct bundle *)conn;
    return b->options.rails ? rg_rails_register(b, base, size) : rg_conn_register(b->first, base, size);
}

static void bundle_unregister(struct rg_conn *conn, void *base)
{
    struct bundle *b = (struct bundle *)conn;
    if (b->options.rails)
        rg_rails_unregister(b, base);
    else
        rg_conn_unregister(b->first, base);
}

static unsigned bundle_device_paths(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    return b->options.rails ? rg_rails_device_paths(b) : 0;
}

static enum rg_status bundle_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                             uint64_t offset)
{
    struct bundle *b = (struct bundle *)conn;
    return b->options.rails ? rg_rails_register_device(b, base, size, fd, offset) : RG_ERR_UNSUPPORTED;
}

static bool bundle_places(struct rg_conn *conn, const void *memory, size_t size)
{
    struct bundle *b = (struct bundle *)conn;
    if (!b->options.rails)
        return false;
    return b->apart ? rg_rails_places(b, memory, size) : rg_conn_places(b->first, memory, size);
}

static enum rg_status bundle_lend(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                  size_t size)
{
    struct bundle *b = (struct bundle *)conn;
    return b->options.rails ? rg_rails_lend(b, tag, base, memory, size) : RG_ERR_UNSUPPORTED;
}

static void bundle_unlend(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct bundle *b = (struct bundle *)conn;
    if (b->options.rails)
        rg_rails_unlend(b, tag, memory);
}

static enum rg_status bundle_take_lent(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    struct bundle *b = (struct bundle *)conn;
    if (!b->options.rails || b->recv_failed != RG_OK)
        return b->recv_failed;
    if (b->apart)
        return rg_rails_take_lent(b, most, memory, size);
    const enum rg_status status = rg_conn_take_lent(b->first, most, memory, size);
    if (*size) {
        pthread_mutex_lock(&b->lock);
        rg_rails_lent_is_back(&b->first_loans, *memory);
        pthread_mutex_unlock(&b->lock);
    }
    return status;
}

static bool bundle_has_room(struct rg_conn *conn, size_t size)
{
    return rg_conn_has_room(((struct bundle *)conn)->first, size);
}

static void bundle_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct bundle *b = (struct bundle *)(uintptr_t)conn;
    const unsigned n = atomic_load(&b->n_lanes);
    rg_conn_get_statistics(b->first, out);
    pthread_mutex_lock(&b->lock);
    out->bulk_copied_sent += b->past.bulk_copied_sent;
    out->bulk_copied_received += b->past.bulk_copied_received;
    out->bulk_direct_sent += b->past.bulk_direct_sent;
    out->bulk_direct_received += b->past.bulk_direct_received;
    out->rails = b->options.rails;
    out->striped = atomic_load(&b->stripe.on);
    out->lost_lanes = b->lost;
    out->returned_lanes = b->returned;
    for (unsigned i = 0; i < n; i++) {
        struct rg_conn_statistics lane;
        if (!b->lanes[i].conn)
            continue;
        rg_conn_get_statistics(b->lanes[i].conn, &lane);
        out->bulk_copied_sent += lane.bulk_copied_sent;
        out->bulk_copied_received += lane.bulk_copied_received;
        out->bulk_direct_sent += lane.bulk_direct_sent;
        out->bulk_direct_received += lane.bulk_direct_received;
        out->lanes += !b->lanes[i].dropped;
    }
    pthread_mutex_unlock(&b->lock);
    out->compressed_from = atomic_load(&b->pressed_from);
    out->compressed_to = atomic_load(&b->pressed_to);
}

static struct rg_transport_ops bundle_ops = {
    .name = "bundle",
    .send = rg_bundle_send,
    .is_apart = rg_bundle_is_apart,
    .send_head = rg_bundle_send_head,
    .send_tail = rg_bundle_send_tail,
    .recv = rg_bundle_recv,
    .recv_bulk = rg_bundle_recv_bulk,
    .interrupt = bundle_interrupt,
    .reset = bundle_reset,
    .destroy = bundle_destroy,
    .set_read_ahead = bundle_set_read_ahead,
    .has_credit = bundle_has_credit,
    .set_tether = bundle_set_tether,
    .fd = bundle_fd,
    .abandon = bundle_abandon,
    .register_memory = bundle_register,
    .unregister_memory = bundle_unregister,
    .device_paths = bundle_device_paths,
    .register_device = bundle_register_device,
    .places = bundle_places,
    .lend = bundle_lend,
    .unlend = bundle_unlend,
    .take_lent = bundle_take_lent,
    .has_room = bundle_has_room,
    .statistics = bundle_statistics,
};

void rg_bundle_open(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    if (conn->ops != &bundle_ops)
        return;
    rg_bundle_want(b, b->options.lanes, 0);
    pthread_mutex_lock(&b->lock);
    while (b->opening && !b->opened)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

unsigned rg_bundle_lanes(struct rg_conn *conn)
{
    struct bundle *b = (struct bundle *)conn;
    if (conn->ops != &bundle_ops)
        return 0;
    if (!b->options.rails)
        return atomic_load(&b->n_lanes);
    pthread_mutex_lock(&b->lock);
    const unsigned living = rg_rails_living(b);
    pthread_mutex_unlock(&b->lock);
    return living;
}

unsigned rg_bundle_rails(const struct rg_conn *conn)
{
    return conn->rails;
}

static pthread_once_t completed = PTHREAD_ONCE_INIT;

static void complete(void)
{
    rg_transport_complete(&bundle_ops, true);
}

enum rg_status rg_bundle_wrap(struct rg_conn *first, const struct rg_bundle_options *options,
                              struct rg_conn **out)
{
    struct bundle *b = calloc(1, sizeof *b);
    if (!b)
        return RG_ERR_NO_MEMORY;
    pthread_once(&completed, complete);
    b->first = first;
    b->options = *options;
    if (b->options.lanes > RG_BUNDLE_LANES)
        b->options.lanes = RG_BUNDLE_LANES;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->memory_lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &attributes);
    pthread_cond_init(&b->keep, &attributes);
    pthread_condattr_destroy(&attributes);
    for (unsigned i = 0; i < RG_BUNDLE_LANES; i++) {
        b->lanes[i].bundle = b;
        pthread_cond_init(&b->lanes[i].wake, NULL);
        b->lanes[i].dropped = b->lanes[i].closed = b->lanes[i].reader_ended = options->rails;
    }
    atomic_init(&b->n_lanes,
                options->rails ? b->options.lanes : 0); /* they are numbered, and come as they do */
    b->turn = 1;
    atomic_init(&b->active, b->options.adaptive && !b->options.rails ? 1 : b->options.lanes);
    b->growth.rest = FIRST_TRY_BYTES;
    rg_press_init(&b->press, options->rails ? RG_COMPRESS_NONE : options->compress);
    b->head.ops = &bundle_ops;
    b->head.rails = options->rails ? b->options.lanes : 0;
    b->head.caps = first->caps & (RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_FD | RG_CAP_ASKS |
                                  (options->rails ? RG_CAP_LENDS : 0u));
    if (options->rails && (first->caps & RG_CAP_ASKS)) { /* each rail gets as much as one alone would */
        b->head.piece_least = b->options.lanes * RAIL_PIECE;
        if (b->head.piece_least > RG_BULK_MAX)
            b->head.piece_least = RG_BULK_MAX;
    }
    memcpy(b->head.transport, first->transport, sizeof b->head.transport);
    memcpy(b->head.peer, first->peer, sizeof b->head.peer);
    *out = &b->head;
    return RG_OK;
}
