/*
 * socket.h - the sockets of transport tcp: making them, naming them, and telling a quiet peer from one that
 * is gone.
 */
#ifndef RG_TRANSPORT_TCP_SOCKET_H
#define RG_TRANSPORT_TCP_SOCKET_H

#include "transport/operations.h"

#include <netdb.h>
#include <sys/socket.h>

enum {
    RG_TCP_LOST_AFTER_MS = 60000, /* a peer that answers nothing for so long is gone */
    RG_TCP_HEALTH_MS = 15000,     /* how often a waiting call looks */
};

/** A short phrase for the errno of a failed connect, bind or listen. */
const char *rg_tcp_phrase(int error, char *buffer, size_t size);
/** A short phrase for what getaddrinfo has failed with; errno is as that has left it. */
const char *rg_tcp_name_phrase(int error, char *buffer, size_t size);
/** No delay, keepalive, time limits of waiting, close-on-exec. Returns whether it is a TCP socket (not a unix
 * one). */
bool rg_tcp_tune(int fd);
/**
 * For a connection that carries bulk data: what has not left yet is kept short, so that what is sent after it
 * on other connections, and waits for it at the peer, does not wait for long.
 */
void rg_tcp_tune_bulk(int fd);
/** How often a waiting call on this socket looks. */
int rg_tcp_health_ms(int fd);
/** False if the kernel has been trying to reach the peer for four times that, RG_TCP_LOST_AFTER_MS, in vain. */
bool rg_tcp_peer_alive(int fd);
/** The same by what the kernel says of a connection (TCP_INFO, as in linux/tcp.h). */
struct tcp_info;
/** False: something was sent that the peer's kernel has not answered for `patience_ms`. */
bool rg_tcp_is_answered(const struct tcp_info *info, int patience_ms);
/** "10.0.0.7:7600", "unix:/run/x", "unix: process 123". */
void rg_tcp_peer_name(int fd, char *out, size_t size);
void rg_tcp_sockaddr_name(const struct sockaddr_storage *address, socklen_t length, char *out, size_t size);

/** Makes a connection of a tuned or untuned connected socket (connection.c). */
RG_MUST_CHECK enum rg_status rg_tcp_conn_create(int fd, const struct rg_transport_options *options,
                                                struct rg_conn **out);

/* connect.c */
/** Connects; returns the descriptor, or -1 with the reason in `why`. */
int rg_tcp_connect_socket(const struct rg_address *address, int timeout_ms, char *why, size_t why_size);
/** Connects to the first of the addresses that takes it; returns the descriptor, in blocking mode, or -1 with errno. */
int rg_tcp_connect_first(const struct addrinfo *list, int timeout_ms);
/** Fills a unix address; returns its length. */
socklen_t rg_tcp_unix_address(const struct rg_address *address, struct sockaddr_storage *out, char *why,
                              size_t why_size);

/* names.c */
/** The addresses of a host, as getaddrinfo gives them; the caller frees them. Returns its error, with errno as that has left it. */
int rg_tcp_find_addresses(const struct rg_address *address, struct addrinfo **list);
/** Looks them up for the next connection there, which takes what was found, or the error. Any thread; no locks are held. */
void rg_tcp_look_up(const struct rg_address *address);

/* listener.c */
enum rg_status rg_tcp_listen(const struct rg_address *address, const struct rg_transport_options *options,
                             char *why, size_t why_size, struct rg_listener **out);
enum rg_status rg_tcp_adopt_listener(int fd, const struct rg_transport_options *options, char *why,
                                     size_t why_size, struct rg_listener **out);
enum rg_status rg_tcp_accept(struct rg_listener *listener, int timeout_ms, struct rg_conn **out);
void rg_tcp_listener_interrupt(struct rg_listener *listener);
void rg_tcp_listener_destroy(struct rg_listener *listener);
int rg_tcp_listener_fd(const struct rg_listener *listener);

#endif
