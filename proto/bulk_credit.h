/*
 * bulk_credit.h - how much bulk data of copies to the device a client may have under way: what a stream that does not go on has
 * not taken yet lies in the worker's memory, and a worker that has no more room stops taking records of any thread.
 *
 * Each record that brings bulk data of a copy takes room; the room is free again when the device has taken the data. The
 * client adds up what it takes and the worker what is free again, both from the session's beginning. A client whose room
 * is used up does not send the data but lets the worker ask for it when the stream is there (RG_NOTICE_RENDEZVOUS).
 */
#ifndef RG_PROTO_BULK_CREDIT_H
#define RG_PROTO_BULK_CREDIT_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of a session. More than a long fast link holds (100 Gb/s, 10 ms), and little for a server. */
#define RG_BULK_CREDIT (128ull << 20)

#define RG_BULK_CREDIT_LEAST (64u << 10)

/** The room that `size` bytes of one record take: that of the worker's buffers, which have sizes of powers of two. */
static inline uint64_t rg_bulk_credit_of(size_t size)
{
    uint64_t room = RG_BULK_CREDIT_LEAST;
    while (room < size)
        room *= 2;
    return room;
}

#endif
