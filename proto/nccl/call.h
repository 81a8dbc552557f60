/* call.h - what the words of rgNcclGroup, rgNcclPost and rgNcclBegin are (proto/api/nccl.api). Values are NCCL's own numbers. */
#ifndef RG_PROTO_NCCL_CALL_H
#define RG_PROTO_NCCL_CALL_H

#include "common/base/limits.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum rg_nccl_kind {
    RG_NCCL_ALL_REDUCE = 1,
    RG_NCCL_REDUCE = 2,
    RG_NCCL_BROADCAST = 3,
    RG_NCCL_ALL_GATHER = 4,
    RG_NCCL_REDUCE_SCATTER = 5,
    RG_NCCL_SEND = 6,
    RG_NCCL_RECEIVE = 7,
};

struct rg_nccl_call {
    uint64_t kind, comm;
    uint64_t send, receive; /* device addresses; 0 where the rank needs none */
    uint64_t count, type, op;
    uint64_t peer; /* the root, or the other end */
    uint64_t stream;
};
#define RG_NCCL_CALL_WORDS 9
static_assert(sizeof(struct rg_nccl_call) == RG_NCCL_CALL_WORDS * 8, "a call is words");

struct rg_nccl_beginning {
    uint64_t comm;   /* the number that it gets */
    uint64_t parent; /* that it is made of; RG_NCCL_COMMS_MAX: of none */
    uint64_t shrink; /* enum rg_nccl_shrink */
    uint64_t ranks;  /* of a split: the colour, in 32 bits */
    uint64_t rank;   /* of a split: the key, in 32 bits */
    uint64_t device; /* the server's number */
    uint64_t blocking;
    uint64_t id[16]; /* of none: the id. Of one that is shrunk: the ranks that stay away, a bit each */
};
#define RG_NCCL_BEGINNING_WORDS 23
/** How it is made of its parent: split, or without some ranks, after all that goes on in the parent has ended or not. */
enum rg_nccl_shrink { RG_NCCL_SPLIT = 0, RG_NCCL_SHRINK = 1, RG_NCCL_SHRINK_ABORT = 2 };
static_assert(sizeof(struct rg_nccl_beginning) == RG_NCCL_BEGINNING_WORDS * 8, "a beginning is words");

static_assert(RG_NCCL_GROUP_MAX * RG_NCCL_CALL_WORDS <= RG_ARRAY_MAX, "a group is one array");
static_assert(RG_NCCL_GROUP_MAX * sizeof(struct rg_nccl_call) < RG_MESSAGE_MAX, "and one message");
static_assert(RG_NCCL_BEGINNINGS_MAX * sizeof(struct rg_nccl_beginning) < RG_MESSAGE_MAX,
              "so are beginnings");

enum rg_nccl_end {
    RG_NCCL_FINALIZE = 0,
    RG_NCCL_DESTROY = 1,
    RG_NCCL_ABORT = 2,
};

/** How a worker is found: what rgNcclPlace tells it of itself, and an id, or rgNcclAwait, of another one. */
struct rg_nccl_place {
    uint64_t session;    /* its number there */
    uint8_t address[16]; /* of the server, as servers reach it; IPv4: the first 4 */
    uint16_t port;
    uint8_t family; /* RG_NCCL_PLACE_* */
    uint8_t reserved;
    char server[76]; /* as its client names the server; of a unix socket: its path */
};
static_assert(sizeof(struct rg_nccl_place) == 104,
              "a place has its room in an id (common/cuda/nccl_network.h)");
enum { RG_NCCL_PLACE_UNKNOWN, RG_NCCL_PLACE_UNIX, RG_NCCL_PLACE_IPV4 = 4, RG_NCCL_PLACE_IPV6 = 6 };

/** Whether both are of one server. */
static inline bool rg_nccl_place_is_same(const struct rg_nccl_place *one, const struct rg_nccl_place *other)
{
    return one->family == other->family && one->port == other->port &&
           memcmp(one->address, other->address, sizeof one->address) == 0 &&
           (one->family != RG_NCCL_PLACE_UNIX ||
            strncmp(one->server, other->server, sizeof one->server) == 0);
}

#define RG_NCCL_PLACES 8u /* that one answer has */

#define RG_NCCL_TEXT_BYTES 512u

#endif
