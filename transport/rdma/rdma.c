/*
 * rdma.c - the operations of transport rdma: its table, and those that end a connection or tell of it.
 *
 * An orderly end says goodbye (BYE) and waits, for LAST_WORDS_NS at most, until all that was sent has
 * arrived; an interrupt in the middle of a message is a loss for the peer. Threads: an interrupt comes from
 * any; the rest as transport.h says.
 */
#include "transport/rdma/internal.h"

#include "common/base/clock.h"

#include <unistd.h>

enum { LAST_WORDS_NS = 2000000000 };

static void rdma_interrupt(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    atomic_store_explicit(&c->interrupted, true, memory_order_release);
    rg_rdma_lock(c);
    if (c->broken == RG_OK && !c->bye_sent) {
        if (c->send_busy)
            rdma_disconnect(c->id); /* a message was under way: the peer sees a loss */
        else
            c->bye_sent = rg_rdma_post_control(c, RG_RDMA_BYE, NULL, 0) == RG_OK;
    }
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        (void)!write(c->kick[side], &(uint64_t){1}, sizeof(uint64_t));
    rg_rdma_unlock(c);
}

/* From now on the device does nothing more with this connection; what has arrived can be received. */
static void rdma_reset(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    rg_rdma_progress(c);
    rdma_disconnect(c->id);
    rg_rdma_break(c, RG_ERR_LOST);
    rg_rdma_unlock(c);
}

/* Says goodbye and waits until all that was sent has arrived. */
static void finish(struct rg_rdma_conn *c)
{
    uint64_t deadline = rg_now_ns() + LAST_WORDS_NS;
    rg_rdma_lock(c);
    atomic_store(&c->interrupted, false); /* waiting is possible again; no one else is inside */
    enum rg_status status = c->broken;
    while (status == RG_OK) {
        if (!c->bye_sent) /* there may be no room for it yet */
            c->bye_sent = rg_rdma_post_control(c, RG_RDMA_BYE, NULL, 0) == RG_OK;
        if (c->bye_sent && c->data_done == c->data_posted && c->control_done == c->control_posted)
            break;
        status = rg_rdma_wait(c, RG_RDMA_SENDER, deadline);
    }
    rg_rdma_unlock(c);
}

static void rdma_destroy(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    finish(c);
    rdma_disconnect(c->id);
    rg_rdma_conn_free(c);
}

static void rdma_abandon(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    close(c->events->fd);
    close(c->channel->fd);
    close(c->id->verbs->cmd_fd); /* shared by all connections of the device, which the child has no part in */
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        close(c->kick[side]);
}

static bool rdma_has_credit(struct rg_conn *conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c);
    rg_rdma_progress(c);
    const bool has = c->credits > RG_RDMA_SLOTS / 2 && c->data_posted - c->data_done < RG_RDMA_SLOTS / 2;
    rg_rdma_unlock(c);
    return has;
}

static void rdma_set_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    struct rg_rdma_conn *c = (struct rg_rdma_conn *)conn;
    rg_rdma_lock(c); /* a filter's thread may wait */
    c->control_conn = control_conn;
    rg_rdma_unlock(c);
}

static void rdma_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    const struct rg_rdma_conn *c = (const struct rg_rdma_conn *)conn;
    out->bulk_copied_sent = atomic_load_explicit(&c->bytes_copied[RG_RDMA_SENDER], memory_order_relaxed);
    out->bulk_copied_received =
        atomic_load_explicit(&c->bytes_copied[RG_RDMA_RECEIVER], memory_order_relaxed);
    out->bulk_direct_sent = atomic_load_explicit(&c->bytes_placed[RG_RDMA_SENDER], memory_order_relaxed);
    out->bulk_direct_received =
        atomic_load_explicit(&c->bytes_placed[RG_RDMA_RECEIVER], memory_order_relaxed);
}

struct rg_transport_ops rg_transport_rdma_ops = {
    .name = "rdma",
    .connect = rg_rdma_connect,
    .listen = rg_rdma_listen,
    .accept = rg_rdma_accept,
    .listener_interrupt = rg_rdma_listener_interrupt,
    .listener_destroy = rg_rdma_listener_destroy,
    .listener_fd = rg_rdma_listener_fd,
    .send = rg_rdma_send,
    .recv = rg_rdma_recv,
    .recv_bulk = rg_rdma_recv_bulk,
    .interrupt = rdma_interrupt,
    .reset = rdma_reset,
    .destroy = rdma_destroy,
    .abandon = rdma_abandon,
    .has_credit = rdma_has_credit,
    .set_control = rdma_set_control,
    .register_memory = rg_rdma_register,
    .unregister_memory = rg_rdma_unregister,
    .device_paths = rg_rdma_device_paths,
    .register_device = rg_rdma_register_device,
    .writes_directly = rg_rdma_writes_directly,
    .advertise = rg_rdma_advertise,
    .withdraw = rg_rdma_withdraw,
    .take_advertised = rg_rdma_take_advertised,
    .has_advertised = rg_rdma_has_advertised,
    .statistics = rdma_statistics,
};
