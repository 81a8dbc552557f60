/* place.h - where a request goes: the devices of a server that fit together best, and the best server. */
#ifndef RG_POOL_SCHEDULE_PLACE_H
#define RG_POOL_SCHEDULE_PLACE_H

#include "pool/schedule/plan.h"

/** A place: devices, as bits by server. */
struct rg_pool_place {
    uint32_t n_servers;
    uint32_t servers[RG_SERVERS_MAX];
    uint64_t devices[RG_SERVERS_MAX]; /* of each server */
    enum rg_pool_closeness closeness;
};

/** What somebody could have who comes now. */
enum rg_pool_view {
    RG_POOL_ALL_FREE, /* whatever is free, for whomever it may be reserved */
    RG_POOL_ALLOWED, /* without what is reserved for others from a time on at which it would still be in use */
};

/** The devices of a server that are a class's now; `limit` of the request: for RG_POOL_ALLOWED. */
uint64_t rg_pool_fitting(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint32_t server,
                         enum rg_pool_view view, uint64_t limit);
/** The best place of all servers for a request with this time limit; false if there is none now. */
bool rg_pool_place(const struct rg_pool_plan *plan, const struct rg_pool_class *class, uint64_t limit,
                   struct rg_pool_place *place);
/** The most GPUs that the class could have now, of one server (or several), and the server that has most (or RG_POOL_NONE). */
uint32_t rg_pool_most_fitting(const struct rg_pool_plan *plan, const struct rg_pool_class *class,
                              enum rg_pool_view view, uint64_t limit, uint32_t *server);

#endif
