/*
 * receive.c - what a client sends: batches of records, answers to what was asked of it, and the end of the session.
 *
 * Happy path: a message comes, its header and sequence are right, its records are restored where they refer to earlier ones,
 * and a cursor over them is what the caller goes on with. Answers go to the module that has asked. What is wrong with
 * anything else is the caller's to say. The thread that reads (leader_followers.h).
 */
#include "server/core/receive.h"

#include "common/base/log.h"
#include "proto/delta.h"
#include "server/core/module.h"

#include <string.h>

#define VIOLATION "protocol violation: "

/* The records of a batch that refers to earlier ones. NULL: they are there; else what is wrong. */
static const char *decode_batch(struct rg_worker *worker, uint32_t count, const unsigned char **records,
                                size_t *size)
{
    if (!worker->delta)
        worker->delta = rg_delta_create();
    if (!worker->delta)
        return "the worker is out of memory";
    return rg_delta_decode(worker->delta, *records, *size, count, records, size) == RG_OK ? NULL
                                                                                          : VIOLATION
               "a batch that refers to records which are not there";
}

/* NULL: it is *batch; else what is wrong. */
static const char *read_batch(struct rg_worker *worker, const struct rg_message *message,
                              const struct rg_message_header *header, struct rg_batch_cursor *batch)
{
    if (header->count == 0)
        return VIOLATION "a batch without records";
    if (header->seq != worker->next_seq)
        return VIOLATION "a batch out of sequence";
    worker->next_seq += header->count;
    const unsigned char *records = (const unsigned char *)message->data + sizeof *header;
    size_t size = message->size - sizeof *header;
    const char *wrong =
        header->kind == RG_MESSAGE_DELTA ? decode_batch(worker, header->count, &records, &size) : NULL;
    *batch = (struct rg_batch_cursor){
        .at = records,
        .end = records + size,
        .left = header->count,
        .seq = header->seq,
        .bulk_left = message->bulk_size,
    };
    return wrong;
}

/* Whatever was asked for, it is a module's. NULL, or what is wrong. */
static const char *read_answer(struct rg_worker *worker, const struct rg_message *message,
                               const struct rg_message_header *header)
{
    struct rg_answer answer;
    enum rg_answered answered = RG_ANSWERED_NOT_MINE;
    if (message->size == sizeof *header + sizeof answer) {
        memcpy(&answer, (const unsigned char *)message->data + sizeof *header, sizeof answer);
        for (const struct rg_server_module *const *at = worker->modules;
             *at && answered == RG_ANSWERED_NOT_MINE; at++)
            if ((*at)->answer)
                answered = (*at)->answer(worker, header, &answer, message->bulk_size);
    }
    return answered == RG_ANSWERED_GOOD ? NULL : VIOLATION "an answer to nothing that was asked";
}

enum rg_received rg_receive(struct rg_worker *worker, int timeout_ms, struct rg_batch_cursor *batch,
                            const char **wrong)
{
    struct rg_message message;
    struct rg_message_header header;
    enum rg_received received = RG_RECEIVED_ANSWER;
    const enum rg_status status = rg_conn_recv(worker->conn, timeout_ms, &message);
    *wrong = NULL;
    if (status == RG_ERR_TIMEOUT && timeout_ms >= 0)
        return RG_RECEIVED_NOTHING;
    if (status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        *wrong = VIOLATION "bytes that are no message";
        return RG_RECEIVED_WRONG;
    }
    if (status != RG_OK) {
        if (!rg_worker_over(worker))
            rg_info("session %llu: %s", (unsigned long long)worker->session,
                    status == RG_ERR_CLOSED ? "the client closed the connection" : "the client is gone");
        return RG_RECEIVED_END;
    }
    if (message.size < sizeof header) {
        *wrong = VIOLATION "a message without a header";
        return RG_RECEIVED_WRONG;
    }
    memcpy(&header, message.data, sizeof header);
    if (header.version != RG_PROTOCOL_MAJOR) {
        *wrong = VIOLATION "a message of another version";
        return RG_RECEIVED_WRONG;
    }
    atomic_store_explicit(&worker->read, header.ack, memory_order_relaxed);
    if (header.kind == RG_MESSAGE_BATCH || header.kind == RG_MESSAGE_DELTA) {
        *wrong = read_batch(worker, &message, &header, batch);
        received = RG_RECEIVED_BATCH;
    } else if (header.kind == RG_MESSAGE_ANSWER) {
        *wrong = read_answer(worker, &message, &header);
    } else if (header.kind == RG_MESSAGE_CONTROL && message.bulk_size == 0) {
        received = RG_RECEIVED_END; /* the only one that a client sends: it ends the session */
    } else {
        *wrong = VIOLATION "a message of unknown kind";
    }
    return *wrong ? RG_RECEIVED_WRONG : received;
}
