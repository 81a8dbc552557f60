/*
 * optimisations.h - each way in which this client saves time can be switched off by name, so that a suspect
 * can be tried: REMOTE_GPU_OPT="-async,-batch", "-all", "-all,+batch". Results are the same with all of them
 * on or off.
 */
#ifndef RG_CLIENT_CORE_OPTIMISATIONS_H
#define RG_CLIENT_CORE_OPTIMISATIONS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum rg_optimisation {
    RG_OPT_ASYNC,       /* calls that return no data do not wait for the worker */
    RG_OPT_BATCH,       /* calls that do not wait share messages */
    RG_OPT_QUERY_CACHE, /* attributes that cannot change are asked for once */
    RG_OPT_INLINE_SEND, /* a call that does not wait is sent by its own thread where nothing is under way */
    RG_OPT_DEFERRED_COPIES, /* asynchronous copies to pinned memory do not wait for their data */
    RG_OPT_COMPLETION_PUSH, /* what is done is known from what the worker has said; off: each question asks it */
    RG_OPT_PREALLOC,        /* memory is allocated before it is asked for */
    RG_OPT_IMAGE_CACHE,     /* what a load of the same image has answered before is used without waiting */
    RG_OPT_CHUNKS,          /* large copies travel in chunks of what the wire takes in a moment */
    RG_OPT_IMAGE_DEDUP,     /* device code that the server has is not sent again */
    RG_OPT_STARTUP_PREFETCH, /* what a program did when it started before is done before it asks */
    RG_OPT_IMAGE_PREFETCH,   /* the program's own images are loaded and described before it asks */
    RG_OPT_DELTA, /* calls that repeat earlier ones are sent as references to them (proto/delta.h) */
    RG_OPT_PEERS, /* copies between two servers go from one to the other, where they can reach each other */
    RG_OPT_COUNT
};

/** By enum rg_optimisation; constant once the session has begun. */
extern bool rg_optimise[RG_OPT_COUNT];

/** Its name, as in REMOTE_GPU_OPT. */
const char *rg_optimisation_name(enum rg_optimisation optimisation);
/**
 * Whether `list` is as REMOTE_GPU_OPT takes it. RG_ERR_INVALID: `why` names what is not, and what there is.
 * Any thread.
 */
RG_MUST_CHECK enum rg_status rg_optimisations_check(const char *list, char *why, size_t why_size);
/**
 * Whether the program's NCCL is to be the servers' (the name `nccl` in such a list, which `all` does not mean), not a library of its
 * own. NULL is an empty list. Any thread.
 */
bool rg_optimisations_with_nccl(const char *list);
/**
 * Reads REMOTE_GPU_OPT, the first time; warns of names it does not know. Before the session begins, or NVML
 * is used.
 */
void rg_optimisations_read(void);

#endif
