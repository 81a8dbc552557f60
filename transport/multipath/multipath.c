/*
 * multipath.c - the channels of a multipath: adding, opening, ending. See multipath.h.
 *
 * A thread opens channels while fewer are there than somebody wants; what it cannot open is not asked for
 * again, or, where there are rails, some time later.
 */
#include "transport/multipath/multipath.h"

#include "common/base/clock.h"
#include "common/base/parse.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"
#include "transport/multipath/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHANNEL_MS = 30000,         /* how long a channel that a message names may take to come */
    FIRST_TRY_BYTES = 64 << 20, /* before a second channel is tried */
};

enum rg_status rg_multipath_channels_parse(const char *text, unsigned *out, bool *adaptive, char *why,
                                           size_t why_size)
{
    int64_t number = RG_MULTIPATH_CHANNELS;
    const bool automatic = !*text || strcmp(text, "auto") == 0;
    if (!automatic && rg_parse_integer(text, 0, RG_MULTIPATH_CHANNELS, &number, NULL, 0) != RG_OK)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "'%s' is neither auto nor a number up to %d", text,
                         RG_MULTIPATH_CHANNELS);
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
    struct multipath *m = (struct multipath *)conn;
    pthread_mutex_lock(&m->f.lock);
    const unsigned n = atomic_load(&m->f.n_channels);
    const bool fits = n < m->options.channels && !m->f.ending, interrupted = m->f.interrupted;
    if (fits) {
        m->paths[n].base.conn = channel;
        atomic_store_explicit(&m->f.n_channels, n + 1, memory_order_release);
        pthread_cond_broadcast(&m->f.changed);
    }
    pthread_mutex_unlock(&m->f.lock);
    if (fits && interrupted)
        rg_conn_interrupt(channel);
    return fits ? RG_OK : RG_ERR_LIMIT;
}

struct path *rg_multipath_path(struct multipath *m, unsigned index)
{
    if (index < atomic_load_explicit(&m->f.n_channels, memory_order_acquire))
        return &m->paths[index];
    const uint64_t until = rg_now_ns() + CHANNEL_MS * 1000000ull;
    const struct timespec time = rg_timespec(until);
    int error = 0;
    RG_SCOPED_LOCK(&m->f.lock);
    while (index >= atomic_load(&m->f.n_channels) && !m->f.interrupted && !m->gave_up && error == 0)
        error = pthread_cond_timedwait(&m->f.changed, &m->f.lock, &time);
    const bool there = index < atomic_load(&m->f.n_channels);
    return there ? &m->paths[index] : NULL;
}

static void *opener_main(void *arg)
{
    struct multipath *m = arg;
    pthread_mutex_lock(&m->f.lock);
    while (m->f.wanted > atomic_load(&m->f.n_channels) && !m->gave_up && !m->f.interrupted && !m->f.ending) {
        pthread_mutex_unlock(&m->f.lock);
        struct rg_conn *channel = m->options.open(m->options.user, atomic_load(&m->f.n_channels));
        const bool added = channel && rg_multipath_add(&m->f.head, channel) == RG_OK;
        if (channel && !added)
            rg_conn_destroy(channel);
        pthread_mutex_lock(&m->f.lock);
        m->gave_up = !added;
        m->gave_up_ns = rg_now_ns();
    }
    m->opening = false;
    pthread_cond_broadcast(&m->f.changed);
    pthread_mutex_unlock(&m->f.lock);
    return NULL;
}

void rg_multipath_want(struct multipath *m, unsigned channels, uint64_t bulk_on_first)
{
    if (channels > m->options.channels)
        channels = m->options.channels;
    pthread_mutex_lock(&m->f.lock);
    m->f.bulk_on_first += bulk_on_first;
    if (!channels && m->f.bulk_on_first >= RG_FANOUT_BULK_ON_FIRST)
        channels = m->options.adaptive ? 1 : m->options.channels;
    if (channels > m->f.wanted)
        m->f.wanted = channels;
    if (m->gave_up && m->options.again_ns && !m->opening &&
        rg_now_ns() - m->gave_up_ns >= m->options.again_ns)
        m->gave_up = false;
    const bool start = m->options.open && m->f.wanted > atomic_load(&m->f.n_channels) && !m->opening &&
                       !m->gave_up && !m->f.interrupted && !m->f.ending;
    const bool join = start && m->opener_started; /* it has done all but return */
    if (start)
        m->opening = true;
    pthread_mutex_unlock(&m->f.lock);
    if (join)
        pthread_join(m->opener, NULL);
    if (!start)
        return;
    const bool started = rg_thread_create(&m->opener, "rg-channels", opener_main, m) == RG_OK;
    pthread_mutex_lock(&m->f.lock);
    m->opener_started = started;
    if (!started)
        m->opening = false, m->gave_up = true;
    pthread_mutex_unlock(&m->f.lock);
}

/* --- the operations --- */

static void multipath_reset(struct rg_conn *conn)
{
    struct multipath *m = (struct multipath *)conn;
    const unsigned n = atomic_load(&m->f.n_channels);
    rg_conn_reset(m->f.first);
    for (unsigned i = 0; i < n; i++)
        rg_conn_reset(m->paths[i].base.conn);
}

static void multipath_destroy(struct rg_conn *conn)
{
    struct multipath *m = (struct multipath *)conn;
    rg_fanout_end_threads(&m->f);
    if (m->opener_started)
        pthread_join(m->opener, NULL);
    if (m->options.done)
        m->options.done(m->options.user);
    for (unsigned i = 0; i < RG_FANOUT_CHANNELS; i++) {
        free(m->paths[i].plain);
        free(m->paths[i].packed);
        free(m->paths[i].unpacked);
        free(m->paths[i].arrived);
    }
    rg_fanout_fini(&m->f);
    rg_compression_policy_fini(&m->policy);
    free(m);
}

static enum rg_status multipath_register(struct rg_conn *conn, void *base, size_t size)
{
    return rg_conn_register(((struct multipath *)conn)->f.first, base, size);
}

static void multipath_unregister(struct rg_conn *conn, void *base)
{
    rg_conn_unregister(((struct multipath *)conn)->f.first, base);
}

static unsigned rail_of(const struct multipath *m, unsigned place)
{
    return m->options.rail_of ? m->options.rail_of(m->options.user, place) : 0;
}

static void multipath_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct multipath *m = (struct multipath *)(uintptr_t)conn;
    rg_conn_get_statistics(m->f.first, out);
    out->channels = atomic_load(&m->f.n_channels);
    rg_statistics_on_rail(out, rail_of(m, 0));
    for (unsigned i = 0; i < out->channels; i++) {
        struct rg_conn_statistics one;
        rg_conn_get_statistics(m->paths[i].base.conn, &one);
        rg_statistics_on_rail(&one, rail_of(m, 1 + i));
        rg_statistics_add(out, &one);
    }
    out->compressed_from = atomic_load(&m->compressed_from);
    out->compressed_to = atomic_load(&m->compressed_to);
}

static void multipath_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    struct multipath *m = (struct multipath *)(uintptr_t)conn;
    const unsigned channels = atomic_load(&m->f.n_channels);
    rg_conn_security(m->f.first, out);
    for (unsigned i = 0; i < channels; i++)
        rg_fanout_add_security(out, m->paths[i].base.conn);
}

static bool multipath_channel_progress(const struct rg_conn *conn, unsigned place,
                                       struct rg_conn_progress *out)
{
    struct rg_fanout *f = (struct rg_fanout *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&f->lock);
    if (place >= atomic_load(&f->n_channels))
        return false;
    *out = (struct rg_conn_progress){0};
    if (!f->channels[place]->dropped)
        rg_conn_progress(f->channels[place]->conn, out);
    return true;
}

static bool multipath_rests(const struct rg_conn *conn)
{
    return rg_conn_rests(((const struct multipath *)conn)->f.first);
}

static struct rg_transport_ops multipath_ops = {
    .name = "multipath",
    .send = rg_multipath_send,
    .send_detached = rg_multipath_send_detached,
    .recv = rg_multipath_recv,
    .rests = multipath_rests,
    .recv_bulk = rg_multipath_recv_bulk,
    .interrupt = rg_fanout_op_interrupt,
    .reset = multipath_reset,
    .destroy = multipath_destroy,
    .set_read_ahead = rg_fanout_op_set_read_ahead,
    .has_credit = rg_fanout_op_has_credit,
    .set_control = rg_fanout_op_set_control,
    .fd = rg_fanout_op_fd,
    .abandon = rg_fanout_op_abandon,
    .register_memory = multipath_register,
    .unregister_memory = multipath_unregister,
    .channel_progress = multipath_channel_progress,
    .statistics = multipath_statistics,
    .security = multipath_security,
    .tls_export = rg_fanout_op_tls_export,
    .tls_exporter = rg_fanout_op_tls_exporter,
};

unsigned rg_multipath_channels(const struct rg_conn *conn)
{
    return conn->ops == &multipath_ops ? atomic_load(&((const struct multipath *)conn)->f.n_channels) : 0;
}

static void complete(void)
{
    rg_transport_complete(&multipath_ops, true);
}

enum rg_status rg_multipath_wrap(struct rg_conn *first, const struct rg_multipath_options *options,
                                 struct rg_conn **out)
{
    static pthread_once_t completed = PTHREAD_ONCE_INIT;
    struct multipath *m = calloc(1, sizeof *m);
    if (!m)
        return RG_ERR_NO_MEMORY;
    pthread_once(&completed, complete);
    m->options = *options;
    if (m->options.channels > RG_MULTIPATH_CHANNELS)
        m->options.channels = RG_MULTIPATH_CHANNELS;
    rg_fanout_init(&m->f, &rg_multipath_kind, first, m->options.channels);
    for (unsigned i = 0; i < m->options.channels; i++)
        rg_fanout_add_channel(&m->f, &m->paths[i].base, i);
    if (m->options.adaptive)
        atomic_init(&m->f.active, 1);
    m->more_channels.rest = FIRST_TRY_BYTES;
    rg_compression_policy_init(&m->policy, options->compress);
    m->f.head.ops = &multipath_ops;
    *out = &m->f.head;
    return RG_OK;
}
