/*
 * connect.h - making connections.
 *
 * A transport is a table of operations (struct rg_transport_ops) found by the scheme of an address:
 *   tcp://HOST:PORT or HOST:PORT   TCP;  [v6]:PORT accepted; PORT defaults to RG_DEFAULT_PORT. With
 *                                  options->tls the transport is tls: TLS 1.3 over TCP
 *   rdma://HOST:PORT               RDMA verbs (transport/rdma/): InfiniBand, RoCE, PVRDMA
 *   unix:/PATH or unix:@NAME       the same framing on a unix stream socket (transport tcp); @: abstract
 *   mem:NAME                       within this process, for tests
 *
 * Filters wrap any of them; options->filters, or REMOTE_GPU_FILTER for the connecting side, names them
 * outermost first, joined by ';':
 *
 *   delay:oneway=2ms,bandwidth=10Gb   each direction delayed and rate-limited (transport/filters/delay.c): the process's
 *                                     connections share the bandwidth; flow=2Gb limits each of them
 *   fault:send_close_after=N          fails at a chosen message (transport/filters/fault.c)
 */
#ifndef RG_TRANSPORT_CONNECT_CONNECT_H
#define RG_TRANSPORT_CONNECT_CONNECT_H

#include "transport/transport.h"

struct rg_tls_tools;
struct rg_transport_ops;

/**
 * Connects to `address`. Logs nothing on failure; the phrase for the user ("connection refused", …) is put
 * into `why` (size bytes, may be NULL). Returns RG_ERR_INVALID for a malformed address or files of TLS that cannot be
 * used, RG_ERR_REFUSED if one side does not believe the other's certificate, RG_ERR_UNREACHABLE else.
 */
RG_MUST_CHECK enum rg_status rg_transport_connect(const char *address,
                                                  const struct rg_transport_options *options, char *why,
                                                  size_t why_size, struct rg_conn **out);
/**
 * Loads the part that connecting to `address` takes, with TLS or without, so that rg_transport_connect has it: for who holds locks
 * then that must not be held across dlopen(3). What is wrong, that says.
 */
void rg_transport_load(const char *address, bool tls);
/**
 * Looks up where `address` leads for the next connection there, likewise: a look-up may open parts of the C library's with dlopen(3). It takes
 * as long as in connecting, which has it then.
 */
void rg_transport_look_up(const char *address, bool tls);
RG_MUST_CHECK enum rg_status rg_transport_listen(const char *address,
                                                 const struct rg_transport_options *options, char *why,
                                                 size_t why_size, struct rg_listener **out);
/**
 * The same with a TCP or unix socket that listens already, as service managers hand it over. It is the listener's then, but for
 * its path in the file system, which whoever made it removes. RG_ERR_INVALID with the reason in `why`: it is no such socket, and
 * stays the caller's.
 */
RG_MUST_CHECK enum rg_status rg_transport_adopt_listener(int fd, const struct rg_transport_options *options,
                                                         char *why, size_t why_size,
                                                         struct rg_listener **out);
/** Waits up to timeout_ms (-1: for ever) for a connection. RG_ERR_TIMEOUT; RG_ERR_CLOSED after an interrupt.
 */
RG_MUST_CHECK enum rg_status rg_listener_accept(struct rg_listener *listener, int timeout_ms,
                                                struct rg_conn **out);
/** The address actually bound, e.g. "tcp://127.0.0.1:43121" when port 0 was asked for. Owned by the listener.
 */
const char *rg_listener_address(const struct rg_listener *listener);
/** A descriptor that polls readable when a connection is waiting, or -1. */
int rg_listener_fd(const struct rg_listener *listener);
void rg_listener_interrupt(struct rg_listener *listener);
void rg_listener_destroy(struct rg_listener *listener); /* NULL is fine */

/** The tools of transport tls (tls/tls.h), which is loaded if need be; NULL with the reason in `why`. */
const struct rg_tls_tools *rg_transport_tls_tools(char *why, size_t why_size);

/**
 * Makes a connection of transport tcp, with options->tls_keys tls, of an already connected stream socket (a worker gets its session's
 * socket by inheritance). Takes ownership of `fd` on success. No byte of the stream may have been read ahead:
 * until rg_conn_set_read_ahead, a connection never reads past the end of the message it returns. A filter may
 * keep messages of its own: a descriptor can be handed on only of a connection without filters.
 */
RG_MUST_CHECK enum rg_status rg_transport_adopt_fd(int fd, const struct rg_transport_options *options,
                                                   struct rg_conn **out);

/** Whether `text` is a chain of filters with good options. RG_ERR_INVALID with the reason in `why`. */
RG_MUST_CHECK enum rg_status rg_transport_check_filters(const char *text, char *why, size_t why_size);

/**
 * Makes `ops` known under its name, completing the table in place. A name already known keeps its first
 * table.
 */
void rg_transport_register(struct rg_transport_ops *ops);

#endif
