/*
 * operations.h - what a transport is made of: one table of operations, and the heads of its objects.
 *
 * Internal to transport/. A transport fills a table by designated initialisers, and is known to
 * connect/registry.c or exports it from a loadable part (rg_transport_part). Registration asserts the
 * mandatory slots once and puts "not supported" functions into the optional ones left empty, so that nobody
 * has to test a slot for NULL (but `lost`, `channel_progress` and `give_up_channel`, which transport.c alone
 * calls). Filters use the same table for the connections they wrap, without the slots that make connections;
 * reset, set_read_ahead, has_credit, set_control, abandon, security and tls_exporter go on to the connection
 * below (`next`) where a filter leaves them empty.
 *
 * The front (transport.c) has checked every argument before an operation sees it: sizes are within the
 * limits, a receive comes after all bulk data of the last message was taken, bulk is not taken beyond its
 * size.
 */
#ifndef RG_TRANSPORT_OPERATIONS_H
#define RG_TRANSPORT_OPERATIONS_H

#include "common/base/log.h"
#include "transport/address.h"
#include "transport/memory.h"
#include "transport/state.h"

#include <stdatomic.h>
#include <string.h>

struct rg_transport_ops {
    const char *name;

    /* making connections; `options` is never NULL and its connect_timeout_ms never 0 */
    enum rg_status (*connect)(const struct rg_address *address, const struct rg_transport_options *options,
                              char *why, size_t why_size, struct rg_conn **out);
    void (*look_up)(const struct rg_address *address); /* optional: as rg_transport_look_up */
    enum rg_status (*listen)(const struct rg_address *address, const struct rg_transport_options *options,
                             char *why, size_t why_size, struct rg_listener **out);
    enum rg_status (*adopt_fd)(int fd, const struct rg_transport_options *options,
                               struct rg_conn **out); /* optional */

    /** Optional. Takes a socket over that listens already; on failure it stays the caller's. */
    enum rg_status (*adopt_listener)(int fd, const struct rg_transport_options *options, char *why,
                                     size_t why_size, struct rg_listener **out);
    /* a listener */
    enum rg_status (*accept)(struct rg_listener *listener, int timeout_ms, struct rg_conn **out);
    void (*listener_interrupt)(struct rg_listener *listener);
    void (*listener_destroy)(struct rg_listener *listener);
    int (*listener_fd)(const struct rg_listener *listener); /* optional */

    /* a connection */
    enum rg_status (*send)(struct rg_conn *conn, struct rg_send *send);
    enum rg_status (*send_detached)(struct rg_conn *conn, struct rg_send *send); /* of who detaches */
    /* optional, all or none: for who sets a lease's `conn` */
    void (*end_lease)(struct rg_conn *conn, struct rg_lease *lease);
    bool (*lease_ended)(struct rg_conn *conn, const struct rg_lease *lease);
    enum rg_status (*recv)(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
    enum rg_status (*recv_bulk)(struct rg_conn *conn, void *buffer, size_t size);
    bool (*rests)(const struct rg_conn *conn); /* optional: as rg_conn_rests */
    void (*interrupt)(struct rg_conn *conn);
    void (*destroy)(struct rg_conn *conn);
    void (*reset)(struct rg_conn *conn);                                              /* optional */
    void (*set_read_ahead)(struct rg_conn *conn);                                     /* optional */
    bool (*has_credit)(struct rg_conn *conn);                                         /* optional */
    void (*set_control)(struct rg_conn *conn, const struct rg_conn *control_conn);    /* optional */
    int (*fd)(const struct rg_conn *conn);                                            /* optional */
    void (*abandon)(struct rg_conn *conn);                                            /* optional */
    enum rg_status (*register_memory)(struct rg_conn *conn, void *base, size_t size); /* optional */
    void (*unregister_memory)(struct rg_conn *conn, void *base);                      /* optional */
    /* optional, all or none: the memory of GPUs */
    unsigned (*device_paths)(struct rg_conn *conn);
    enum rg_status (*register_device)(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset);
    bool (*writes_directly)(struct rg_conn *conn, const void *memory, size_t size);
    /* optional, all or none */
    enum rg_status (*advertise)(struct rg_conn *conn, uint64_t tag, uint64_t base, void *memory, size_t size);
    void (*withdraw)(struct rg_conn *conn, uint64_t tag, void *memory);
    enum rg_status (*take_advertised)(struct rg_conn *conn, size_t most, void **memory, size_t *size);
    bool (*has_advertised)(struct rg_conn *conn, size_t size);
    bool (*adverts_ended)(struct rg_conn *conn); /* optional: adverts end before the connection does */
    /* optional; else by the descriptor */
    bool (*backlog)(const struct rg_conn *conn, size_t *unread, size_t *unsent);
    bool (*lost)(const struct rg_conn *conn); /* optional: of rg_conn_progress */
    /* optional: of several connections; as rg_conn_channel_progress */
    bool (*channel_progress)(const struct rg_conn *conn, unsigned place, struct rg_conn_progress *out);
    bool (*give_up_channel)(struct rg_conn *conn, unsigned place); /* optional: as rg_conn_give_up_channel */
    void (*statistics)(const struct rg_conn *conn, struct rg_conn_statistics *out); /* optional */
    void (*security)(const struct rg_conn *conn, struct rg_conn_security *out);     /* optional */
    /* optional: of transport tls */
    enum rg_status (*tls_export)(struct rg_conn *conn, struct rg_tls_keys *keys);
    enum rg_status (*tls_exporter)(const struct rg_conn *conn, uint8_t out[32]);
    const struct rg_tls_tools *tls_tools;
};

/** Head of every connection: a transport's own structure starts with it. */
struct rg_conn {
    const struct rg_transport_ops *ops;
    struct rg_conn *next; /* of a filter: the connection below; NULL: there is none */
    unsigned caps;
    size_t
        piece_least;  /* bytes that a message with bulk data should carry at least (rg_conn_piece); 0: any */
    size_t bulk_left; /* of the current message; the receiver's */
    unsigned rails;   /* multirail/: how many there are meant to be */
    /* for rg_conn_progress: odd while a thread is inside; counts of what has been done, times two */
    _Atomic uint32_t sends, receives;
    _Atomic uint32_t detached, detached_sends; /* threads inside, and what they have done */
    char transport[48];
    char peer[160];
};

/** A filter makes a connection of a connection. On failure `next` stays the caller's. */
struct rg_filter {
    const char *name;
    struct rg_transport_ops *ops;
    enum rg_status (*check)(const char *options, char *why, size_t why_size);
    enum rg_status (*wrap)(struct rg_conn *next, const char *options, struct rg_conn **out);
};

enum { RG_FILTERS_MAX = 4, RG_FILTER_OPTIONS_MAX = 256 };

/** Filters with their options, outermost first. */
struct rg_filter_chain {
    int count;
    struct {
        const struct rg_filter *filter;
        char options[RG_FILTER_OPTIONS_MAX];
    } links[RG_FILTERS_MAX];
};

/** Head of every listener. connect/ copies the filters in: they are applied to each connection accepted. */
struct rg_listener {
    const struct rg_transport_ops *ops;
    struct rg_filter_chain filters;
    char address[320];
};

/** Adds what `one` tells of copies: of one of several connections, or of one that is gone. */
static inline void rg_statistics_add(struct rg_conn_statistics *sum, const struct rg_conn_statistics *one)
{
    sum->bulk_copied_sent += one->bulk_copied_sent;
    sum->bulk_copied_received += one->bulk_copied_received;
    sum->bulk_direct_sent += one->bulk_direct_sent;
    sum->bulk_direct_received += one->bulk_direct_received;
    for (unsigned i = 0; i < RG_CONN_RAILS; i++) {
        sum->rail_sent[i] += one->rail_sent[i];
        sum->rail_received[i] += one->rail_received[i];
    }
}
/** What one connection tells was all by this rail. */
static inline void rg_statistics_on_rail(struct rg_conn_statistics *one, unsigned rail)
{
    rail = rail < RG_CONN_RAILS ? rail : RG_CONN_RAILS - 1;
    one->rail_sent[rail] = one->bulk_copied_sent + one->bulk_direct_sent;
    one->rail_received[rail] = one->bulk_copied_received + one->bulk_direct_received;
}

/** Checks the mandatory slots of a table (abort: a bug of the transport) and fills the optional ones. */
void rg_transport_complete(struct rg_transport_ops *ops, bool is_filter);

/* --- loadable parts --- */

/*
 * A transport with libraries or size of its own is a loadable part: lib/remote-gpu/transport/NAME.so, opened
 * with RTLD_LOCAL when an address first asks for it. It exports the one function below. The part carries its
 * own copy of common/, so it is told the host's log settings. Host and part are of one build, or the part is
 * refused.
 */
struct rg_transport_host {
    size_t size;         /* of this structure */
    size_t ops_size;     /* of struct rg_transport_ops */
    const char *version; /* RG_VERSION */
    const char *log_name;
    enum rg_log_level log_level;
};
/** Returns the part's table, or NULL if `host` is of another build. */
struct rg_transport_ops *rg_transport_part(const struct rg_transport_host *host);
typedef struct rg_transport_ops *(*rg_transport_part_fn)(const struct rg_transport_host *);
#define RG_TRANSPORT_PART_SYMBOL "rg_transport_part"
/** What a part does with its host: takes over its log settings. False: of another build. */
static inline bool rg_transport_part_enter(const struct rg_transport_host *host)
{
    if (host->size != sizeof *host || host->ops_size != sizeof(struct rg_transport_ops) ||
        strcmp(host->version, RG_VERSION) != 0)
        return false;
    rg_log_name(host->log_name);
    rg_log_set_level(host->log_level);
    return true;
}

/* --- built in --- */

extern struct rg_transport_ops rg_transport_mem_ops;
extern const struct rg_filter rg_filter_delay, rg_filter_fault;
/** Of transport tcp, for programs that link it (target transport_tcp) instead of loading it. */
extern struct rg_transport_ops rg_transport_tcp_ops;
/** Of transport tls, likewise (target transport_tls). */
extern struct rg_transport_ops rg_transport_tls_ops;
/** Of transport rdma, likewise (target transport_rdma). */
extern struct rg_transport_ops rg_transport_rdma_ops;

#endif
