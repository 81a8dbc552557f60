/*
 * registry.h - what the worker may name by id: transfers, host functions, fences. For the files that make
 * such things.
 *
 * Each kind has a structure that begins with a struct rg_transfer, and a table of what the kinds differ in.
 * The worker names one by its id; everything else it says (offset, size) is checked against what this side
 * has registered before any memory is touched.
 *
 * Memory of the application's is touched only while its call, or the copy that it has queued, lasts, whatever
 * the worker sends and when: a transfer ends when it is out of the registry *and* nothing is received into it
 * or sent from it any more (rg_registry_receiving, the parts of rendezvous.c). Whoever ends one waits for
 * that; so does the end of a session, before any call is told of it (settle.c).
 *
 * All of it is guarded by one lock, which is a leaf.
 */
#ifndef RG_CLIENT_TRANSFER_REGISTRY_H
#define RG_CLIENT_TRANSFER_REGISTRY_H

#include "client/core/region.h"
#include "common/base/hash_table.h"
#include "proto/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rg_session;
struct rg_transfer;

/** What kinds of transfers differ in. */
struct rg_transfer_kind {
    unsigned notice; /* enum rg_notice_type: by which the worker names one */
    /**
     * The notice has come. The lock is held, and given up by this. False: the notice does not fit. The
     * reader.
     */
    bool (*progress)(struct rg_transfer *transfer, const struct rg_notice *notice, size_t bulk_size);
    /**
     * The session has ended and nothing comes any more; the transfer is freed after this. No lock is held.
     * May be NULL.
     */
    void (*lost)(struct rg_transfer *transfer);
    bool queued;      /* uses memory of the application's after its call has returned */
    bool writes_host; /* and may write any memory of the host meanwhile, as host functions do */
    bool awaited;     /* a call waits for it, so no notice is expected that comes by itself */
    bool sends;       /* its bytes go to the worker */
};

struct rg_transfer {
    struct rg_hash_link link;
    struct rg_transfer *next; /* of those that settle.c drops */
    uint64_t id;
    struct rg_session *session;
    const struct rg_transfer_kind *kind;
    struct rg_region memory; /* of the host; what has none: no bytes */
    bool advertised;         /* the worker may write the memory itself */
    bool revoked; /* the memory is the application's again: what comes is dropped; zeros are sent */
};

extern pthread_mutex_t rg_registry_lock;
/** Something was received, or a part of a rendezvous has been sent. */
extern pthread_cond_t rg_registry_idle;

/** A zeroed structure of `size` bytes that begins with a struct rg_transfer; NULL: no memory. */
void *rg_registry_new(struct rg_session *session, const struct rg_transfer_kind *kind, size_t size);
/**
 * Gives it an id and lets the worker name it; from here on the end of the session may free it. Returns the
 * id. What the worker does by itself is expected.
 */
uint64_t rg_registry_add(struct rg_transfer *transfer);
/** One of a session's, or of any (NULL). The lock is held. */
struct rg_transfer *rg_registry_find(const struct rg_session *session, uint64_t id);
/** Finds one and takes it out. The lock is held. */
struct rg_transfer *rg_registry_take(uint64_t id);
/** The first for which `match` is true. The lock is held. */
struct rg_transfer *rg_registry_search(bool (*match)(const struct rg_transfer *transfer, const void *user),
                                       const void *user);
/** One that may have written memory of the host has done so. The lock is not held. */
void rg_registry_done(const struct rg_session *session, const struct rg_transfer_kind *kind);
/**
 * Ends one that is out of the registry: nothing of it is expected any more, and it is freed. The lock is not
 * held.
 */
void rg_registry_end(struct rg_transfer *transfer);

/** The reader begins to receive into a transfer's memory. The lock is held. */
void rg_registry_receiving(const struct rg_session *session, uint64_t id);
/**
 * It has received that. `ended`: the transfer that ends with this, or 0. Returns it, which is the caller's
 * then; or NULL: the end of the session was faster.
 */
struct rg_transfer *rg_registry_received(const struct rg_session *session, uint64_t ended);
/**
 * Waits until nothing is received into a transfer that is out of the registry, or revoked, and may be gone
 * then; id 0: into any. The lock is held.
 */
void rg_registry_wait_received(const struct rg_session *session, uint64_t id);

/**
 * Withdraws the memory from the worker, if it is advertised, and frees a transfer that is out of the
 * registry. NULL is fine.
 */
void rg_registry_free(struct rg_transfer *transfer);

#endif
