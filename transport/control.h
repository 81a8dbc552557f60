/*
 * control.h - control messages (proto/control/control.h) over a connection.
 *
 * For the handshake, the end of a session, and what is asked outside of sessions. Failures are those of the connection and of
 * packing. Threads: as rg_conn_send and rg_conn_recv.
 */
#ifndef RG_TRANSPORT_CONTROL_H
#define RG_TRANSPORT_CONTROL_H

#include "proto/control/control.h"
#include "transport/transport.h"

#include <stdlib.h>

/** Packs and sends one control message. */
RG_MUST_CHECK static inline enum rg_status rg_control_send(struct rg_conn *conn,
                                                           const struct rg_control *message)
{
    void *data;
    size_t size;
    RG_TRY(rg_control_pack(message, &data, &size));
    struct iovec part = {.iov_base = data, .iov_len = size};
    enum rg_status status = rg_conn_send(conn, &(struct rg_send){.msg = &part, .n_msg = 1});
    free(data);
    return status;
}

/**
 * Receives one control message; rg_control_fini releases it. RG_ERR_PROTOCOL: another kind of message came,
 * or one with bulk data; the connection is of no further use. RG_ERR_TIMEOUT: nothing came in time.
 */
RG_MUST_CHECK static inline enum rg_status rg_control_receive(struct rg_conn *conn, int timeout_ms,
                                                              struct rg_control *out)
{
    struct rg_message message;
    RG_TRY(rg_conn_recv(conn, timeout_ms, &message));
    if (message.bulk_size != 0)
        return RG_ERR_PROTOCOL;
    return rg_control_unpack(message.data, message.size, out);
}

/**
 * Sends one and receives what the other side says to it. That may be a refusal, which it has sent before it closed without reading any of
 * this: so it is looked for also where sending fails for that.
 */
RG_MUST_CHECK static inline enum rg_status rg_control_ask(struct rg_conn *conn,
                                                          const struct rg_control *question, int timeout_ms,
                                                          struct rg_control *answer)
{
    const enum rg_status sent = rg_control_send(conn, question);
    return sent == RG_OK || sent == RG_ERR_CLOSED || sent == RG_ERR_LOST
               ? rg_control_receive(conn, timeout_ms, answer)
               : sent;
}

#endif
