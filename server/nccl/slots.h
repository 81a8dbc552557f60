/* slots.h - a session's table of communicators, for the files that execute NCCL's calls. What is locked, and when, nccl.c says. */
#ifndef RG_SERVER_NCCL_SLOTS_H
#define RG_SERVER_NCCL_SLOTS_H

#include "proto/nccl/call.h"
#include "server/core/request.h"
#include "server/nccl/library.h"

#include <pthread.h>
#include <stdatomic.h>

/** Some communicator has begun. */
extern atomic_bool rg_nccl_used;

struct rg_nccl_slot {
    ncclComm_t comm; /* NULL: free, or about to begin (`taken`) */
    bool taken;
    bool ending; /* is being aborted: nobody uses it from now on but those who do */
    unsigned users;
    bool blocking; /* as the client has it: the library's may be another one (beginnings.c) */
    int ranks, rank;
    CUdevice device;
    CUcontext context; /* of the device, in which it began */
    int posted;        /* how a call failed that nobody waited for; ncclSuccess: none has */
};

struct rg_nccl_state {
    pthread_mutex_t lock;
    struct rg_nccl_slot slots[RG_NCCL_COMMS_MAX];
};

/** The state of the request's session. Never NULL. */
struct rg_nccl_state *rg_nccl_state_of(struct rg_request *request);
/** The slot of a communicator that is there, which is used from now on; NULL: there is none of that number. */
struct rg_nccl_slot *rg_nccl_use(struct rg_request *request, uint64_t number);
/** One use less; who is the last in one that is ending frees its number. The state's lock is held. */
void rg_nccl_leave(struct rg_nccl_slot *slot);
/** A sentence of the worker's own about what failed last, which stays; NULL: the library's is told. */
void rg_nccl_say(const char *why);

#endif
