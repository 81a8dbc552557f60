/*
 * other_process.h - a process with a rank and another one that is the test: what that says, by links that send nowhere. The streams are
 * streams.h's.
 */
#ifndef RG_TESTS_SOFTGPU_NCCL_OTHER_PROCESS_H
#define RG_TESTS_SOFTGPU_NCCL_OTHER_PROCESS_H

#include "common/base/log.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/driver.h"
#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/extension.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/peer.h"
#include "softgpu/nccl/split.h"
#include "tests/check.h"
#include "tests/softgpu/nccl/streams.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OTHER 0x1111222233334444ull /* the other process */
#define KEY   0x5555666677778888ull

enum {
    RANKS = 2,
    COUNT = 2048,
    SMALL = 4
}; /* elements: of operations whose data goes by itself, and of others */

extern const struct rg_nccl_extension rg_nccl_extension;

static float given[COUNT], got[COUNT];
static ncclComm_t comm; /* rank 0, here; rank 1 is the other process's */
static void (*while_receiving)(void);
static uint64_t key = KEY; /* of the communicator that is spoken of */

/* A link, and how often it was told what. */
struct link {
    bool made_here;
    atomic_uint told[SG_WIRE_MEET + 1]; /* by enum sg_wire_type */
};

static inline bool send_nowhere(void *link, const void *message, size_t size, const void *data,
                                size_t data_size)
{
    struct sg_wire wire;
    (void)size, (void)data, (void)data_size;
    memcpy(&wire, message, sizeof wire);
    atomic_fetch_add(&((struct link *)link)->told[wire.type], 1);
    return true;
}

static inline bool receive(void *link, void *memory, size_t size)
{
    void (*const then)(void) = while_receiving;
    (void)link;
    while_receiving = NULL;
    if (then)
        then();
    if (memory)
        memset(memory, 0, size);
    return true;
}

static inline bool read_nothing(void *link)
{
    (void)link;
    return false;
}

static unsigned interrupted; /* links */

static inline void interrupt(void *link)
{
    (void)link;
    interrupted++;
}

/* Places are not told apart: a link that is made here leads to whoever says that he is there. */
static inline bool leads_to(void *link, const unsigned char place[RG_NCCL_PLACE_BYTES])
{
    (void)place;
    return ((const struct link *)link)->made_here;
}

static const struct rg_nccl_network network = {.send = send_nowhere,
                                               .receive = receive,
                                               .read = read_nothing,
                                               .interrupt = interrupt,
                                               .leads_to = leads_to};

static inline bool say(struct sg_peer *peer, struct sg_wire wire, const void *behind, size_t size,
                       size_t data)
{
    unsigned char message[sizeof wire + SG_NCCL_SMALL]; /* the longest of all */
    CHECK(size <= sizeof message - sizeof wire);
    if (wire.type != SG_WIRE_HELLO)
        wire.clique = key;
    memcpy(message, &wire, sizeof wire);
    if (size)
        memcpy(message + sizeof wire, behind, size);
    return rg_nccl_extension.message(peer, message, sizeof wire + size, data);
}

/* Somebody comes by a link, and says which process he is. */
static inline struct sg_peer *meet_as(uint64_t process, struct link *link)
{
    struct sg_peer *peer = rg_nccl_extension.opened(link);
    CHECK(peer);
    CHECK(say(peer,
              (struct sg_wire){.type = SG_WIRE_HELLO,
                               .version = NCCL_VERSION_CODE,
                               .clique = process,
                               .number = SG_WIRE_PROTOCOL},
              NULL, 0, 0));
    return peer;
}

static inline struct sg_peer *meet(void)
{
    static struct link link = {.made_here = true};
    return meet_as(OTHER, &link);
}

static inline bool say_it(struct sg_peer *peer, enum sg_wire_type type)
{
    return say(peer, (struct sg_wire){.type = type}, NULL, 0, 0);
}

/* Rank 0 joins an id that the other process has made. */
static inline void join(int ranks)
{
    struct rg_nccl_id id = {.key = KEY, .process = OTHER};
    ncclUniqueId given_id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memcpy(id.magic, RG_NCCL_ID_MAGIC, sizeof id.magic);
    memcpy(&given_id, &id, sizeof id);
    CHECK(sg_ncclCommInitRankConfig(&comm, ranks, given_id, 0, &config) == ncclInProgress);
}

/* Says in which processes the ranks are. */
static inline bool say_places(struct sg_peer *peer, const struct sg_wire_place *places, int ranks)
{
    return say(peer, (struct sg_wire){.type = SG_WIRE_TABLE, .ranks = ranks}, places,
               (size_t)ranks * sizeof *places, 0);
}

/* A communicator whose id the other process has made, which has all ranks but this one. */
static inline struct sg_peer *begin_of(int ranks)
{
    struct sg_wire_place places[SG_NCCL_RANKS_MAX] = {{.process = sg_process()}};
    struct sg_peer *peer = meet();
    for (int rank = 1; rank < ranks; rank++)
        places[rank].process = OTHER;
    join(ranks);
    CHECK(say_places(peer, places, ranks));
    CHECK(say_it(peer, SG_WIRE_READY));
    CHECK(sg_clique_state(comm) == ncclSuccess);
    return peer;
}

static inline struct sg_peer *begin(void)
{
    return begin_of(RANKS);
}

static inline void end(struct sg_peer *one, struct sg_peer *other)
{
    rg_nccl_extension.end();
    streams_run();
    CHECK(sg_ncclCommAbort(comm) == ncclSuccess);
    rg_nccl_extension.lost(one);
    if (other)
        rg_nccl_extension.lost(other);
    CHECK(!*sg_cliques());
}

static inline struct sg_wire of_sum(enum sg_wire_type type, enum sg_phase phase, bool last)
{
    return (struct sg_wire){.type = type,
                            .rank = 1,
                            .source = -1,
                            .kind = SG_NCCL_ALL_REDUCE,
                            .dtype = ncclFloat32,
                            .op = ncclSum,
                            .count = COUNT,
                            .whole = COUNT,
                            .phase = (int)phase,
                            .last = last};
}

static inline bool is_there(uint64_t number)
{
    pthread_mutex_lock(&comm->clique->lock);
    const bool there = sg_exchange_find(comm->clique, -1, 0, number) != NULL;
    pthread_mutex_unlock(&comm->clique->lock);
    return there;
}

/* Waits until nothing of the first operation is to be sent any more. */
static inline void await_sent(void)
{
    struct sg_clique *clique = comm->clique;
    const struct sg_exchange *exchange;
    pthread_mutex_lock(&clique->lock);
    while ((exchange = sg_exchange_find(clique, -1, 0, 0)) != NULL && exchange->outgoing)
        pthread_cond_wait(&clique->changed, &clique->lock);
    pthread_mutex_unlock(&clique->lock);
}

/* Waits until what the rank gives has been sent. */
static inline void await_sent_given(void)
{
    struct sg_clique *clique = comm->clique;
    const struct sg_exchange *exchange;
    pthread_mutex_lock(&clique->lock);
    while ((exchange = sg_exchange_find(clique, -1, 0, 0)) != NULL && exchange->outgoing > 1)
        pthread_cond_wait(&clique->changed, &clique->lock);
    pthread_mutex_unlock(&clique->lock);
}

#endif
