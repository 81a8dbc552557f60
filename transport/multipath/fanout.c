/*
 * fanout.c - what a connection over several has in common: making and ending, and operations that are those
 * of the first.
 *
 * Threads: as those of a connection; an interrupt may come from any.
 */
#include "transport/multipath/fanout.h"

#include "common/base/clock.h"
#include "common/sync/scoped_lock.h"

#include <string.h>

void rg_fanout_init(struct rg_fanout *f, const struct rg_fanout_kind *kind, struct rg_conn *first,
                    unsigned most)
{
    f->kind = kind;
    f->first = first;
    f->most = most;
    f->turn = 1;
    pthread_mutex_init(&f->lock, NULL);
    rg_cond_init(&f->changed);
    rg_cond_init(&f->upkeep);
    atomic_init(&f->n_channels, 0);
    atomic_init(&f->active, most);
    f->head.caps = first->caps & (RG_CAP_ZERO_COPY_SEND | RG_CAP_ZERO_COPY_RECV | RG_CAP_FD | RG_CAP_ASKS);
    memcpy(f->head.transport, first->transport, sizeof f->head.transport);
    memcpy(f->head.peer, first->peer, sizeof f->head.peer);
}

void rg_fanout_add_channel(struct rg_fanout *f, struct rg_channel *channel, unsigned index)
{
    channel->fanout = f;
    channel->index = index;
    pthread_cond_init(&channel->wake, NULL);
    f->channels[index] = channel;
}

void rg_fanout_end_threads(struct rg_fanout *f)
{
    pthread_mutex_lock(&f->lock);
    f->ending = true;
    for (unsigned i = 0; i < f->most; i++)
        pthread_cond_signal(&f->channels[i]->wake);
    pthread_cond_broadcast(&f->upkeep);
    pthread_mutex_unlock(&f->lock);
    for (unsigned i = 0; i < f->most; i++)
        if (f->channels[i]->thread_runs)
            pthread_join(f->channels[i]->thread, NULL);
}

void rg_fanout_fini(struct rg_fanout *f)
{
    for (unsigned i = 0; i < f->most; i++) {
        rg_conn_destroy(f->channels[i]->conn);
        pthread_cond_destroy(&f->channels[i]->wake);
    }
    rg_conn_destroy(f->first);
    pthread_cond_destroy(&f->changed);
    pthread_cond_destroy(&f->upkeep);
    pthread_mutex_destroy(&f->lock);
}

void rg_fanout_interrupt(struct rg_fanout *f)
{
    RG_SCOPED_LOCK(&f->lock);
    f->interrupted = true;
    if (f->send_failed == RG_OK)
        f->send_failed = RG_ERR_CLOSED;
    const unsigned n = atomic_load(&f->n_channels);
    pthread_cond_broadcast(&f->changed);
    pthread_cond_broadcast(&f->upkeep);
    rg_conn_interrupt(f->first);
    for (unsigned i = 0; i < n; i++) /* under the lock: a rail's connection may be exchanged */
        if (f->channels[i]->conn)
            rg_conn_interrupt(f->channels[i]->conn);
}

void rg_fanout_break(struct rg_fanout *f, const struct rg_channel *channel, enum rg_status status,
                     const char *doing)
{
    pthread_mutex_lock(&f->lock);
    const bool known = f->interrupted || f->send_failed != RG_OK;
    if (f->send_failed == RG_OK)
        f->send_failed = status == RG_ERR_CLOSED ? RG_ERR_LOST : status;
    pthread_mutex_unlock(&f->lock);
    if (known || !channel)
        return;
    rg_warn("a connection for bulk data to %s is lost while %s (%s)", f->head.peer, doing,
            rg_status_string(status));
    if (f->kind->lost)
        f->kind->lost(f, channel);
    rg_fanout_interrupt(f);
}

void rg_fanout_add_statistics(struct rg_conn_statistics *sum, const struct rg_conn *conn)
{
    struct rg_conn_statistics one;
    rg_conn_get_statistics(conn, &one);
    rg_statistics_add(sum, &one);
}

void rg_fanout_add_security(struct rg_conn_security *all, const struct rg_conn *conn)
{
    struct rg_conn_security one;
    rg_conn_security(conn, &one);
    all->encrypted = all->encrypted && one.encrypted;
}

/* --- operations --- */

void rg_fanout_op_interrupt(struct rg_conn *conn)
{
    rg_fanout_interrupt((struct rg_fanout *)conn);
}

void rg_fanout_op_set_read_ahead(struct rg_conn *conn)
{
    rg_conn_set_read_ahead(((struct rg_fanout *)conn)->first);
}

bool rg_fanout_op_has_credit(struct rg_conn *conn)
{
    return rg_conn_has_credit(((struct rg_fanout *)conn)->first);
}

void rg_fanout_op_set_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    rg_conn_set_control(((struct rg_fanout *)conn)->first, control_conn);
}

enum rg_status rg_fanout_op_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys)
{
    return rg_conn_tls_export(((struct rg_fanout *)conn)->first, keys);
}

enum rg_status rg_fanout_op_tls_exporter(const struct rg_conn *conn, uint8_t out[32])
{
    return rg_conn_tls_exporter(((const struct rg_fanout *)conn)->first, out);
}

int rg_fanout_op_fd(const struct rg_conn *conn)
{
    return rg_conn_fd(((const struct rg_fanout *)conn)->first);
}

/* Without the lock: another thread of the parent may have had it. */
void rg_fanout_op_abandon(struct rg_conn *conn)
{
    struct rg_fanout *f = (struct rg_fanout *)conn;
    const unsigned n = atomic_load(&f->n_channels);
    rg_conn_abandon(f->first);
    for (unsigned i = 0; i < n; i++)
        if (f->channels[i]->conn)
            rg_conn_abandon(f->channels[i]->conn);
}
