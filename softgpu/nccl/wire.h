/*
 * wire.h - what processes with ranks of one communicator say to each other, over links (common/cuda/nccl_network.h).
 *
 *   HELLO    both, first        who is there
 *   JOIN     → where the id was made     a rank is there
 *   TABLE    ← from there       all ranks are there, and in which processes
 *   MEET     from who has made the link, but for where the id was made   the link is for this communicator
 *   READY    all to all         the process is connected to all others: calls may come
 *   SPLIT    all to all         a rank takes part in a split
 *   COME     all to all         a rank's stream has got to an operation, and its process has memory for what it is sent; of a small
 *                               operation (far.h) what the rank gives stands behind it
 *   DATA                        what a rank gives, or has reduced, for an operation whose COME has been heard; with data
 *   FAIL     all to all         the communicator has failed, and why
 *   LEAVE    all to all         the process has no ranks in it any more, and wants nothing
 *
 * Each message is a struct sg_wire, and what stands behind it. Little-endian. Both ends are the same version, or HELLO is the last.
 */
#ifndef SG_NCCL_WIRE_H
#define SG_NCCL_WIRE_H

#include "common/cuda/nccl_network.h"

#define SG_NCCL_RANKS_MAX 64
#define SG_NCCL_WHY       512           /* bytes of a sentence */
#define SG_NCCL_SMALL     RG_NCCL_SMALL /* bytes that a rank gives, which go with SG_WIRE_COME */

enum sg_wire_type {
    SG_WIRE_HELLO = 1,
    SG_WIRE_JOIN,
    SG_WIRE_TABLE,
    SG_WIRE_READY,
    SG_WIRE_SPLIT,
    SG_WIRE_COME,
    SG_WIRE_DATA,
    SG_WIRE_FAIL,
    SG_WIRE_LEAVE,
    SG_WIRE_MEET,
};

#define SG_WIRE_PROTOCOL 4u

struct sg_wire {
    uint32_t type;
    uint32_t version; /* HELLO: NCCL_VERSION_CODE */
    uint64_t clique;  /* its key; HELLO: the process */
    uint64_t number;  /* COME, DATA: of the operation; SPLIT: of the split; HELLO: SG_WIRE_PROTOCOL */
    int32_t rank;     /* JOIN, SPLIT, COME, DATA: whose; FAIL: an ncclResult_t */
    int32_t ranks;    /* JOIN, TABLE */
    int32_t source;   /* COME, DATA: of a message, -1: a collective; SPLIT: the colour */
    int32_t peer;     /* COME, DATA: the root, or who receives the message; SPLIT: the key */
    int32_t kind, dtype, op;
    int32_t phase;         /* DATA: enum sg_phase */
    uint64_t count, whole; /* COME, DATA: elements of the part, and of the call that it is a part of */
    uint64_t offset;       /* DATA: of the data, in what the rank gives, or in all that is reduced */
    uint32_t last;         /* DATA: 1: it is the last of its part */
    uint32_t reserved;
    uint8_t scalar[8]; /* DATA, COME, of an operator that multiplies: by what */
};
static_assert(sizeof(struct sg_wire) == 96, "wire layout");

enum sg_phase { SG_GIVEN, SG_REDUCED };

/** Behind JOIN: where the process is found. Behind TABLE: of each rank, in order. */
struct sg_wire_place {
    uint64_t process;
    unsigned char place[RG_NCCL_PLACE_BYTES];
};
static_assert(sizeof(struct sg_wire_place) == 112, "wire layout");

#endif
