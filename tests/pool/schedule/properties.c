/*
 * properties.c - what must hold for every pool, tried on many made of seeded random numbers.
 *
 * Of one decision: no device is given away twice or beyond its memory, whole devices are shared with nobody, a request
 * gets all of its GPUs on servers that it may use or none, each request is in the outcome once, who waits has a reason,
 * who comes first does not wait for what is free, and the outcome is the same again, however the requests are listed.
 *
 * Of a pool over time: the first of those that wait starts no later than was said, whatever is started before it; with
 * unknown ends it starts as well; the queue becomes empty.
 *
 * usage: pool_properties [SEED]: a single one, for one that failed
 */
#include "tests/pool/schedule/pool.h"
#include "tests/pool/schedule/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t current_seed;
static const char *current_part;

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: seed %lu: %s\n", __FILE__, __LINE__, current_part,                   \
                    (unsigned long)current_seed, #condition);                                                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static const struct rg_pool_label red[] = {{"team", "red"}};
static struct rg_pool_filter filters[4];

static void make_filters(void)
{
    static const char *const texts[] = {"device.memory>=40G", "server.has-rdma=true", "server.hostname!=h1",
                                        "device.index<2"};
    for (int i = 0; i < 4; i++)
        CHECK(rg_pool_filter_parse(texts[i], &filters[i], NULL, 0) == RG_OK);
}

static void random_servers(struct pool *pool, uint64_t *state)
{
    static const uint64_t memories[] = {16 * GIB, 40 * GIB, 80 * GIB};
    const uint32_t n = 1 + random_below(state, 6);
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t n_devices = random_below(state, 9);
        struct rg_pool_server *server = pool_server(pool, n_devices, memories[random_below(state, 3)]);
        server->has_rdma = random_chance(state, 50);
        server->draining = random_chance(state, 10);
        server->taints = red;
        server->n_taints = random_chance(state, 15);
        for (uint32_t i = 0; i < n_devices; i++) {
            struct rg_pool_device *device = pool_device(pool, i);
            device->nvlink_group = random_chance(state, 50) ? (int32_t)(i / 4) : -1;
            device->pcie_group = (int32_t)(i / 2);
            device->numa_node = (int32_t)(i / 4);
            device->memory_outside = random_chance(state, 10) ? GIB : 0;
        }
    }
}

static uint64_t taken(const struct pool *pool, uint32_t device)
{
    uint64_t sum = pool->devices[device].memory_outside;
    for (uint32_t l = 0; l < pool->snapshot.n_leases; l++)
        for (uint32_t p = 0; p < pool->leases[l].n && !pool->leases[l].suspended; p++)
            if (pool->leases[l].parts[p].device == device)
                sum += pool->leases[l].parts[p].memory;
    return sum;
}

static void random_leases(struct pool *pool, uint64_t *state)
{
    for (uint32_t d = 0; d < pool->snapshot.n_devices; d++) {
        const uint64_t left = pool->devices[d].memory - taken(pool, d);
        if (!random_chance(state, 60))
            continue;
        const uint64_t memory = random_chance(state, 50) ? left : left / 4;
        const uint64_t ends =
            random_chance(state, 30) ? RG_POOL_UNKNOWN : NOW - HOUR + random_below(state, 10) * HOUR;
        struct rg_pool_lease *lease = pool_lease(pool, d, 1, memory, ends);
        lease->suspendable = random_chance(state, 50);
        lease->suspending = random_chance(state, 5);
        lease->suspended = random_chance(state, 5);
        lease->priority = (int32_t)random_below(state, 3);
    }
}

static void random_request(struct pool *pool, uint64_t *state)
{
    static const char *const users[] = {"ann", "ben", "cid", "dee"};
    static const char *const projects[] = {NULL, "", "p", "q"};
    struct rg_pool_request *request =
        pool_ask(pool, users[random_below(state, 4)], 1 + random_below(state, 5), 0);
    if (random_chance(state, 50))
        request->memory = (1 + random_below(state, 50)) * GIB;
    if (random_chance(state, 20))
        request->fraction = 1 + random_below(state, 1000000);
    request->project = projects[random_below(state, 4)];
    request->priority = (int32_t)random_below(state, 3);
    request->filters = &filters[random_below(state, 4)];
    request->n_filters = random_chance(state, 30);
    request->tolerations = red;
    request->n_tolerations = random_chance(state, 30);
    request->several_servers = random_chance(state, 30);
    request->strategy = (enum rg_pool_strategy)random_below(state, 3);
    request->submitted = NOW - random_below(state, 50) * HOUR;
    if (random_chance(state, 60))
        request->time_limit = random_below(state, 10) * HOUR / 2;
}

static struct pool *random_pool(uint64_t *state)
{
    struct pool *pool = pool_new();
    random_servers(pool, state);
    random_leases(pool, state);
    for (uint32_t n = random_below(state, 25); n; n--)
        random_request(pool, state);
    pool->policy.reservations = 1 + random_below(state, 8);
    pool->policy.servers_max = 1 + random_below(state, 4);
    pool->policy.preempt = random_chance(state, 50);
    pool->policy.strategy = random_chance(state, 30) ? RG_POOL_SPREAD : RG_POOL_PACK;
    return pool;
}

static uint64_t need(const struct rg_pool_request *request, const struct rg_pool_device *device)
{
    if (!request->memory && !request->fraction)
        return device->memory;
    const uint64_t part = (uint64_t)((unsigned __int128)device->memory * request->fraction / 1000000);
    return part > request->memory ? part : request->memory;
}

static bool may_use(const struct pool *pool, const struct rg_pool_request *request, uint32_t d)
{
    const struct rg_pool_server *server = &pool->servers[pool->devices[d].server];
    return !server->draining && server->n_taints <= request->n_tolerations &&
           (!request->n_filters || rg_pool_filter_matches(request->filters, server, &pool->devices[d]));
}

static void check_grant(const struct pool *pool, const struct rg_pool_grant *grant)
{
    const struct rg_pool_request *request = &pool->requests[grant->request];
    CHECK(grant->n == request->n);
    CHECK(grant->first + grant->n <= pool->outcome.n_parts);
    const struct rg_pool_part *parts = &pool->outcome.parts[grant->first];
    uint32_t n_servers = 0;
    for (uint32_t i = 0; i < grant->n; i++) {
        CHECK(parts[i].device < pool->snapshot.n_devices);
        CHECK(i == 0 || parts[i].device > parts[i - 1].device);
        CHECK(may_use(pool, request, parts[i].device));
        const uint64_t exact = need(request, &pool->devices[parts[i].device]);
        CHECK(parts[i].memory <= exact && parts[i].memory + 1 >= exact); /* a byte of a fraction's rounding */
        n_servers +=
            i == 0 || pool->devices[parts[i].device].server != pool->devices[parts[i - 1].device].server;
    }
    CHECK(n_servers <= (request->several_servers ? pool->policy.servers_max : 1));
    CHECK((grant->closeness == RG_POOL_SEVERAL_SERVERS) == (n_servers > 1));
}

/* What is taken of each device with the grants, which is not more than there is; whole ones are alone. */
static void check_memory(const struct pool *pool, uint64_t left[MOST_DEVICES])
{
    bool alone[MOST_DEVICES] = {false};
    uint32_t sessions[MOST_DEVICES] = {0};
    for (uint32_t d = 0; d < pool->snapshot.n_devices; d++) {
        sessions[d] = taken(pool, d) != 0;
        left[d] = pool->devices[d].memory - taken(pool, d);
    }
    for (uint32_t g = 0; g < pool->outcome.n_grants; g++) {
        const struct rg_pool_grant *grant = &pool->outcome.grants[g];
        const struct rg_pool_request *request = &pool->requests[grant->request];
        for (uint32_t i = 0; i < grant->n; i++) {
            const struct rg_pool_part *part = &pool->outcome.parts[grant->first + i];
            CHECK(part->memory <= left[part->device]);
            left[part->device] -= part->memory;
            alone[part->device] |= !request->memory && !request->fraction;
            sessions[part->device]++;
        }
    }
    for (uint32_t d = 0; d < pool->snapshot.n_devices; d++)
        CHECK(!alone[d] || sessions[d] == 1);
}

/* The most GPUs of one server that would do for a request of what is left. */
static uint32_t most_left(const struct pool *pool, const struct rg_pool_request *request,
                          const uint64_t *left)
{
    uint32_t of_server[MOST_SERVERS] = {0}, most = 0;
    for (uint32_t d = 0; d < pool->snapshot.n_devices; d++) {
        const uint32_t s = pool->devices[d].server;
        if (may_use(pool, request, d) && left[d] >= need(request, &pool->devices[d]) && ++of_server[s] > most)
            most = of_server[s];
    }
    return most;
}

static void check_waiting(const struct pool *pool, const uint64_t *left)
{
    bool first = true;
    uint32_t reserved = 0;
    for (uint32_t i = 0; i < pool->outcome.n_waiting; i++) {
        const struct rg_pool_waiting *waiting = &pool->outcome.waiting[i];
        const struct rg_pool_request *request = &pool->requests[waiting->request];
        char text[512];
        rg_pool_explain(&pool->snapshot, &pool->outcome, i, pool->now, text, sizeof text);
        CHECK(waiting->position == i + 1);
        CHECK(strlen(text) > 20 && !strchr(text, '\n'));
        CHECK(waiting->behind != waiting->request);
        CHECK((strncmp(text, "never", 5) == 0) == rg_pool_reason_is_final(waiting->reason));
        CHECK(waiting->start == RG_POOL_UNKNOWN || waiting->start > pool->now);
        reserved += waiting->start != RG_POOL_UNKNOWN;
        if (rg_pool_reason_is_final(waiting->reason) || waiting->reason == RG_POOL_WAITS_FOR_DRAINED)
            continue;
        /* Who comes first gets what is free; the others, what it leaves. */
        CHECK(!first || most_left(pool, request, left) < request->n);
        CHECK(waiting->reason != RG_POOL_WAITS_FOR_TURN || request->several_servers ||
              most_left(pool, request, left) >= request->n);
        first = false;
    }
    CHECK(reserved <= pool->policy.reservations);
}

static void check_proposals(const struct pool *pool)
{
    bool gone[MOST_LEASES] = {false};
    CHECK(pool->policy.preempt || !pool->outcome.n_proposals);
    for (uint32_t i = 0; i < pool->outcome.n_proposals; i++) {
        const struct rg_pool_proposal *proposal = &pool->outcome.proposals[i];
        CHECK(proposal->n > 0 && pool_waits(pool, proposal->request));
        for (uint32_t v = 0; v < proposal->n; v++) {
            const uint32_t l = pool->outcome.suspend[proposal->first + v];
            const struct rg_pool_lease *lease = &pool->leases[l];
            CHECK(!gone[l] && lease->suspendable && !lease->suspending && !lease->suspended);
            CHECK(lease->priority < pool->requests[proposal->request].priority);
            gone[l] = true;
        }
    }
}

static void check_complete(const struct pool *pool)
{
    uint32_t seen[MOST_REQUESTS] = {0};
    for (uint32_t i = 0; i < pool->outcome.n_grants; i++)
        seen[pool->outcome.grants[i].request]++;
    for (uint32_t i = 0; i < pool->outcome.n_waiting; i++)
        seen[pool->outcome.waiting[i].request]++;
    for (uint32_t r = 0; r < pool->snapshot.n_requests; r++)
        CHECK(seen[r] == 1);
}

static bool same_outcome(const struct rg_pool_outcome *a, const struct rg_pool_outcome *b,
                         const uint32_t *renamed)
{
    if (a->n_grants != b->n_grants || a->n_waiting != b->n_waiting || a->n_parts != b->n_parts ||
        a->n_suspend != b->n_suspend)
        return false;
    for (uint32_t i = 0; i < a->n_grants; i++)
        if (renamed[a->grants[i].request] != b->grants[i].request)
            return false;
    for (uint32_t i = 0; i < a->n_waiting; i++)
        if (renamed[a->waiting[i].request] != b->waiting[i].request ||
            a->waiting[i].reason != b->waiting[i].reason || a->waiting[i].start != b->waiting[i].start)
            return false;
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].device != b->parts[i].device || a->parts[i].memory != b->parts[i].memory)
            return false;
    return true;
}

/* Decides again with the requests listed in another order. */
static void check_determined(struct pool *pool, uint64_t *state)
{
    uint32_t renamed[MOST_REQUESTS], at[MOST_REQUESTS];
    const uint32_t n = pool->snapshot.n_requests;
    struct rg_pool_request *shuffled = calloc(n + 1, sizeof *shuffled);
    CHECK(shuffled);
    for (uint32_t i = 0; i < n; i++)
        at[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = random_below(state, i), moved = at[i - 1];
        at[i - 1] = at[j];
        at[j] = moved;
    }
    for (uint32_t i = 0; i < n; i++) {
        shuffled[i] = pool->requests[at[i]];
        renamed[at[i]] = i;
    }
    struct rg_pool_snapshot other = pool->snapshot;
    other.requests = shuffled;
    struct rg_pool_outcome outcome;
    CHECK(rg_pool_schedule(&other, &pool->policy, pool->now, &outcome, NULL, 0) == RG_OK);
    CHECK(same_outcome(&pool->outcome, &outcome, renamed));
    rg_pool_outcome_clear(&outcome);
    free(shuffled);
}

static void check_admission(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->outcome.n_waiting; i++) {
        char why[512] = "", text[512];
        const enum rg_status status =
            rg_pool_admissible(&pool->snapshot, &pool->policy,
                               &pool->requests[pool->outcome.waiting[i].request], why, sizeof why);
        const bool final = rg_pool_reason_is_final(pool->outcome.waiting[i].reason);
        rg_pool_explain(&pool->snapshot, &pool->outcome, i, pool->now, text, sizeof text);
        CHECK(status == (final ? RG_ERR_UNSUPPORTED : RG_OK));
        CHECK(!final || strcmp(why, text) == 0);
    }
}

static void one_decision(uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1, left[MOST_DEVICES];
    struct pool *pool = random_pool(&state);
    pool_decide(pool);
    for (uint32_t i = 0; i < pool->outcome.n_grants; i++)
        check_grant(pool, &pool->outcome.grants[i]);
    check_memory(pool, left);
    check_waiting(pool, left);
    check_proposals(pool);
    check_complete(pool);
    check_admission(pool);
    check_determined(pool, &state);
    pool_end(pool);
}

/* --- over time --- */

struct running {
    uint64_t ends; /* when it really does: at its limit or before, where it has one */
};

/* Leases that are over go; the array stays dense. */
static void end_leases(struct pool *pool, struct running *running)
{
    uint32_t kept = 0;
    for (uint32_t l = 0; l < pool->snapshot.n_leases; l++) {
        if (running[l].ends <= pool->now)
            continue;
        pool->leases[kept] = pool->leases[l];
        memmove(pool->parts[kept], pool->parts[l], sizeof pool->parts[l]);
        pool->leases[kept].parts = pool->parts[kept];
        running[kept++] = running[l];
    }
    pool->snapshot.n_leases = kept;
}

static void start_granted(struct pool *pool, struct running *running, uint64_t *state)
{
    bool granted[MOST_REQUESTS] = {false};
    for (uint32_t i = 0; i < pool->outcome.n_grants; i++) {
        const struct rg_pool_grant *grant = &pool->outcome.grants[i];
        const struct rg_pool_request *request = &pool->requests[grant->request];
        const uint64_t limit = request->time_limit;
        const uint64_t longest = limit == RG_POOL_UNKNOWN ? 3 * HOUR : limit;
        const uint32_t l = pool->snapshot.n_leases++;
        CHECK(l < MOST_LEASES);
        memcpy(pool->parts[l], &pool->outcome.parts[grant->first], grant->n * sizeof *pool->parts[l]);
        pool->leases[l] =
            (struct rg_pool_lease){.id = request->id,
                                   .user = request->user,
                                   .project = request->project,
                                   .parts = pool->parts[l],
                                   .n = grant->n,
                                   .started = pool->now,
                                   .ends = limit == RG_POOL_UNKNOWN ? limit : pool->now + limit};
        running[l].ends = pool->now + longest - longest / 100 * random_below(state, 100);
        granted[grant->request] = true;
    }
    uint32_t kept = 0;
    for (uint32_t r = 0; r < pool->snapshot.n_requests; r++)
        if (!granted[r])
            pool->requests[kept++] = pool->requests[r];
    pool->snapshot.n_requests = kept;
}

/* What was said of the first that waits. */
struct promise {
    const char *id;
    uint64_t start;
};

/*
 * A request that stays the first of its queue is not put off. New ones come at a lower priority, so that the first one
 * stays it; they keep the pool busy for 200 steps, and then no more come and all get their turn.
 */
static void over_time(uint64_t seed, bool known_ends)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    struct pool *pool = pool_new();
    struct running running[MOST_LEASES];
    struct promise promise = {0};
    const uint32_t n_servers = 1 + random_below(&state, 4);
    for (uint32_t s = 0; s < n_servers; s++)
        pool_server(pool, 4, 80 * GIB);
    pool->policy.reservations = 1 + random_below(&state, 4);
    unsigned n_gangs = 0, started = 0;
    for (unsigned step = 0; step < 200 || pool->snapshot.n_requests; step++) {
        CHECK(step < 10000);
        pool->now += MINUTE * (1 + random_below(&state, 20));
        end_leases(pool, running);
        pool->n_names = 0; /* of servers, which nobody asks for here; requests get ids of their own */
        for (uint32_t n = step < 200 ? random_below(&state, 4) : 0; n && pool->snapshot.n_requests < 400;
             n--) {
            struct rg_pool_request *request =
                pool_ask(pool, n & 1 ? "ann" : "ben", 1 + random_below(&state, 2), 0);
            static char ids[4 * 200][8];
            snprintf(ids[step * 4 + n - 1], sizeof ids[0], "%u", step * 4 + n);
            request->id = ids[step * 4 + n - 1];
            request->memory = random_chance(&state, 50) ? 30 * GIB : 0;
            request->submitted = pool->now;
            if (known_ends || random_chance(&state, 50))
                request->time_limit = (1 + random_below(&state, 180)) * MINUTE;
        }
        if (step % 50 == 10 && step < 200) {
            static const char *const ids[] = {"gang0", "gang1", "gang2", "gang3"};
            struct rg_pool_request *gang = pool_ask(pool, "gangs", 4, 0);
            gang->id = ids[n_gangs++];
            gang->priority = 1;
            gang->submitted = pool->now;
            gang->time_limit = HOUR;
        }
        pool_decide(pool);
        for (uint32_t i = 0; i < pool->outcome.n_grants; i++)
            started += pool->requests[pool->outcome.grants[i].request].priority == 1;
        const struct rg_pool_waiting *first = pool->outcome.n_waiting ? pool->outcome.waiting : NULL;
        if (first && pool->requests[first->request].priority != 1)
            first = NULL; /* a gang may come before it */
        const char *id = first ? pool->requests[first->request].id : NULL;
        if (id && promise.id == id && promise.start != RG_POOL_UNKNOWN) {
            const uint64_t latest = promise.start > pool->now ? promise.start : pool->now + 1;
            CHECK(first->start <= latest);
        }
        promise = (struct promise){id, first ? first->start : RG_POOL_UNKNOWN};
        start_granted(pool, running, &state);
    }
    CHECK(started == n_gangs && n_gangs == 4);
    pool_end(pool);
}

int main(int argc, char **argv)
{
    const uint64_t only = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    current_part = "filters";
    make_filters();
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : 2000); seed++) {
        current_seed = seed;
        current_part = "one decision";
        one_decision(seed);
        if (seed > 60 && !only)
            continue;
        current_part = "over time, ends known";
        over_time(seed, true);
        current_part = "over time, some ends unknown";
        over_time(seed, false);
    }
    return 0;
}
