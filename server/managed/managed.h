/*
 * managed.h - memory that the client's host addresses as well: managed memory, and host memory of the client
 * that is mapped into the device.
 *
 * Managed memory is device memory of the driver here. Host memory is memory of this process at the client's
 * own address, page-locked and mapped into the device, so that a kernel finds it where the client's program
 * has it.
 *
 * Internal to managed/. What the device and the host write of it travels by contents.c.
 */
#ifndef RG_SERVER_MANAGED_MANAGED_H
#define RG_SERVER_MANAGED_MANAGED_H

#include "common/base/limits.h"
#include "server/core/worker.h"
#include "server/managed/postponed.h"

#define RG_MANAGED_STAGING RG_BULK_MAX /* bytes of one half of a context's buffer */

struct rg_managed_context {
    struct rg_managed_context *next;
    uint64_t handle;
    CUcontext object;
    CUstream stream; /* for contents alone */
    unsigned char *staging;
};

/* Host memory at an address of the client's. */
struct rg_host_mapping {
    struct rg_host_mapping *next;
    uint64_t context;
    uint64_t start, size;
};

struct rg_managed {
    pthread_mutex_t lock;
    struct rg_managed_context *contexts;
    struct rg_host_mapping *hosts;
    struct {
        uint64_t context;
        CUstream stream;
    } * streams; /* of all contexts, to ask whether they work */
    size_t n_streams, capacity;
    struct rg_postponed postponed; /* with a lock of its own */
};

/** NULL: nothing is shared with the context. The lock is held. */
struct rg_managed_context *rg_managed_find_context(struct rg_managed *managed, uint64_t handle);
/**
 * The address of [address, address + size) if that is host memory which the client shares; else NULL. The lock is held.
 */
unsigned char *rg_managed_host_memory(const struct rg_managed *managed, uint64_t address, uint64_t size);

/** The module's hooks (server/core/module.h). */
enum rg_answered rg_managed_answer(struct rg_worker *worker, const struct rg_message_header *header,
                                   const struct rg_answer *request, size_t bulk_size);
/** Takes what was postponed while the session was suspended, in its order. */
void rg_managed_reopened(struct rg_worker *worker);

#endif
