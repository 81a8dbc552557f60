/*
 * scripted_conn.h - a connection whose peer is a script: it receives the messages that were pushed, one after another
 * and each in memory of exactly its size, and tells a function of what is sent. Any thread may push, the function of
 * what is sent among them.
 */
#ifndef RG_TESTS_FUZZ_SCRIPTED_CONN_H
#define RG_TESTS_FUZZ_SCRIPTED_CONN_H

#include "transport/operations.h"

/** Told of each message that is sent, by the thread that sends. */
typedef void fuzz_sent(void *user, struct rg_conn *conn, const void *message, size_t size, size_t bulk_size);

/** Ends as connections do (rg_conn_destroy). `sent` may be NULL. Never NULL. */
struct rg_conn *fuzz_conn_create(fuzz_sent *sent, void *user);
/** `bulk` NULL: that many zeros. */
void fuzz_conn_push(struct rg_conn *conn, const void *message, size_t size, const void *bulk,
                    size_t bulk_size);
/** When the receiver has come here, it waits for up to `us` microseconds for one more to be pushed. */
void fuzz_conn_push_pause(struct rg_conn *conn, int us);
/** When the receiver has come here, it calls the function, which may not call anything of the connection's. */
void fuzz_conn_push_call(struct rg_conn *conn, void (*call)(unsigned argument), unsigned argument);
/**
 * What is received into this memory is read by nobody: it is looked whether it is there, and some of it is written. NULL, SIZE_MAX: into
 * any. Before the first connection; once.
 */
void fuzz_conn_nobody_reads(const void *memory, size_t size);
/** How many messages were pushed, to all connections that there are, and not received. Any thread. */
unsigned fuzz_conn_unread(void);
/** Whatever has been pushed when the receiver has taken all of it, the peer has closed the connection then. */
void fuzz_conn_finish(struct rg_conn *conn);

#endif
