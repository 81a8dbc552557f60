/* multipath.c - the connections of a multipath: adding, opening, ending. See multipath.h. */
#include "transport/multipath/multipath.h"

#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "transport/multipath/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHANNEL_MS = 30000,          /* how long a channel that a message names may take to come */
    BULK_ON_FIRST_MAX = 1 << 20, /* bulk bytes over the first connection before one more is opened */
    RAIL_PIECE = 1 << 20,
    FIRST_TRY_BYTES = 64 << 20, /* before a second channel is tried */
};

void rg_multipath_interrupt(struct multipath *b)
{
    pthread_mutex_lock(&b->lock);
    b->interrupted = true;
    if (b->send_failed == RG_OK)
        b->send_failed = RG_ERR_CLOSED;
    const unsigned n = atomic_load(&b->n_channels);
    pthread_cond_broadcast(&b->changed);
    pthread_cond_broadcast(&b->keep);
    rg_conn_interrupt(b->first);
    for (unsigned i = 0; i < n; i++) /* under the lock: a rail's connection may be exchanged */
        if (b->channels[i].conn)
            rg_conn_interrupt(b->channels[i].conn);
    pthread_mutex_unlock(&b->lock);
}

void rg_multipath_break(struct multipath *b, const struct channel *channel, enum rg_status status,
                        const char *doing)
{
    pthread_mutex_lock(&b->lock);
    const bool known = b->interrupted || b->send_failed != RG_OK;
    if (b->send_failed == RG_OK)
        b->send_failed = status == RG_ERR_CLOSED ? RG_ERR_LOST : status;
    pthread_mutex_unlock(&b->lock);
    if (known)
        return;
    if (channel)
        rg_warn("a connection for bulk data to %s is lost while %s (%s)", b->head.peer, doing,
                rg_status_string(status));
    if (channel)
        rg_multipath_interrupt(b);
}

enum rg_status rg_multipath_channels_parse(const char *text, unsigned *out, bool *adaptive, char *why,
                                           size_t why_size)
{
    int64_t number = RG_MULTIPATH_CHANNELS;
    const bool automatic = !*text || strcmp(text, "auto") == 0;
    if (!automatic && rg_parse_integer(text, 0, RG_MULTIPATH_CHANNELS, &number, NULL, 0) != RG_OK) {
        rg_explain(why, why_size, "'%s' is neither auto nor a number up to %d", text, RG_MULTIPATH_CHANNELS);
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

void rg_codecs_agree(unsigned asked, unsigned there, struct rg_multipath_options *out)
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

/* --- channels --- */

enum rg_status rg_multipath_add(struct rg_conn *conn, struct rg_conn *channel)
{
    struct multipath *b = (struct multipath *)conn;
    if (b->options.rails)
        return rg_multirail_add(b, channel, RG_MULTIPATH_ANY);
    pthread_mutex_lock(&b->lock);
    const unsigned n = atomic_load(&b->n_channels);
    const bool room = n < b->options.channels && !b->ending, interrupted = b->interrupted;
    if (room) {
        b->channels[n].conn = channel;
        atomic_store_explicit(&b->n_channels, n + 1, memory_order_release);
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    if (room && interrupted)
        rg_conn_interrupt(channel);
    return room ? RG_OK : RG_ERR_LIMIT;
}

enum rg_status rg_multipath_add_rail(struct rg_conn *conn, struct rg_conn *rail, unsigned index)
{
    struct multipath *b = (struct multipath *)conn;
    return b->options.rails ? rg_multirail_add(b, rail, index) : RG_ERR_UNSUPPORTED;
}

struct channel *rg_multipath_channel(struct multipath *b, unsigned index)
{
    if (index < atomic_load_explicit(&b->n_channels, memory_order_acquire))
        return &b->channels[index];
    const uint64_t until = rg_now_ns() + CHANNEL_MS * 1000000ull;
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&b->lock);
    while (index >= atomic_load(&b->n_channels) && !b->interrupted && !b->gave_up && error == 0)
        error = pthread_cond_timedwait(&b->changed, &b->lock, &time);
    const bool there = index < atomic_load(&b->n_channels);
    pthread_mutex_unlock(&b->lock);
    return there ? &b->channels[index] : NULL;
}

static void *opener_main(void *arg)
{
    struct multipath *b = arg;
    pthread_mutex_lock(&b->lock);
    while (b->wanted > atomic_load(&b->n_channels) && !b->gave_up && !b->interrupted && !b->ending) {
        pthread_mutex_unlock(&b->lock);
        struct rg_conn *channel = b->options.open(b->options.user, atomic_load(&b->n_channels));
        const bool added = channel && rg_multipath_add(&b->head, channel) == RG_OK;
        if (channel && !added)
            rg_conn_destroy(channel);
        pthread_mutex_lock(&b->lock);
        b->gave_up = !added;
    }
    b->opening = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

void rg_multipath_want(struct multipath *b, unsigned channels, uint64_t bulk_on_first)
{
    if (channels > b->options.channels)
        channels = b->options.channels;
    pthread_mutex_lock(&b->lock);
    b->bulk_on_first += bulk_on_first;
    if (!channels && b->bulk_on_first >= BULK_ON_FIRST_MAX)
        channels = b->options.adaptive && !b->options.rails ? 1 : b->options.channels;
    if (channels > b->wanted)
        b->wanted = channels;
    const bool rails = b->options.rails && b->options.open && b->wanted && !b->opener_started;
    const bool start = b->options.open && !b->options.rails && b->wanted > atomic_load(&b->n_channels) &&
                       !b->opening && !b->gave_up && !b->interrupted && !b->ending;
    const bool join = start && b->opener_started; /* it has done all but return */
    if (start)
        b->opening = true;
    pthread_mutex_unlock(&b->lock);
    if (rails)
        rg_multipath_keep(b);
    if (join)
        pthread_join(b->opener, NULL);
    if (!start)
        return;
    const bool started = rg_thread_create(&b->opener, "rg-channels", opener_main, b) == RG_OK;
    pthread_mutex_lock(&b->lock);
    b->opener_started = started;
    if (!started)
        b->opening = false, b->gave_up = true;
    pthread_mutex_unlock(&b->lock);
}

void rg_multipath_keep(struct multipath *b)
{
    pthread_mutex_lock(&b->lock);
    if (!b->opener_started && !b->interrupted && !b->ending) {
        b->opening = b->opener_started =
            rg_thread_create(&b->opener, "rg-rails", rg_multirail_keep, b) == RG_OK;
        b->gave_up |= !b->opener_started;
    }
    pthread_mutex_unlock(&b->lock);
}

/* --- the operations --- */

static void multipath_interrupt(struct rg_conn *conn)
{
    rg_multipath_interrupt((struct multipath *)conn);
}

static void multipath_reset(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    const unsigned n = atomic_load(&b->n_channels);
    rg_conn_reset(b->first);
    for (unsigned i = 0; i < n; i++) {
        struct channel *channel = &b->channels[i];
        pthread_mutex_lock(&b->lock);
        struct rg_conn *channel_conn = channel->conn;
        channel->users +=
            channel_conn != NULL; /* a rail's connection may be exchanged, but not while it is used */
        pthread_mutex_unlock(&b->lock);
        if (!channel_conn)
            continue;
        rg_conn_reset(channel_conn);
        pthread_mutex_lock(&b->lock);
        channel->users--;
        pthread_cond_broadcast(&b->changed);
        pthread_cond_broadcast(&b->keep);
        pthread_mutex_unlock(&b->lock);
    }
}

static void multipath_destroy(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    rg_multipath_end_threads(b);
    if (b->opener_started)
        pthread_join(b->opener, NULL);
    if (b->options.done)
        b->options.done(b->options.user);
    if (b->options.rails)
        rg_multirail_end(b);
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++) {
        struct channel *channel = &b->channels[i];
        rg_conn_destroy(channel->conn);
        pthread_cond_destroy(&channel->wake);
        free(channel->plain);
        free(channel->packed);
        free(channel->unpacked);
        free(channel->arrived);
    }
    rg_conn_destroy(b->first);
    rg_compression_policy_fini(&b->policy);
    pthread_cond_destroy(&b->changed);
    pthread_cond_destroy(&b->keep);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->memory_lock);
    free(b->memory);
    free(b);
}

static void multipath_set_read_ahead(struct rg_conn *conn)
{
    rg_conn_set_read_ahead(((struct multipath *)conn)->first);
}

static bool multipath_has_credit(struct rg_conn *conn)
{
    return rg_conn_has_credit(((struct multipath *)conn)->first);
}

static void multipath_set_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    rg_conn_set_control(((struct multipath *)conn)->first, control_conn);
}

static int multipath_fd(const struct rg_conn *conn)
{
    return rg_conn_fd(((const struct multipath *)conn)->first);
}

static void multipath_abandon(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    const unsigned n =
        atomic_load(&b->n_channels); /* without the lock: another thread of the parent may have had it */
    rg_conn_abandon(b->first);
    for (unsigned i = 0; i < n; i++)
        if (b->channels[i].conn)
            rg_conn_abandon(b->channels[i].conn);
}

static enum rg_status multipath_register(struct rg_conn *conn, void *base, size_t size)
{
    struct multipath *b = (struct multipath *)conn;
    return b->options.rails ? rg_multirail_register(b, base, size) : rg_conn_register(b->first, base, size);
}

static void multipath_unregister(struct rg_conn *conn, void *base)
{
    struct multipath *b = (struct multipath *)conn;
    if (b->options.rails)
        rg_multirail_unregister(b, base);
    else
        rg_conn_unregister(b->first, base);
}

static unsigned multipath_device_paths(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    return b->options.rails ? rg_multirail_device_paths(b) : 0;
}

static enum rg_status multipath_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                                uint64_t offset)
{
    struct multipath *b = (struct multipath *)conn;
    return b->options.rails ? rg_multirail_register_device(b, base, size, fd, offset) : RG_ERR_UNSUPPORTED;
}

static bool multipath_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    struct multipath *b = (struct multipath *)conn;
    if (!b->options.rails)
        return false;
    return b->out_of_band ? rg_multirail_writes_directly(b, memory, size)
                          : rg_conn_writes_directly(b->first, memory, size);
}

static enum rg_status multipath_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                          size_t size)
{
    struct multipath *b = (struct multipath *)conn;
    return b->options.rails ? rg_multirail_advertise(b, tag, base, memory, size) : RG_ERR_UNSUPPORTED;
}

static void multipath_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    struct multipath *b = (struct multipath *)conn;
    if (b->options.rails)
        rg_multirail_withdraw(b, tag, memory);
}

static enum rg_status multipath_take_advertised(struct rg_conn *conn, size_t most, void **memory,
                                                size_t *size)
{
    struct multipath *b = (struct multipath *)conn;
    if (!b->options.rails || b->recv_failed != RG_OK)
        return b->recv_failed;
    if (b->out_of_band)
        return rg_multirail_take_advertised(b, most, memory, size);
    const enum rg_status status = rg_conn_take_advertised(b->first, most, memory, size);
    if (*size) {
        pthread_mutex_lock(&b->lock);
        rg_multirail_advertised_is_back(&b->first_adverts, *memory);
        pthread_mutex_unlock(&b->lock);
    }
    return status;
}

static bool multipath_has_advertised(struct rg_conn *conn, size_t size)
{
    return rg_conn_has_advertised(((struct multipath *)conn)->first, size);
}

static void multipath_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct multipath *b = (struct multipath *)(uintptr_t)conn;
    const unsigned n = atomic_load(&b->n_channels);
    rg_conn_get_statistics(b->first, out);
    pthread_mutex_lock(&b->lock);
    out->bulk_copied_sent += b->past.bulk_copied_sent;
    out->bulk_copied_received += b->past.bulk_copied_received;
    out->bulk_direct_sent += b->past.bulk_direct_sent;
    out->bulk_direct_received += b->past.bulk_direct_received;
    out->rails = b->options.rails;
    out->striped = atomic_load(&b->striping.on);
    out->lost_rails = b->lost;
    out->returned_rails = b->returned;
    for (unsigned i = 0; i < n; i++) {
        struct rg_conn_statistics channel;
        if (!b->channels[i].conn)
            continue;
        rg_conn_get_statistics(b->channels[i].conn, &channel);
        out->bulk_copied_sent += channel.bulk_copied_sent;
        out->bulk_copied_received += channel.bulk_copied_received;
        out->bulk_direct_sent += channel.bulk_direct_sent;
        out->bulk_direct_received += channel.bulk_direct_received;
        out->channels += !b->channels[i].dropped;
    }
    pthread_mutex_unlock(&b->lock);
    out->compressed_from = atomic_load(&b->pressed_from);
    out->compressed_to = atomic_load(&b->pressed_to);
}

static struct rg_transport_ops multipath_ops = {
    .name = "multipath",
    .send = rg_multipath_send,
    .send_detached = rg_multipath_send_detached,
    .recv = rg_multipath_recv,
    .recv_bulk = rg_multipath_recv_bulk,
    .interrupt = multipath_interrupt,
    .reset = multipath_reset,
    .destroy = multipath_destroy,
    .set_read_ahead = multipath_set_read_ahead,
    .has_credit = multipath_has_credit,
    .set_control = multipath_set_control,
    .fd = multipath_fd,
    .abandon = multipath_abandon,
    .register_memory = multipath_register,
    .unregister_memory = multipath_unregister,
    .device_paths = multipath_device_paths,
    .register_device = multipath_register_device,
    .writes_directly = multipath_writes_directly,
    .advertise = multipath_advertise,
    .withdraw = multipath_withdraw,
    .take_advertised = multipath_take_advertised,
    .has_advertised = multipath_has_advertised,
    .statistics = multipath_statistics,
};

void rg_multipath_open(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    if (conn->ops != &multipath_ops)
        return;
    rg_multipath_want(b, b->options.channels, 0);
    pthread_mutex_lock(&b->lock);
    while (b->opening && !b->opened)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

unsigned rg_multipath_channels(struct rg_conn *conn)
{
    struct multipath *b = (struct multipath *)conn;
    if (conn->ops != &multipath_ops)
        return 0;
    if (!b->options.rails)
        return atomic_load(&b->n_channels);
    pthread_mutex_lock(&b->lock);
    const unsigned living = rg_multirail_living(b);
    pthread_mutex_unlock(&b->lock);
    return living;
}

unsigned rg_multipath_rails(const struct rg_conn *conn)
{
    return conn->rails;
}

static pthread_once_t completed = PTHREAD_ONCE_INIT;

static void complete(void)
{
    rg_transport_complete(&multipath_ops, true);
}

enum rg_status rg_multipath_wrap(struct rg_conn *first, const struct rg_multipath_options *options,
                                 struct rg_conn **out)
{
    struct multipath *b = calloc(1, sizeof *b);
    if (!b)
        return RG_ERR_NO_MEMORY;
    pthread_once(&completed, complete);
    b->first = first;
    b->options = *options;
    if (b->options.channels > RG_MULTIPATH_CHANNELS)
        b->options.channels = RG_MULTIPATH_CHANNELS;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->memory_lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &attributes);
    pthread_cond_init(&b->keep, &attributes);
    pthread_condattr_destroy(&attributes);
    for (unsigned i = 0; i < RG_MULTIPATH_CHANNELS; i++) {
        b->channels[i].multipath = b;
        pthread_cond_init(&b->channels[i].wake, NULL);
        b->channels[i].dropped = b->channels[i].closed = b->channels[i].reader_ended = options->rails;
    }
    atomic_init(&b->n_channels,
                options->rails ? b->options.channels : 0); /* they are numbered, and come as they do */
    b->turn = 1;
    atomic_init(&b->active, b->options.adaptive && !b->options.rails ? 1 : b->options.channels);
    b->channel_count.rest = FIRST_TRY_BYTES;
    rg_compression_policy_init(&b->policy, options->rails ? RG_COMPRESS_NONE : options->compress);
    b->head.ops = &multipath_ops;
    b->head.rails = options->rails ? b->options.channels : 0;
    b->head.caps = first->caps & (RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_FD | RG_CAP_ASKS |
                                  (options->rails ? RG_CAP_ADVERTISES : 0u));
    if (options->rails && (first->caps & RG_CAP_ASKS)) { /* each rail gets as much as one alone would */
        b->head.piece_least = b->options.channels * RAIL_PIECE;
        if (b->head.piece_least > RG_BULK_MAX)
            b->head.piece_least = RG_BULK_MAX;
    }
    memcpy(b->head.transport, first->transport, sizeof b->head.transport);
    memcpy(b->head.peer, first->peer, sizeof b->head.peer);
    *out = &b->head;
    return RG_OK;
}
