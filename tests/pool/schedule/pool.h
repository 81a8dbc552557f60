/* pool.h - makes pools for tests: servers, GPUs, leases and requests in a few words. One thread. */
#ifndef RG_TESTS_POOL_SCHEDULE_POOL_H
#define RG_TESTS_POOL_SCHEDULE_POOL_H

#include "pool/schedule.h"

#define GIB    (1ull << 30)
#define SECOND 1000000000ull
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define NOW    (1000 * HOUR) /* when tests take place */

enum { MOST_SERVERS = 64, MOST_DEVICES = 256, MOST_LEASES = 512, MOST_REQUESTS = 512, MOST_ACCOUNTS = 64 };

struct pool {
    struct rg_pool_snapshot snapshot; /* of the arrays below */
    struct rg_pool_policy policy;
    struct rg_pool_outcome outcome; /* of the last pool_decide */
    uint64_t now;
    struct rg_pool_server servers[MOST_SERVERS];
    struct rg_pool_device devices[MOST_DEVICES];
    struct rg_pool_lease leases[MOST_LEASES];
    struct rg_pool_part parts[MOST_LEASES][64];
    struct rg_pool_request requests[MOST_REQUESTS];
    struct rg_pool_account accounts[MOST_ACCOUNTS];
    char names[MOST_SERVERS + MOST_DEVICES + MOST_LEASES + MOST_REQUESTS][24];
    unsigned n_names;
};

/** An empty pool with the default policy; to be ended. */
struct pool *pool_new(void);
void pool_end(struct pool *pool);

/** A server "h0", "h1", … with `n` GPUs of so much memory, in no group, on NUMA node 0. */
struct rg_pool_server *pool_server(struct pool *pool, uint32_t n, uint64_t memory);
/** The device `i` of the server that came last. */
struct rg_pool_device *pool_device(struct pool *pool, uint32_t i);
/** Somebody holds devices [first, first + n), so much of each (0: whole), until then. */
struct rg_pool_lease *pool_lease(struct pool *pool, uint32_t first, uint32_t n, uint64_t memory,
                                 uint64_t ends);
/** A request "r0", "r1", … of a user for n GPUs with so much memory (0: whole); one after the other. */
struct rg_pool_request *pool_ask(struct pool *pool, const char *user, uint32_t n, uint64_t memory);

/** Decides; aborts if that fails. */
void pool_decide(struct pool *pool);
/** The grant of a request, or NULL. */
const struct rg_pool_grant *pool_grant(const struct pool *pool, uint32_t request);
/** What it waits for, or NULL. */
const struct rg_pool_waiting *pool_waits(const struct pool *pool, uint32_t request);
/** The device with this number of a grant. */
uint32_t pool_part(const struct pool *pool, uint32_t request, uint32_t i);
/** The sentence about a request that waits; static storage. */
const char *pool_say(const struct pool *pool, uint32_t request);

#endif
