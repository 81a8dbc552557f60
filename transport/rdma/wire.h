/*
 * wire.h - what travels between two ends of transport rdma.
 *
 * One reliable-connected queue pair a connection, set up by rdma_cm; RG_RDMA_PRIVATE travels as its private data.
 * Everything else is fragments: a head of 16 bytes and a payload, one SEND each, into receives that were posted
 * before. All integers are little-endian.
 *
 *   DATA     a piece of the stream of messages. A message starts with a fragment of its own, whose payload begins with
 *            struct rg_rdma_message; message and, in mode COPIED, bulk data follow.
 *   CREDIT   nothing but the head: receives that are posted again
 *   READY    (mode PLACED) where the next bytes of the current message's bulk data are to be written
 *   PLACED   they are there
 *   CHECK_*  the self-test at the start of a connection (check.c)
 *   BYE      no message follows
 *
 * Flow control: the sender of DATA holds a credit for each receive of the peer that is meant for DATA. The others
 * (RG_RDMA_SPARE) take what is never more than a few at a time: two CREDITs (each stands for half of the receives), one
 * READY, one PLACED, one BYE. So no receive is ever missing, and nobody waits for the peer's receiver to send them.
 */
#ifndef RG_TRANSPORT_RDMA_WIRE_H
#define RG_TRANSPORT_RDMA_WIRE_H

#include "common/limits.h"

#include <assert.h>
#include <endian.h>
#include <stdint.h>

enum {
    RG_RDMA_SLOT = 16384,        /* bytes of a fragment */
    RG_RDMA_SLOTS = 64,          /* receives for DATA, and credits at the start */
    RG_RDMA_SPARE = 8,           /* receives for everything else */
    RG_RDMA_SEGMENTS = 4,        /* regions that one READY may name */
    RG_RDMA_COPIED_MAX = 262144, /* bulk data of unregistered memory travels as DATA up to here */
};

/** Private data of connecting and accepting. */
#define RG_RDMA_MAGIC   0x52475230u /* "RGR0" */
#define RG_RDMA_VERSION 1u
enum { RG_RDMA_TWO_SIDED = 1u }; /* flags: nothing but SEND and RECV is to be used */

struct rg_rdma_private {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
};
static_assert(sizeof(struct rg_rdma_private) == 8, "8 bytes on the wire");

enum rg_rdma_type {
    RG_RDMA_DATA = 1,
    RG_RDMA_CREDIT = 2,
    RG_RDMA_READY = 3,
    RG_RDMA_PLACED = 4,
    RG_RDMA_BYE = 5,
    RG_RDMA_CHECK_AREA = 6,    /* payload: struct rg_rdma_segment */
    RG_RDMA_CHECK_WRITTEN = 7, /* payload: u32, 1: a pattern was written there */
    RG_RDMA_CHECK_VERDICT = 8, /* payload: u32, 1: it was found */
};

#define RG_RDMA_FRAGMENT_MAGIC 0x4647u /* "GF" */

struct rg_rdma_fragment {
    uint16_t magic;
    uint8_t type;
    uint8_t reserved;
    uint16_t credits; /* receives posted again since the last fragment */
    uint16_t reserved2;
    uint32_t length; /* of the payload */
    uint32_t reserved3;
};
static_assert(sizeof(struct rg_rdma_fragment) == 16, "16 bytes on the wire");

#define RG_RDMA_PAYLOAD (RG_RDMA_SLOT - sizeof(struct rg_rdma_fragment))

enum rg_rdma_bulk_mode { RG_RDMA_BULK_COPIED = 0, RG_RDMA_BULK_PLACED = 1 };

struct rg_rdma_message {
    uint32_t msg_size;  /* at most RG_MESSAGE_MAX */
    uint32_t bulk_size; /* at most RG_BULK_MAX */
    uint32_t bulk_mode;
    uint32_t reserved;
};
static_assert(sizeof(struct rg_rdma_message) == 16, "messages are aligned to 16 bytes in their slot");

struct rg_rdma_segment {
    uint64_t address;
    uint32_t key;
    uint32_t length;
};
static_assert(sizeof(struct rg_rdma_segment) == 16, "16 bytes on the wire");

/** Payload of READY. */
struct rg_rdma_ready {
    uint32_t n; /* 1 to RG_RDMA_SEGMENTS */
    uint32_t reserved;
    struct rg_rdma_segment segments[RG_RDMA_SEGMENTS];
};
static_assert(sizeof(struct rg_rdma_ready) == 8 + 16 * RG_RDMA_SEGMENTS, "no padding on the wire");

#endif
