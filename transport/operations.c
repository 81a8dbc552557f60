/*
 * operations.c - completes tables of operations: asserts the mandatory slots, and fills the optional ones
 * that are empty.
 *
 * Threads: a table is completed before a connection uses it, by who registers it.
 */
#include "transport/operations.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>

/* --- operations that a transport does not have --- */

static enum rg_status no_adopt_listener(int fd, const struct rg_transport_options *options, char *why,
                                        size_t why_size, struct rg_listener **out)
{
    (void)fd;
    (void)options;
    (void)out;
    return RG_FAILED(RG_ERR_UNSUPPORTED, why, why_size, "not supported");
}

static enum rg_status no_adopt_fd(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    (void)fd, (void)options, (void)out;
    return RG_ERR_UNSUPPORTED;
}

static void no_look_up(const struct rg_address *address)
{
    (void)address;
}

static int no_listener_fd(const struct rg_listener *listener)
{
    (void)listener;
    return -1;
}

static int no_fd(const struct rg_conn *conn)
{
    (void)conn;
    return -1;
}

static enum rg_status no_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    (void)conn, (void)send;
    return RG_ERR_UNSUPPORTED;
}

static void no_end_lease(struct rg_conn *conn, struct rg_lease *lease)
{
    (void)conn;
    lease->conn = NULL;
}

static bool no_lease(struct rg_conn *conn, const struct rg_lease *lease)
{
    (void)conn, (void)lease;
    return true;
}

static enum rg_status no_register(struct rg_conn *conn, void *base, size_t size)
{
    (void)conn, (void)base, (void)size;
    return RG_ERR_UNSUPPORTED;
}

static void no_unregister(struct rg_conn *conn, void *base)
{
    (void)conn, (void)base;
}

static unsigned no_device_paths(struct rg_conn *conn)
{
    (void)conn;
    return 0;
}

static enum rg_status no_register_device(struct rg_conn *conn, void *base, size_t size, int fd,
                                         uint64_t offset)
{
    (void)conn, (void)base, (void)size, (void)fd, (void)offset;
    return RG_ERR_UNSUPPORTED;
}

static bool never_direct(struct rg_conn *conn, const void *memory, size_t size)
{
    (void)conn, (void)memory, (void)size;
    return false;
}

static enum rg_status no_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory,
                                   size_t size)
{
    (void)conn, (void)tag, (void)base, (void)memory, (void)size;
    return RG_ERR_UNSUPPORTED;
}

static void no_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    (void)conn, (void)tag, (void)memory;
}

static enum rg_status nothing_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    (void)conn, (void)most, (void)memory;
    *size = 0;
    return RG_OK;
}

static bool none_advertised(struct rg_conn *conn, size_t size)
{
    (void)conn, (void)size;
    return false;
}

static bool never_ended(struct rg_conn *conn)
{
    (void)conn;
    return false;
}

static bool needs_no_credit(struct rg_conn *conn)
{
    return !conn->next || rg_conn_has_credit(conn->next);
}

static bool never_rests(const struct rg_conn *conn)
{
    (void)conn;
    return false;
}

static bool backlog_of_fd(const struct rg_conn *conn, size_t *unread, size_t *unsent)
{
    int in = 0, out = 0;
    const int fd = conn->ops->fd(conn);
    if (fd < 0 || ioctl(fd, SIOCINQ, &in) != 0 || ioctl(fd, SIOCOUTQ, &out) != 0)
        return false;
    *unread = (size_t)in;
    *unsent = (size_t)out;
    return true;
}

static void no_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    (void)conn, (void)out;
}

static void no_security(const struct rg_conn *conn, struct rg_conn_security *out)
{
    if (conn->next)
        rg_conn_security(conn->next, out);
}

static enum rg_status no_tls_export(struct rg_conn *conn, struct rg_tls_keys *keys)
{
    (void)conn, (void)keys;
    return RG_ERR_UNSUPPORTED;
}

static enum rg_status no_tls_exporter(const struct rg_conn *conn, uint8_t out[32])
{
    return conn->next ? rg_conn_tls_exporter(conn->next, out) : RG_ERR_UNSUPPORTED;
}

/* for one that holds no descriptor */
static void no_abandon(struct rg_conn *conn)
{
    if (conn->next)
        rg_conn_abandon(conn->next);
}

/* for one whose peer sees its end anyway */
static void no_reset(struct rg_conn *conn)
{
    if (conn->next)
        rg_conn_reset(conn->next);
}

/* for one that never reads ahead */
static void no_read_ahead(struct rg_conn *conn)
{
    if (conn->next)
        rg_conn_set_read_ahead(conn->next);
}

/* for one whose receiver notices by itself that the peer is gone */
static void no_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    if (conn->next)
        rg_conn_set_control(conn->next, control_conn);
}

/* An empty mandatory slot is a bug that no caller can do anything about; it shows at the first use of the
 * transport. */
#define REQUIRE(slot)                                                                                        \
    do {                                                                                                     \
        if (!ops->slot) {                                                                                    \
            rg_error("transport %s has no operation " #slot, ops->name);                                     \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)
#define OPTIONAL(slot, otherwise) (ops->slot = ops->slot ? ops->slot : (otherwise))

void rg_transport_complete(struct rg_transport_ops *ops, bool is_filter)
{
    if (!is_filter) {
        REQUIRE(connect);
        REQUIRE(listen);
        REQUIRE(accept);
        REQUIRE(listener_interrupt);
        REQUIRE(listener_destroy);
    }
    REQUIRE(send);
    REQUIRE(recv);
    REQUIRE(recv_bulk);
    REQUIRE(interrupt);
    REQUIRE(destroy);
    OPTIONAL(look_up, no_look_up);
    OPTIONAL(adopt_listener, no_adopt_listener);
    OPTIONAL(adopt_fd, no_adopt_fd);
    OPTIONAL(listener_fd, no_listener_fd);
    OPTIONAL(send_detached, no_send_detached);
    OPTIONAL(end_lease, no_end_lease);
    OPTIONAL(lease_ended, no_lease);
    OPTIONAL(reset, no_reset);
    OPTIONAL(set_read_ahead, no_read_ahead);
    OPTIONAL(has_credit, needs_no_credit);
    OPTIONAL(set_control, no_control);
    OPTIONAL(fd, no_fd);
    OPTIONAL(rests, never_rests);
    OPTIONAL(backlog, backlog_of_fd);
    OPTIONAL(abandon, no_abandon);
    OPTIONAL(register_memory, no_register);
    OPTIONAL(unregister_memory, no_unregister);
    OPTIONAL(device_paths, no_device_paths);
    OPTIONAL(register_device, no_register_device);
    OPTIONAL(writes_directly, never_direct);
    OPTIONAL(advertise, no_advertise);
    OPTIONAL(withdraw, no_withdraw);
    OPTIONAL(take_advertised, nothing_advertised);
    OPTIONAL(has_advertised, none_advertised);
    OPTIONAL(adverts_ended, never_ended);
    OPTIONAL(statistics, no_statistics);
    OPTIONAL(security, no_security);
    OPTIONAL(tls_export, no_tls_export);
    OPTIONAL(tls_exporter, no_tls_exporter);
}
