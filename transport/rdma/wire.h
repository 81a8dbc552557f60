/*
 * wire.h - what travels between two ends of transport rdma.
 *
 * One reliable-connected queue pair a connection, set up by rdma_cm; struct rg_rdma_private travels as its private
 * data. Everything else is fragments: a head of 16 bytes and a payload, one SEND each, into receives that
 * were posted before. All integers are little-endian.
 *
 *   DATA     a piece of the stream of messages. A message starts with a fragment of its own, whose payload begins with
 *            struct rg_rdma_message; message and, in mode COPIED, bulk data follow.
 *   CREDIT   nothing but the head: receives that are posted again
 *   READY_TO_RECEIVE    (mode WRITTEN) where the next bytes of the current message's bulk data are to be written
 *   ARRIVAL   they are there
 *   ADVERTISE     (modes ADVERTISED) memory where the peer may place bulk data without asking (advertised.c)
 *   CHECK_*  the self-test at the start of a connection (check.c)
 *   BYE      no message follows
 *
 * Flow control: the sender of DATA holds a credit for each receive of the peer that is meant for DATA. The
 * others (RG_RDMA_SPARE) take what is never more than a few at a time: two CREDITs (each stands for half of
 * the receives), one READY_TO_RECEIVE, one ARRIVAL, one BYE, and RG_RDMA_ADVERTISEMENTS ADVERTISEs, which
 * each side counts as the other one tells how many it has seen. So no receive is ever missing, and nobody
 * waits for the peer's receiver to send them.
 */
#ifndef RG_TRANSPORT_RDMA_WIRE_H
#define RG_TRANSPORT_RDMA_WIRE_H

#include "common/base/limits.h"
#include "transport/transport.h"

#include <assert.h>
#include <endian.h>
#include <stdint.h>

enum {
    RG_RDMA_SLOT = 16384,                       /* bytes of a fragment */
    RG_RDMA_SLOTS = 64,                         /* receives for DATA, and credits at the start */
    RG_RDMA_ADVERTISEMENTS = 16,                /* ADVERTISEs that the peer has not told of having seen */
    RG_RDMA_SPARE = 8 + RG_RDMA_ADVERTISEMENTS, /* receives for everything else */
    RG_RDMA_CHUNKS = 16,                        /* pieces of memory advertised for whatever bulk data comes */
    RG_RDMA_DESTINATIONS = 8,                   /* pieces of memory advertised for bulk data with a tag */
    RG_RDMA_ADVERTS = RG_RDMA_CHUNKS + RG_RDMA_DESTINATIONS,
    RG_RDMA_SEGMENTS = 4,        /* regions that one READY_TO_RECEIVE may name */
    RG_RDMA_COPIED_MAX = 262144, /* bulk data of unregistered memory travels as DATA up to here */
};

/** Private data of connecting and accepting; at most 56 bytes travel with a request. */
#define RG_RDMA_MAGIC   0x52475230u /* "RGR0" */
#define RG_RDMA_VERSION 3u
enum {
    RG_RDMA_TWO_SIDED = 1u, /* flags: nothing but SEND and RECV is to be used */
    RG_RDMA_DELIVERS = 2u,  /* both ends are to wait until what they send has arrived */
};

struct rg_rdma_private {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint8_t token[RG_TRANSPORT_TOKEN]; /* of who connects; zeros: none */
};
static_assert(sizeof(struct rg_rdma_private) == 8 + RG_TRANSPORT_TOKEN, "no padding on the wire");

enum rg_rdma_type {
    RG_RDMA_DATA = 1,
    RG_RDMA_CREDIT = 2,
    RG_RDMA_READY_TO_RECEIVE = 3,
    RG_RDMA_ARRIVAL = 4,
    RG_RDMA_BYE = 5,
    RG_RDMA_CHECK_AREA = 6,    /* payload: struct rg_rdma_segment */
    RG_RDMA_CHECK_WRITTEN = 7, /* payload: u32, 1: a pattern was written there */
    RG_RDMA_CHECK_VERDICT = 8, /* payload: u32, 1: it was found */
    RG_RDMA_ADVERTISE = 9,     /* payload: struct rg_rdma_advertise */
};

#define RG_RDMA_FRAGMENT_MAGIC 0x4647u /* "GF" */

struct rg_rdma_fragment {
    uint16_t magic;
    uint8_t type;
    uint8_t reserved;
    uint16_t credits; /* receives posted again since the last fragment */
    uint16_t reserved2;
    uint32_t length;              /* of the payload */
    uint32_t advertisements_seen; /* ADVERTISEs received so far */
};
static_assert(sizeof(struct rg_rdma_fragment) == 16, "16 bytes on the wire");

#define RG_RDMA_PAYLOAD (RG_RDMA_SLOT - sizeof(struct rg_rdma_fragment))

/*
 * ADVERTISED: a struct rg_rdma_piece in a DATA fragment of its own for each piece, behind the write that it
 * tells of.
 */
enum rg_rdma_bulk_mode { RG_RDMA_BULK_COPIED = 0, RG_RDMA_BULK_WRITTEN = 1, RG_RDMA_BULK_ADVERTISED = 2 };

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

/** Payload of READY_TO_RECEIVE. */
struct rg_rdma_ready_to_receive {
    uint32_t n; /* 1 to RG_RDMA_SEGMENTS */
    uint32_t reserved;
    struct rg_rdma_segment segments[RG_RDMA_SEGMENTS];
};
static_assert(sizeof(struct rg_rdma_ready_to_receive) == 8 + 16 * RG_RDMA_SEGMENTS, "no padding on the wire");

/**
 * Payload of ADVERTISE. A advert with a tag is there until another ADVERTISE takes its slot, one without for
 * one piece.
 */
struct rg_rdma_advertise {
    uint16_t slot; /* below RG_RDMA_CHUNKS: without a tag */
    uint16_t n;    /* 1 to RG_RDMA_SEGMENTS */
    uint32_t reserved;
    uint64_t tag, base; /* of its first byte, among what the tag stands for */
    struct rg_rdma_segment segments[RG_RDMA_SEGMENTS];
};
static_assert(sizeof(struct rg_rdma_advertise) == 24 + 16 * RG_RDMA_SEGMENTS, "no padding on the wire");

/** Bulk data that was placed into advertised memory. */
struct rg_rdma_piece {
    uint16_t slot;
    uint16_t reserved;
    uint32_t length;
    uint64_t offset; /* within the memory advertised */
};
static_assert(sizeof(struct rg_rdma_piece) == 16, "16 bytes on the wire");

#endif
