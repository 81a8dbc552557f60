/*
 * nccl_network.h - how ranks of the software device's NCCL that are in several processes reach each other, and what their ids are.
 *
 * The library opens no sockets. Whoever has loaded it gives it connections (links), which it gets from elsewhere: a worker those that
 * its server has been asked for. Without any, all ranks are in one process. The library says hello on each link, and hears which
 * process the other end says that it is. It believes that of a link that was made to the place where that process is; of one that was
 * made by the other end, not before that has named the communicator, which only its ranks can. A place is what tells how a process
 * is found, and only whoever makes links looks into it.
 *
 * Threads: a link has one reader at a time, which calls `message` for each message that came, and a thread that calls `lost` as the last. The library sends by a
 * thread of its own for each link. Nothing here waits for a stream.
 */
#ifndef RG_COMMON_CUDA_NCCL_NETWORK_H
#define RG_COMMON_CUDA_NCCL_NETWORK_H

#include "common/cuda/nccl.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What is known of how a call goes: */
#define RG_NCCL_PART          ((size_t)512 << 10) /* bytes of a buffer that go at once */
#define RG_NCCL_PARTS_AT_ONCE 5                   /* parts of a single call that are under way at once */
#define RG_NCCL_SMALL         4096 /* bytes of a rank that go with the word that it is there, where all need them */

#define RG_NCCL_PLACE_BYTES 104
#define RG_NCCL_ID_MAGIC    "softNCCL" /* 8 bytes, without the zero */

/** An ncclUniqueId of the software device's NCCL. Who has it may be a rank. */
struct rg_nccl_id {
    char magic[8];
    uint64_t key;     /* random: names the communicator */
    uint64_t process; /* random: in which it was made, and where the ranks find each other */
    unsigned char place[RG_NCCL_PLACE_BYTES]; /* of that process; zeros: it has not been told */
};
static_assert(sizeof(struct rg_nccl_id) == NCCL_UNIQUE_ID_BYTES, "an id is an id of NCCL's");

/** Whether the id is of the software device's NCCL. */
static inline bool rg_nccl_id_is_ours(const void *id)
{
    return memcmp(id, RG_NCCL_ID_MAGIC, 8) == 0;
}

/** What the library needs of a link: the functions of whoever has loaded it. False: the link is lost, of which `lost` tells. */
struct rg_nccl_network {
    /** Sends a message of at most RG_MESSAGE_MAX bytes with `data_size` bytes of data, at most RG_BULK_MAX. One thread at a time. */
    bool (*send)(void *link, const void *message, size_t size, const void *data, size_t data_size);
    /** Takes the data of the message that is being told; NULL: throws it away. Inside of `message` alone, for all of it. */
    bool (*receive)(void *link, void *memory, size_t size);
    /**
     * The caller's thread does what the link's reader does, for one message, if that comes within a millisecond. False: none came, or
     * another thread is reading. No lock of the library's is held that `message` takes.
     */
    bool (*read)(void *link);
    /** Ends the link, whoever is inside of it. */
    void (*interrupt)(void *link);
    /** Whether the link was made from here, to the process that is found at that place. Any lock of the library's may be held. */
    bool (*leads_to)(void *link, const unsigned char place[RG_NCCL_PLACE_BYTES]);
};

struct sg_peer;

/** What the library has beside NCCL's functions; it exports this as rg_nccl_extension. Any thread. */
struct rg_nccl_extension {
    size_t size; /* of the structure: another one's members are not to be used */
    /** Before any communicator. `network` stays valid. */
    void (*use)(const struct rg_nccl_network *network);
    /** Where others find this process. */
    void (*set_place)(const unsigned char place[RG_NCCL_PLACE_BYTES]);
    /** A link has come to be; what its reader is to call with. NULL: there is no memory, or no thread. */
    struct sg_peer *(*opened)(void *link);
    /** False: the other end breaks the protocol, or the link is lost; the reader is to end. */
    bool (*message)(struct sg_peer *peer, const void *message, size_t size, size_t data_size);
    /** No more messages come, and none can be sent: the peer ends here. */
    void (*lost)(struct sg_peer *peer);
    /**
     * Whether a communicator has begun (ncclSuccess) or failed, or processes are to be connected to: ncclInProgress, and up to
     * `most` places of them, each of which is told once. With `waits`, not before one of these is so.
     */
    ncclResult_t (*await)(ncclComm_t comm, bool waits, unsigned char (*places)[RG_NCCL_PLACE_BYTES],
                          unsigned most, unsigned *n);
    /** A process that the communicator needs cannot be reached, and why. */
    void (*unreachable)(ncclComm_t comm, const char *why);
    /** The communicator fails as if it were aborted, and is still there: who waits for something of it goes on. */
    void (*give_up)(ncclComm_t comm);
    /** Nobody may wait any more: the session is over. */
    void (*end)(void);
};
#define RG_NCCL_EXTENSION "rg_nccl_extension"

#endif
