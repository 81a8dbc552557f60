/*
 * transport.c - the front of all transports: the registry, and the checks that every operation relies on.
 *
 * An address names a transport; `mem` is built in, any other is looked for among those registered and then in
 * lib/remote-gpu/transport/NAME.so, which is opened once and never closed. The daemon, the worker and the
 * client core each have this file linked in and find the same part relative to themselves (common/base/path.h); a
 * program that lies elsewhere either names the folder (REMOTE_GPU_LIBDIR) or links the transport and
 * registers its table.
 *
 * What can fail is explained in `why` for whoever asked to connect; once connected, operations pass on what
 * the transport returns. The registry has a lock; everything else is as the callers' threads are
 * (transport.h).
 */
#include "transport/transport.h"

#include "common/base/path.h"
#include "transport/operations.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRANSPORTS_MAX = 8, CONNECT_TIMEOUT_MS = 10000 };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct rg_transport_ops *registry[TRANSPORTS_MAX]; /* registry_lock */

/* --- operations that a transport does not have --- */

static enum rg_status no_adopt_fd(int fd, const struct rg_transport_options *options, struct rg_conn **out)
{
    (void)fd, (void)options, (void)out;
    return RG_ERR_UNSUPPORTED;
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

static bool needs_no_credit(struct rg_conn *conn)
{
    (void)conn;
    return true;
}

static void no_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    (void)conn, (void)out;
}

/* right for a connection that holds no descriptor (abandon), whose peer sees its end anyway (reset) or that never reads
 * ahead (set_read_ahead) */
static void nothing_to_do(struct rg_conn *conn)
{
    (void)conn;
}

/* right for a connection whose receiver notices by itself that the peer is gone */
static void no_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    (void)conn, (void)control_conn;
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
    if (!ops->adopt_fd)
        ops->adopt_fd = no_adopt_fd;
    if (!ops->listener_fd)
        ops->listener_fd = no_listener_fd;
    if (!ops->send_detached)
        ops->send_detached = no_send_detached;
    if (!ops->end_lease) {
        ops->end_lease = no_end_lease;
        ops->lease_ended = no_lease;
    }
    if (!ops->reset)
        ops->reset = nothing_to_do;
    if (!ops->set_read_ahead)
        ops->set_read_ahead = nothing_to_do;
    if (!ops->has_credit)
        ops->has_credit = needs_no_credit;
    if (!ops->set_control)
        ops->set_control = no_control;
    if (!ops->fd)
        ops->fd = no_fd;
    if (!ops->abandon)
        ops->abandon = nothing_to_do;
    if (!ops->register_memory)
        ops->register_memory = no_register;
    if (!ops->unregister_memory)
        ops->unregister_memory = no_unregister;
    if (!ops->register_device) {
        ops->device_paths = no_device_paths;
        ops->register_device = no_register_device;
        ops->writes_directly = never_direct;
    }
    if (!ops->advertise) {
        ops->advertise = no_advertise;
        ops->withdraw = no_withdraw;
        ops->take_advertised = nothing_advertised;
        ops->has_advertised = none_advertised;
    }
    if (!ops->statistics)
        ops->statistics = no_statistics;
}

/* --- registry ---------------------------------------------------------------------------------------------
 */

static const struct rg_transport_ops *find_registered(const char *name)
{
    for (int i = 0; i < TRANSPORTS_MAX && registry[i]; i++)
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i];
    return NULL;
}

static const struct rg_transport_ops *add_locked(struct rg_transport_ops *ops)
{
    const struct rg_transport_ops *known = find_registered(ops->name);
    if (known)
        return known;
    for (int i = 0; i < TRANSPORTS_MAX; i++) {
        if (!registry[i]) {
            rg_transport_complete(ops, false);
            registry[i] = ops;
            return ops;
        }
    }
    return NULL;
}

void rg_transport_register(struct rg_transport_ops *ops)
{
    pthread_mutex_lock(&registry_lock);
    if (!add_locked(ops))
        rg_error("transport %s: more than %d transports", ops->name, TRANSPORTS_MAX);
    pthread_mutex_unlock(&registry_lock);
}

/* Opens lib/remote-gpu/transport/NAME.so; `name` is letters and digits only (address.c). */
static struct rg_transport_ops *load_part(const char *name, char *why, size_t why_size)
{
    char relative[64], path[PATH_MAX];
    snprintf(relative, sizeof relative, "transport/%s.so", name);
    if (rg_path_library(relative, path, sizeof path) != RG_OK) {
        rg_explain(why, why_size, "cannot find lib/remote-gpu, where transport %s should be", name);
        return NULL;
    }
    void *part = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!part) {
        if (access(path, F_OK) != 0 && (strcmp(name, "tcp") == 0 || strcmp(name, "rdma") == 0))
            rg_explain(why, why_size, "there is no transport %s (%s does not exist)", name, path);
        else if (access(path, F_OK) != 0)
            rg_explain(why, why_size,
                       "there is no transport %s; an address is HOST[:PORT], unix:/PATH or unix:@NAME", name);
        else
            rg_explain(why, why_size, "transport %s cannot be loaded: %s", name, dlerror());
        return NULL;
    }
    rg_transport_part_fn enter = (rg_transport_part_fn)(uintptr_t)dlsym(part, RG_TRANSPORT_PART_SYMBOL);
    struct rg_transport_host host = {
        .size = sizeof host,
        .ops_size = sizeof(struct rg_transport_ops),
        .version = RG_VERSION,
        .log_name = rg_log_get_name(),
        .log_level = rg_log_get_level(),
    };
    struct rg_transport_ops *ops = enter ? enter(&host) : NULL;
    if (!ops || strcmp(ops->name, name) != 0) {
        rg_explain(why, why_size, "%s is not of this build of remote-gpu (%s)", path, RG_VERSION);
        dlclose(part);
        return NULL;
    }
    return ops;
}

static const struct rg_transport_ops *find_transport(const char *name, char *why, size_t why_size)
{
    pthread_mutex_lock(&registry_lock);
    add_locked(&rg_transport_mem_ops);
    const struct rg_transport_ops *ops = find_registered(name);
    if (!ops) {
        struct rg_transport_ops *loaded = load_part(name, why, why_size);
        ops = loaded ? add_locked(loaded) : NULL;
    }
    pthread_mutex_unlock(&registry_lock);
    return ops;
}

/* --- making connections -----------------------------------------------------------------------------------
 */

/* The caller's options made whole, and the chain that they name; `fallback` is that of who does not name any.
 */
static enum rg_status prepare(const struct rg_transport_options *given, const char *fallback,
                              struct rg_transport_options *options, struct rg_filter_chain *chain, char *why,
                              size_t why_size)
{
    *options = given ? *given : (struct rg_transport_options){0};
    if (options->wait == RG_WAIT_DEFAULT) {
        struct rg_adaptive_wait wait;
        rg_adaptive_wait_init(&wait, RG_WAIT_DEFAULT);
        options->wait = wait.mode;
    }
    if (options->connect_timeout_ms <= 0)
        options->connect_timeout_ms = CONNECT_TIMEOUT_MS;
    return rg_filter_chain_parse(options->filters ? options->filters : fallback, chain, why, why_size);
}

enum rg_status rg_transport_connect(const char *address, const struct rg_transport_options *given, char *why,
                                    size_t why_size, struct rg_conn **out)
{
    struct rg_address parsed;
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    enum rg_status status = rg_address_parse(address, &parsed, why, why_size);
    if (status == RG_OK)
        status = prepare(given, secure_getenv("REMOTE_GPU_FILTER"), &options, &chain, why, why_size);
    if (status != RG_OK)
        return status;
    const struct rg_transport_ops *ops = find_transport(parsed.transport, why, why_size);
    if (!ops)
        return RG_ERR_UNREACHABLE;
    struct rg_conn *conn = NULL;
    status = ops->connect(&parsed, &options, why, why_size, &conn);
    if (status != RG_OK)
        return status == RG_ERR_INVALID ? status : RG_ERR_UNREACHABLE;
    conn->ops = ops;
    status = rg_filter_chain_apply(&chain, &conn);
    if (status != RG_OK) {
        rg_explain(why, why_size, "a filter failed: %s", rg_status_string(status));
        return RG_ERR_UNREACHABLE;
    }
    *out = conn;
    return RG_OK;
}

enum rg_status rg_transport_listen(const char *address, const struct rg_transport_options *given, char *why,
                                   size_t why_size, struct rg_listener **out)
{
    struct rg_address parsed;
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    enum rg_status status = rg_address_parse(address, &parsed, why, why_size);
    if (status == RG_OK)
        status = prepare(given, "", &options, &chain, why, why_size);
    if (status != RG_OK)
        return status;
    const struct rg_transport_ops *ops = find_transport(parsed.transport, why, why_size);
    if (!ops)
        return RG_ERR_UNREACHABLE;
    struct rg_listener *listener = NULL;
    status = ops->listen(&parsed, &options, why, why_size, &listener);
    if (status != RG_OK)
        return status == RG_ERR_INVALID ? status : RG_ERR_UNREACHABLE;
    listener->ops = ops;
    listener->filters = chain;
    *out = listener;
    return RG_OK;
}

enum rg_status rg_transport_adopt_fd(int fd, const struct rg_transport_options *given, struct rg_conn **out)
{
    struct rg_transport_options options;
    struct rg_filter_chain chain;
    char why[256];
    if (prepare(given, "", &options, &chain, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_ERR_INVALID;
    }
    const struct rg_transport_ops *ops = find_transport("tcp", why, sizeof why);
    if (!ops) {
        rg_error("%s", why);
        return RG_ERR_NOT_FOUND;
    }
    struct rg_conn *conn = NULL;
    enum rg_status status = ops->adopt_fd(fd, &options, &conn);
    if (status != RG_OK)
        return status;
    conn->ops = ops;
    status = rg_filter_chain_apply(&chain, &conn);
    if (status == RG_OK)
        *out = conn;
    return status;
}

enum rg_status rg_listener_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out)
{
    struct rg_conn *conn = NULL;
    enum rg_status status = listener->ops->accept(listener, timeout_ms, &conn);
    if (status != RG_OK)
        return status;
    conn->ops = listener->ops;
    status = rg_filter_chain_apply(&listener->filters, &conn);
    if (status == RG_OK)
        *out = conn;
    return status;
}

const char *rg_listener_address(const struct rg_listener *listener)
{
    return listener->address;
}

int rg_listener_fd(const struct rg_listener *listener)
{
    return listener->ops->listener_fd(listener);
}

void rg_listener_interrupt(struct rg_listener *listener)
{
    listener->ops->listener_interrupt(listener);
}

void rg_listener_destroy(struct rg_listener *listener)
{
    if (listener)
        listener->ops->listener_destroy(listener);
}

/* --- using them --- */

/* Sum of the parts' sizes, or SIZE_MAX if it is beyond `limit`. */
static size_t sum_parts(const struct iovec *parts, int count, size_t limit)
{
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > limit - sum)
            return SIZE_MAX;
        sum += parts[i].iov_len;
    }
    return sum;
}

struct rg_lease rg_lease_until_reply;

void rg_lease_end(struct rg_lease *lease)
{
    if (lease->conn)
        lease->conn->ops->end_lease(lease->conn, lease);
}

bool rg_lease_ended(const struct rg_lease *lease)
{
    return !lease->conn || lease->conn->ops->lease_ended(lease->conn, lease);
}

enum rg_status rg_conn_send(struct rg_conn *conn, struct rg_send *send)
{
    send->msg_size = sum_parts(send->msg, send->n_msg, RG_MESSAGE_MAX);
    send->bulk_size = sum_parts(send->bulk, send->n_bulk, RG_BULK_MAX);
    if (send->msg_size == SIZE_MAX || send->bulk_size == SIZE_MAX) {
        rg_error("a message is larger than the limits of %u bytes, %u bytes of bulk data", RG_MESSAGE_MAX,
                 RG_BULK_MAX);
        return RG_ERR_INVALID;
    }
    return conn->ops->send(conn, send);
}

enum rg_status rg_conn_send_detached(struct rg_conn *conn, struct rg_send *send)
{
    return conn->ops->send_detached(conn, send);
}

enum rg_status rg_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out)
{
    if (conn->bulk_left > 0) {
        rg_error("%zu bytes of bulk data were not taken before the next message", conn->bulk_left);
        return RG_ERR_INVALID;
    }
    struct rg_message message;
    enum rg_status status = conn->ops->recv(conn, timeout_ms, &message);
    if (status != RG_OK)
        return status;
    conn->bulk_left = message.bulk_size;
    *out = message;
    return RG_OK;
}

enum rg_status rg_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size)
{
    if (size > conn->bulk_left) {
        rg_error("%zu bytes of bulk data were asked for where %zu are left", size, conn->bulk_left);
        return RG_ERR_INVALID;
    }
    if (size == 0)
        return RG_OK;
    conn->bulk_left -= size;
    return conn->ops->recv_bulk(conn, buffer, size);
}

enum rg_status rg_conn_register(struct rg_conn *conn, void *base, size_t size)
{
    return conn->ops->register_memory(conn, base, size);
}

void rg_conn_unregister(struct rg_conn *conn, void *base)
{
    conn->ops->unregister_memory(conn, base);
}

unsigned rg_conn_device_paths(struct rg_conn *conn)
{
    return conn->ops->device_paths(conn);
}

enum rg_status rg_conn_register_device(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset)
{
    return size == 0 ? RG_ERR_INVALID : conn->ops->register_device(conn, base, size, fd, offset);
}

bool rg_conn_writes_directly(struct rg_conn *conn, const void *memory, size_t size)
{
    return size <= conn->bulk_left && conn->ops->writes_directly(conn, memory, size);
}

enum rg_status rg_conn_advertise(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size)
{
    return size == 0 || tag == RG_TAG_NOWHERE ? RG_ERR_INVALID
                                              : conn->ops->advertise(conn, tag, base, memory, size);
}

void rg_conn_withdraw(struct rg_conn *conn, uint64_t tag, void *memory)
{
    conn->ops->withdraw(conn, tag, memory);
}

enum rg_status rg_conn_take_advertised(struct rg_conn *conn, size_t most, void **memory, size_t *size)
{
    *size = 0;
    if (most > conn->bulk_left) {
        rg_error("%zu bytes of bulk data were asked for where %zu are left", most, conn->bulk_left);
        return RG_ERR_INVALID;
    }
    enum rg_status status = most == 0 ? RG_OK : conn->ops->take_advertised(conn, most, memory, size);
    conn->bulk_left -= *size;
    return status;
}

bool rg_conn_has_advertised(struct rg_conn *conn, size_t size)
{
    return conn->ops->has_advertised(conn, size);
}

void rg_conn_get_statistics(const struct rg_conn *conn, struct rg_conn_statistics *out)
{
    *out = (struct rg_conn_statistics){0};
    conn->ops->statistics(conn, out);
}

void rg_conn_set_read_ahead(struct rg_conn *conn)
{
    conn->ops->set_read_ahead(conn);
}

bool rg_conn_has_credit(struct rg_conn *conn)
{
    return conn->ops->has_credit(conn);
}

void rg_conn_set_control(struct rg_conn *conn, const struct rg_conn *control_conn)
{
    conn->ops->set_control(conn, control_conn);
}

void rg_conn_interrupt(struct rg_conn *conn)
{
    conn->ops->interrupt(conn);
}

void rg_conn_reset(struct rg_conn *conn)
{
    conn->ops->reset(conn);
}

int rg_conn_fd(const struct rg_conn *conn)
{
    return conn->ops->fd(conn);
}

unsigned rg_conn_caps(const struct rg_conn *conn)
{
    return conn->caps;
}

size_t rg_conn_piece(const struct rg_conn *conn, size_t piece)
{
    enum {
        ASKED_LEAST = 1 << 20
    }; /* on links where this takes longer, asking for less takes most of the time */
    if ((conn->caps & RG_CAP_ASKS) && piece < ASKED_LEAST)
        piece = ASKED_LEAST;
    return piece < conn->piece_least ? conn->piece_least : piece;
}

const char *rg_conn_transport(const struct rg_conn *conn)
{
    return conn->transport;
}

const char *rg_conn_peer(const struct rg_conn *conn)
{
    return conn->peer;
}

void rg_conn_destroy(struct rg_conn *conn)
{
    if (conn)
        conn->ops->destroy(conn);
}

void rg_conn_abandon(struct rg_conn *conn)
{
    conn->ops->abandon(conn);
}
