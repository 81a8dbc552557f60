/*
 * delta.h - records sent as what differs from earlier ones.
 *
 * Programs repeat themselves: a step of a training loop makes the calls of the step before, mostly with the same parameters.
 * Both ends keep the last RG_DELTA_HISTORY bytes of records, in the same places, and a batch (RG_MESSAGE_DELTA, wire.h) says
 * which of its records are there already. A launch that repeats one costs a fraction of a byte instead of 120.
 *
 * The batch, behind the message header: a varint, the bytes of all its records; then tokens, until these are complete. A token
 * is a byte, whose two lower bits are its kind and whose upper six say how many records it stands for, less one (63: 63 more
 * than the varint that follows):
 *
 *   RG_DELTA_LITERAL   the records follow as they are
 *   RG_DELTA_SAME      varint: where the first of them is in the history; the others follow on it there
 *   RG_DELTA_CHANGED   the same, of one record; then of its 8-byte words a bitmap of those that differ, a byte for each eight,
 *                      and of each that differs a byte that says which of its bytes do, and these, combined by exclusive or
 *
 * "Where" is how many records back, and 0 the one behind that which was named last. History is forgotten from its old end,
 * as the space is needed; batches that are sent as RG_MESSAGE_BATCH leave no trace in it.
 */
#ifndef RG_PROTO_DELTA_H
#define RG_PROTO_DELTA_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum rg_delta_kind { RG_DELTA_LITERAL = 0, RG_DELTA_SAME = 1, RG_DELTA_CHANGED = 2 };

#define RG_DELTA_HISTORY (1024u * 1024) /* bytes; a multiple of what a message can hold */
#define RG_DELTA_RECORDS 8192u          /* as many of them at most; a power of two */
#define RG_DELTA_GROWTH  16u            /* by so much an encoded batch may be longer than its records */

/** One direction of one session, at one end: either for encoding or for decoding. Used by one thread at a time. */
struct rg_delta;

/** NULL: no memory. Freed by rg_delta_destroy, which takes NULL, too. */
struct rg_delta *rg_delta_create(void);
void rg_delta_destroy(struct rg_delta *delta);

/**
 * Encodes a batch of well-formed records (`size` bytes of them, at most RG_MESSAGE_MAX) into `out`, which has room for `size` +
 * RG_DELTA_GROWTH bytes. Returns the bytes written. It must then be sent, as the peer's history must stay the same.
 */
size_t rg_delta_encode(struct rg_delta *delta, const unsigned char *records, size_t size, unsigned char *out);

/**
 * Decodes what the peer has encoded: trusts nothing. The records, as many as `count`, are in `*records` until the next call;
 * `*records_size` bytes. RG_ERR_PROTOCOL: that is no batch.
 */
RG_MUST_CHECK enum rg_status rg_delta_decode(struct rg_delta *delta, const unsigned char *data, size_t size,
                                             uint32_t count, const unsigned char **records,
                                             size_t *records_size);

#endif
