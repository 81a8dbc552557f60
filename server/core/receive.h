/*
 * receive.h - reading one message of the client.
 */
#ifndef RG_SERVER_CORE_RECEIVE_H
#define RG_SERVER_CORE_RECEIVE_H

#include "server/core/worker.h"

enum rg_received {
    RG_RECEIVED_BATCH,   /* whose records, in the connection's memory, are *batch */
    RG_RECEIVED_ANSWER,  /* which is a module's by now */
    RG_RECEIVED_NOTHING, /* in that time */
    RG_RECEIVED_END,     /* the client ends the session, or is gone */
    RG_RECEIVED_WRONG,   /* *wrong says what */
};

/** Waits for a message; timeout_ms as for rg_conn_recv. */
enum rg_received rg_receive(struct rg_worker *worker, int timeout_ms, struct rg_batch_cursor *batch,
                            const char **wrong);

#endif
