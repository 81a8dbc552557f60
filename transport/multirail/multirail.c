/*
 * multirail.c - the operations of a connection with rails that are of no other file, its making and its end.
 */
#include "transport/multirail/multirail.h"

#include "common/sync/scoped_lock.h"
#include "transport/multirail/internal.h"

#include <stdlib.h>

enum { RAIL_PIECE = 1 << 20 };

static void multirail_reset(struct rg_conn *conn)
{
    struct multirail *m = (struct multirail *)conn;
    rg_conn_reset(m->f.first);
    for (unsigned i = 0; i < m->options.rails; i++) {
        struct rail *rail = &m->rails[i];
        pthread_mutex_lock(&m->f.lock);
        struct rg_conn *rail_conn = rail->base.conn;
        rail->users += rail_conn != NULL; /* the connection may be exchanged, but not while it is used */
        pthread_mutex_unlock(&m->f.lock);
        if (!rail_conn)
            continue;
        rg_conn_reset(rail_conn);
        pthread_mutex_lock(&m->f.lock);
        rail->users--;
        pthread_cond_broadcast(&m->f.changed);
        pthread_cond_broadcast(&m->f.upkeep);
        pthread_mutex_unlock(&m->f.lock);
    }
}

static void multirail_destroy(struct rg_conn *conn)
{
    struct multirail *m = (struct multirail *)conn;
    rg_fanout_end_threads(&m->f);
    if (m->opener_started)
        pthread_join(m->opener, NULL);
    if (m->options.done)
        m->options.done(m->options.user);
    rg_rails_end(m);
    rg_multirail_memory_end(m);
    rg_fanout_fini(&m->f);
    pthread_mutex_destroy(&m->memory_lock);
    free(m->memory);
    free(m);
}

static bool multirail_has_advertised(struct rg_conn *conn, size_t size)
{
    return rg_conn_has_advertised(((struct multirail *)conn)->f.first, size);
}

static void multirail_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    struct multirail *m = (struct multirail *)(uintptr_t)conn;
    rg_conn_get_statistics(m->f.first, out);
    RG_SCOPED_LOCK(&m->f.lock);
    rg_statistics_add(out, &m->past);
    out->rails = true;
    out->striped = atomic_load(&m->striping);
    out->lost_rails = m->lost;
    out->returned_rails = m->returned;
    out->channels = rg_rails_living(m);
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].base.conn)
            rg_fanout_add_statistics(out, m->rails[i].base.conn);
}

static void multirail_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    struct multirail *m = (struct multirail *)(uintptr_t)conn;
    rg_conn_security(m->f.first, out);
    RG_SCOPED_LOCK(&m->f.lock);
    for (unsigned i = 0; i < m->options.rails; i++)
        if (m->rails[i].base.conn)
            rg_fanout_add_security(out, m->rails[i].base.conn);
}

static bool multirail_channel_progress(const struct rg_conn *conn, unsigned place,
                                       struct rg_conn_progress *out)
{
    struct multirail *m = (struct multirail *)(uintptr_t)conn;
    RG_SCOPED_LOCK(&m->f.lock);
    if (place >= m->options.rails)
        return false;
    *out = (struct rg_conn_progress){0};
    if (!m->rails[place].base.dropped)
        rg_conn_progress(m->rails[place].base.conn, out);
    return true;
}

static bool multirail_give_up_channel(struct rg_conn *conn, unsigned place)
{
    return rg_rail_give_up((struct multirail *)conn, place);
}

static struct rg_transport_ops multirail_ops = {
    .name = "multirail",
    .send = rg_multirail_send,
    .send_detached = rg_multirail_send_detached,
    .recv = rg_multirail_recv,
    .recv_bulk = rg_multirail_recv_bulk,
    .interrupt = rg_fanout_op_interrupt,
    .reset = multirail_reset,
    .destroy = multirail_destroy,
    .set_read_ahead = rg_fanout_op_set_read_ahead,
    .has_credit = rg_fanout_op_has_credit,
    .set_control = rg_fanout_op_set_control,
    .fd = rg_fanout_op_fd,
    .abandon = rg_fanout_op_abandon,
    .register_memory = rg_multirail_register,
    .unregister_memory = rg_multirail_unregister,
    .device_paths = rg_multirail_device_paths,
    .register_device = rg_multirail_register_device,
    .writes_directly = rg_multirail_writes_directly,
    .advertise = rg_multirail_advertise,
    .withdraw = rg_multirail_withdraw,
    .take_advertised = rg_multirail_take_advertised,
    .has_advertised = multirail_has_advertised,
    .channel_progress = multirail_channel_progress,
    .give_up_channel = multirail_give_up_channel,
    .statistics = multirail_statistics,
    .security = multirail_security,
    .tls_export = rg_fanout_op_tls_export,
    .tls_exporter = rg_fanout_op_tls_exporter,
};

void rg_multirail_open(struct rg_conn *conn)
{
    struct multirail *m = (struct multirail *)conn;
    if (conn->ops != &multirail_ops)
        return;
    rg_rails_want(m, m->options.rails, 0);
    RG_SCOPED_LOCK(&m->f.lock);
    while (m->opening && !m->opened)
        pthread_cond_wait(&m->f.changed, &m->f.lock);
}

unsigned rg_multirail_count(struct rg_conn *conn)
{
    struct multirail *m = (struct multirail *)conn;
    if (conn->ops != &multirail_ops)
        return 0;
    RG_SCOPED_LOCK(&m->f.lock);
    return rg_rails_living(m);
}

static void complete(void)
{
    rg_transport_complete(&multirail_ops, true);
}

enum rg_status rg_multirail_wrap(struct rg_conn *first, const struct rg_multirail_options *options,
                                 struct rg_conn **out)
{
    static pthread_once_t completed = PTHREAD_ONCE_INIT;
    struct multirail *m = calloc(1, sizeof *m);
    if (!m)
        return RG_ERR_NO_MEMORY;
    pthread_once(&completed, complete);
    m->options = *options;
    if (m->options.rails > RG_MULTIRAIL_MAX)
        m->options.rails = RG_MULTIRAIL_MAX;
    rg_fanout_init(&m->f, &rg_multirail_kind, first, m->options.rails);
    for (unsigned i = 0; i < m->options.rails; i++) {
        rg_fanout_add_channel(&m->f, &m->rails[i].base, i);
        m->rails[i].base.dropped = m->rails[i].closed = m->rails[i].reader_ended = true;
    }
    atomic_init(&m->f.n_channels, m->options.rails); /* they are numbered, and come as they do */
    pthread_mutex_init(&m->memory_lock, NULL);
    struct rg_conn *head = &m->f.head;
    head->ops = &multirail_ops;
    head->rails = m->options.rails;
    head->caps |= first->caps & RG_CAP_ADVERTISES;
    if (first->caps & RG_CAP_ASKS) { /* each rail gets as much as one alone would */
        const size_t least = m->options.rails * RAIL_PIECE;
        head->piece_least = least < RG_BULK_MAX ? least : RG_BULK_MAX;
    }
    *out = head;
    return RG_OK;
}
