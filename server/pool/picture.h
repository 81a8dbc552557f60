/*
 * picture.h - the pool as the scheduling policy takes it (pool/schedule.h), drawn from the mirror of what etcd has.
 *
 * A picture points into the mirror, and is good until that changes. One thread.
 */
#ifndef RG_SERVER_POOL_PICTURE_H
#define RG_SERVER_POOL_PICTURE_H

#include "pool/schedule.h"
#include "pool/state/mirror.h"

/** What a user has measured from a machine. */
struct rg_picture_links {
    const json_t *value;        /* as it lies under links/ */
    struct rg_pool_link *links; /* of each server */
};

/** A snapshot, and where what is in it lies in the mirror. */
struct rg_picture {
    struct rg_pool_snapshot snapshot;
    struct rg_pool_server *servers;
    struct rg_pool_label *labels; /* and taints, and tolerations of requests */
    struct rg_pool_device *devices;
    struct rg_pool_lease *leases;
    struct rg_pool_part *parts;
    struct rg_pool_request *requests;
    struct rg_pool_filter *filters;
    const char **named; /* UUIDs that requests name */
    struct rg_pool_account *accounts;
    struct rg_picture_links *links; /* that requests refer to */
    uint32_t n_links;
    const struct rg_pool_member **members; /* of each server */
    const struct rg_pool_gpu **gpus;       /* of each device */
    /* of each request; NULL of one that is a lease which is suspended, and comes back (requests[i].id is its id) */
    const struct rg_pool_entry **queued;
};

/**
 * Draws the pool with all that waits, also leases that are suspended; with `extra`, a request as it is written under requests/, with that one alone. False: no
 * memory, or the filters of `extra` are not understood; `why` says which. To be ended in either case.
 */
bool rg_picture_draw(const struct rg_pool_mirror *mirror, const json_t *extra, struct rg_picture *picture,
                     char *why, size_t why_size);
void rg_picture_fini(struct rg_picture *picture);

/* links.c */
/** What somebody (RG_AGENT_WHO) has measured from a machine, as it lies under links/; NULL: nothing is known. */
const json_t *rg_links_of(const struct rg_pool_mirror *mirror, const char *key, const char *machine);
/** The same for the policy; the picture's servers must be drawn. NULL: nothing is known, or there is no memory. */
const struct rg_pool_link *rg_links_draw(const struct rg_pool_mirror *mirror, struct rg_picture *picture,
                                         const char *key, const char *machine);

#endif
