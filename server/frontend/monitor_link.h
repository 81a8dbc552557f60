/*
 * monitor_link.h - the frontend's side of the socket to the monitor (server/daemon/shared/monitor_protocol.h).
 *
 * Threads of handshakes ask and wait; the main thread alone receives and gives each its answer. When the monitor has gone the
 * frontend ends, so nobody waits for ever.
 */
#ifndef RG_SERVER_FRONTEND_MONITOR_LINK_H
#define RG_SERVER_FRONTEND_MONITOR_LINK_H

#include "server/daemon/shared/monitor_protocol.h"
#include "transport/tls/tls.h"

#include <pthread.h>

struct rg_monitor_waiter;

struct rg_monitor_link {
    int socket;
    pthread_mutex_t lock; /* of all below, and of sending */
    uint64_t next_number;
    unsigned asked;                             /* questions without an answer */
    uint64_t leases[RG_MONITOR_LEASES_AT_ONCE]; /* numbers of those about leases; 0: unused */
    pthread_cond_t room;
    struct rg_monitor_waiter *waiters;
    struct rg_monitor_refused refused; /* that the monitor has not been told of */
};

/** `socket`: to the monitor; one thread reads it. */
void rg_monitor_link_init(struct rg_monitor_link *link, int socket);
/**
 * Asks, and waits up to timeout_ms for the answer (-1: until it comes). The question's number is filled in. `fd`: where a
 * descriptor that comes with the answer goes, or NULL. RG_OK: what answer->status says; RG_ERR_TIMEOUT; RG_ERR_LOST: it could
 * not be asked. Any thread but the main one.
 */
RG_MUST_CHECK enum rg_status rg_monitor_ask(struct rg_monitor_link *link,
                                            struct rg_monitor_question *question, const int *fds,
                                            unsigned n_fds, int timeout_ms, struct rg_monitor_answer *answer,
                                            int *fd);
/** Says what has no answer. Any thread. */
void rg_monitor_say(struct rg_monitor_link *link, enum rg_monitor_question_kind kind);
/** Counts a client that was refused, which RG_ASK_ALIVE tells. Any thread. */
void rg_monitor_count_refused(struct rg_monitor_link *link, enum rg_refusal_code code);
/** Receives the settings and what comes with them, before anything is asked. False: they are none. How many descriptors are right is the caller's to know. */
RG_MUST_CHECK bool rg_monitor_link_settings(struct rg_monitor_link *link,
                                            struct rg_monitor_settings *settings, int *fds, unsigned *n_fds);
/**
 * Receives one word; answers are given to those who wait, other words returned in `word`. RG_ERR_TIMEOUT: there is none;
 * RG_ERR_CLOSED: the monitor has gone. `flags` as rg_packet_receive; descriptors are those of a word that is returned.
 */
RG_MUST_CHECK enum rg_status rg_monitor_link_receive(struct rg_monitor_link *link, int flags,
                                                     struct rg_monitor_word *word, int *fds, unsigned *n_fds);
/**
 * What TLS needs, from the file that came with a word about it; `out` points into the memory that is returned, which the caller frees, and
 * has no key: rg_monitor_sign signs. NULL: it could not be read, and the log says so.
 */
RG_MUST_CHECK char *rg_monitor_link_read_pem(int file, const struct rg_monitor_tls *tls,
                                             struct rg_tls_pem *out);
/** Has the monitor sign by the server's key: `sign` of a struct rg_tls_signer whose data is the link. Any thread but the main one. */
RG_MUST_CHECK enum rg_status rg_monitor_sign(void *link, const struct rg_tls_to_sign *what,
                                             uint8_t signature[RG_TLS_SERVER_SIGNATURE_SIZE], size_t *size);

#endif
