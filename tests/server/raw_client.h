/*
 * raw_client.h - the client's side of a session, record by record, for tests of the worker.
 *
 * A session is a worker served in this process over transport mem, and a raw client at the other end.
 * Everything a test expects is checked on the spot; a check that fails ends the program.
 */
#ifndef RG_TESTS_SERVER_RAW_CLIENT_H
#define RG_TESTS_SERVER_RAW_CLIENT_H

#include "generated/proto/ops.h"
#include "proto/kinds.h"
#include "proto/wire.h"
#include "server/core/worker.h"
#include "tests/check.h"
#include "transport/operations.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A message of the worker's, taken apart. */
struct got {
    unsigned kind;
    struct rg_reply reply;
    struct rg_notice notice;
    unsigned char *output; /* of replies; text of notices and of the end */
    size_t output_size;
    unsigned char *bulk;
    size_t bulk_size;
};

struct client {
    struct rg_conn *conn;
    struct rg_worker *worker;
    struct rg_transport_ops ops; /* of the worker's end */
    uint64_t seq;
    uint32_t count;    /* records of the batch being filled */
    size_t used, last; /* where the last record begins */
    unsigned char batch[RG_MESSAGE_MAX];
    struct got got; /* the last message */
};

/** Makes a library the driver of workers here, and initialises it. */
void load_driver(const char *path);

/** A connection within this process: returns one end, and the other in *theirs. */
struct rg_conn *connect_here(bool bulk, struct rg_conn **theirs);
/** Starts a worker and its client. */
struct client *client_create(void);
/**
 * The same; `timed`: of a session whose records are timed (server/timeline/times.h); `change` (or NULL) puts
 * operations of the test's own into those of the worker's end of the connection.
 */
struct client *client_create_with(bool timed, void (*change)(struct rg_transport_ops *ops));
/**
 * The device's primary context, as handle(RG_KIND_CONTEXT, 0), becomes that of client thread 0. Nothing is
 * sent after the answer.
 */
void enter_context(struct client *c);
/**
 * The client goes away without a word, and everything of the worker's is taken down. Returns the exit code.
 */
int client_destroy(struct client *c);
/** The same, with a call in between that waits for the device: nothing is put into its streams any more, and all is there still. */
int client_destroy_behind(struct client *c, void (*device_is_done)(void));

/**
 * Appends a record. `format`: '4' uint32_t, '8' uint64_t, 's' string, 'b' void * and size_t (count and
 * bytes), 'r' the same without the count.
 */
void put(struct client *c, unsigned op, uint32_t thread, uint32_t token, const char *format, ...);
/** The record that was put last is awaited: others' may pass it (RG_RECORD_AWAITED). */
void await(struct client *c);
/** Sends the batch. */
void send_batch(struct client *c);
void send_bulk(struct client *c, const void *bulk, size_t size);
void send_answer(struct client *c, uint32_t type, uint64_t id, uint64_t offset, const void *bulk,
                 size_t size);
/** Sends bytes as a message of their own; false if the connection is gone. */
bool send_raw(struct client *c, const void *data, size_t size, const void *bulk, size_t bulk_size);

/** Receives the next message; false if the session is over. */
bool receive(struct client *c, int timeout_ms);
/** The next message must be the reply to `token`. */
void expect_reply(struct client *c, uint32_t token, int result);
/** The next message must be a notice of that type. */
void expect_notice(struct client *c, uint32_t type, uint64_t id);
/**
 * The worker must say that the protocol was violated, in words that contain `word`, and end with a failure.
 * Destroys the client.
 */
void expect_violation(struct client *c, const char *word);
/** Nothing comes for a moment. */
void expect_nothing(struct client *c);
/** Puts a record that is waited for, sends, and takes the reply. */
#define CALL(c, op, thread, result, ...)                                                                     \
    do {                                                                                                     \
        put(c, op, thread, 77, __VA_ARGS__);                                                                 \
        send_batch(c);                                                                                       \
        expect_reply(c, 77, result);                                                                         \
    } while (0)
/** The u64 at the beginning of the last reply's outputs. */
uint64_t output_u64(const struct client *c);

static inline uint64_t handle(enum rg_kind kind, uint32_t index)
{
    return rg_handle_make(kind, index, 1);
}

#endif
