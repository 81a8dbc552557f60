/* internal.h - a connection of transport tls: what sending, receiving and its life share. */
#ifndef RG_TRANSPORT_TLS_INTERNAL_H
#define RG_TRANSPORT_TLS_INTERNAL_H

#include "transport/frame.h"
#include "transport/tcp/stream.h"
#include "transport/tls/record.h"

enum {
    RG_TLS_BATCH = 4, /* records that are sealed, and received, at once: what stays in the cache */
    RG_TLS_OUT = RG_TLS_BATCH * RG_TLS_RECORD,
    RG_TLS_IN = RG_TLS_BATCH * RG_TLS_RECORD,
    /* a message with its header, and a record on either side of it */
    RG_TLS_PLAIN_BUFFER = sizeof(struct rg_frame) + RG_MESSAGE_MAX + 3 * RG_TLS_PLAIN,
};

/* Records under one key: RFC 8446, 5.5 says 2^24.5 for AES-GCM. */
#define RG_TLS_RECORDS_PER_KEY (1ull << 24)

/** Who has the right to send. */
enum rg_tls_sending { RG_TLS_FREE, RG_TLS_BUSY, RG_TLS_OVER };

struct rg_tls_conn {
    struct rg_conn head;
    struct rg_tcp_stream stream;
    bool exported; /* another process goes on with it */
    bool is_server;
    bool has_exporter;
    uint8_t exporter[RG_TLS_EXPORTER_SIZE];
    char peer[RG_TLS_NAME_SIZE]; /* the name that it has proved */

    _Atomic int sending; /* enum rg_tls_sending: who has set it to BUSY is the sender */
    struct rg_tls_direction out;
    uint64_t records_per_key;
    enum rg_status send_failed;
    unsigned char *out_buffer;
    size_t out_size;
    _Atomic uint64_t bulk_sent;
    atomic_bool update_wanted; /* the peer asks for new keys */

    struct rg_tls_direction in; /* receiver, with all that follows */
    enum rg_status recv_failed;
    atomic_bool read_ahead; /* set by any thread: a delaying filter receives already */
    bool closed;            /* the peer has said that it sends nothing more */
    unsigned updates;       /* KeyUpdates in a row */
    unsigned char *cipher;  /* [cipher_start, cipher_end) has come and is not opened */
    size_t cipher_start, cipher_end;
    unsigned char *plain; /* [start, end) is opened and not taken */
    size_t start, end;
    size_t held; /* bytes at start that are the message last returned */
    size_t next; /* where begins what is not taken: at least start + held */
    size_t due;  /* of the current message: bytes that have not been opened */
    _Atomic uint64_t bulk_received;
};

/* send.c */
enum rg_status rg_tls_conn_send(struct rg_conn *conn, struct rg_send *send);
/** Tells the peer that nothing more comes, if no message is under way; then, or before, nothing is sent any more. */
void rg_tls_conn_close_notify(struct rg_tls_conn *c, int timeout_ms);

/* receive.c */
enum rg_status rg_tls_conn_recv(struct rg_conn *conn, int timeout_ms, struct rg_message *out);
enum rg_status rg_tls_conn_recv_bulk(struct rg_conn *conn, void *buffer, size_t size);

/* connection.c; for tests: how many records one key seals */
void rg_tls_conn_set_records_per_key(struct rg_conn *conn, uint64_t records);

#endif
