/* picture.c - see picture.h. */
#include "server/pool/picture.h"

#include "common/base/cleanup.h"
#include "proto/control/control.h"

#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
/* So long a lease that could not be suspended is let alone: what was busy may be done, other reasons seldom pass. */
#define BUSY_S   30u
#define CANNOT_S 300u

void rg_picture_fini(struct rg_picture *picture)
{
    free(picture->servers);
    free(picture->labels);
    free(picture->devices);
    free(picture->leases);
    free(picture->parts);
    free(picture->requests);
    free(picture->filters);
    free(picture->named);
    free(picture->accounts);
    for (uint32_t i = 0; i < picture->n_links; i++)
        free(picture->links[i].links);
    free(picture->links);
    free(picture->members);
    free(picture->gpus);
    free(picture->queued);
    *picture = (struct rg_picture){0};
}

struct counts {
    size_t servers, labels, devices, parts, requests, filters, named, accounts;
};

static void count(const struct rg_pool_mirror *mirror, struct counts *n)
{
    for (uint32_t i = 0; i < mirror->n_members; i++) {
        const struct rg_pool_member *member = mirror->members[i];
        n->servers++;
        n->labels += json_object_size(json_object_get(member->value, "labels")) +
                     json_object_size(json_object_get(member->value, "taints"));
        n->devices += member->n_gpus;
        for (uint32_t j = 0; j < member->n_gpus; j++)
            n->parts += member->gpus[j]->n_shares;
    }
    for (uint32_t i = 0; i < mirror->n_usage; i++)
        n->accounts += json_object_size(json_object_get(mirror->usage[i]->value, "users")) +
                       json_object_size(json_object_get(mirror->usage[i]->value, "projects"));
    n->requests = mirror->n_requests + n->parts + 1; /* each lease may be suspended */
    for (uint32_t i = 0; i < mirror->n_requests; i++) {
        n->filters += json_array_size(json_object_get(mirror->requests[i]->value, "filters"));
        n->named += json_array_size(json_object_get(mirror->requests[i]->value, "devices"));
        n->labels += json_object_size(json_object_get(mirror->requests[i]->value, "tolerate"));
    }
    n->filters += RG_POOL_FILTERS_MAX;
    n->named += RG_POOL_GPUS_MAX;
    n->labels += RG_POOL_FILTERS_MAX;
}

static bool picture_init(struct rg_picture *picture, const struct counts *n)
{
    *picture = (struct rg_picture){
        .servers = calloc(n->servers + 1, sizeof *picture->servers),
        .labels = calloc(n->labels + 1, sizeof *picture->labels),
        .devices = calloc(n->devices + 1, sizeof *picture->devices),
        .leases = calloc(n->parts + 1, sizeof *picture->leases),
        .parts = calloc(n->parts + 1, sizeof *picture->parts),
        .requests = calloc(n->requests + 1, sizeof *picture->requests),
        .filters = calloc(n->filters + 1, sizeof *picture->filters),
        .named = calloc(n->named + 1, sizeof *picture->named),
        .accounts = calloc(n->accounts + 1, sizeof *picture->accounts),
        .members = calloc(n->servers + 1, sizeof(void *)),
        .gpus = calloc(n->devices + 1, sizeof(void *)),
        .queued = calloc(n->requests + 1, sizeof(void *)),
    };
    const bool good = picture->servers && picture->labels && picture->devices && picture->leases &&
                      picture->parts && picture->requests && picture->filters && picture->named &&
                      picture->accounts && picture->members && picture->gpus && picture->queued;
    if (!good)
        rg_picture_fini(picture);
    return good;
}

/* Names and their texts; "value": null stands for any. Returns how many. */
static uint32_t add_labels(struct rg_picture *picture, const json_t *object, size_t *labels)
{
    const char *name;
    json_t *value;
    uint32_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)object, name,
                        value) if (json_is_string(value) || json_is_null(value))
    {
        picture->labels[(*labels)++] = (struct rg_pool_label){name, json_string_value(value)};
        n++;
    }
    return n;
}

static void add_server(struct rg_picture *picture, const struct rg_pool_member *member, size_t *labels)
{
    struct rg_pool_snapshot *snapshot = &picture->snapshot;
    struct rg_pool_server *server = &picture->servers[snapshot->n_servers];
    picture->members[snapshot->n_servers] = member;
    *server = (struct rg_pool_server){.address = member->address ? member->address : "",
                                      .hostname = member->host ? member->host : "",
                                      .labels = &picture->labels[*labels],
                                      .draining = member->draining || !member->value,
                                      .has_rdma = member->rdma,
                                      .cuda_version = member->cuda,
                                      .driver_version = member->driver};
    server->n_labels = add_labels(picture, json_object_get(member->value, "labels"), labels);
    server->taints = &picture->labels[*labels];
    server->n_taints = add_labels(picture, json_object_get(member->value, "taints"), labels);
    for (uint32_t i = 0; i < member->n_gpus; i++) {
        const struct rg_pool_gpu *gpu = member->gpus[i];
        picture->gpus[snapshot->n_devices] = gpu;
        picture->devices[snapshot->n_devices++] = (struct rg_pool_device){.server = snapshot->n_servers,
                                                                          .index = gpu->index,
                                                                          .uuid = gpu->uuid,
                                                                          .name = gpu->name,
                                                                          .memory = gpu->memory,
                                                                          .numa_node = gpu->numa_node,
                                                                          .nvlink_group = gpu->nvlink_group,
                                                                          .pcie_group = gpu->pcie_group};
    }
    snapshot->n_servers++;
}

/* Above 0: it comes before others. */
static int32_t priority_of(const json_t *value)
{
    enum rg_share_priority priority;
    return rg_share_priority_parse(rg_json_get_text(value, "priority"), &priority)
               ? (int32_t)priority - RG_SHARE_PRIORITY_NORMAL
               : 0;
}

/* A part of a GPU, and the lease that has it. */
struct held_part {
    const struct rg_pool_share *share;
    struct rg_pool_part part;
};

static int compare_parts(const void *a, const void *b)
{
    const struct held_part *one = a, *other = b;
    const int order = strcmp(one->share->lease, other->share->lease);
    return order ? order : (one->part.device > other->part.device) - (one->part.device < other->part.device);
}

/* What a lease has is what GPUs say: they may be granted to what is no lease any more. */
static void begin_lease(struct rg_picture *picture, const struct rg_pool_mirror *mirror, const char *id,
                        const struct rg_pool_part *parts)
{
    const struct rg_pool_entry *held = rg_pool_mirror_lease(mirror, id);
    const struct rg_pool_member *member = picture->members[picture->devices[parts->device].server];
    const uint64_t since = held ? rg_json_get_number(held->value, "since", 0) : 0;
    const uint64_t seconds = held ? rg_json_get_number(held->value, "seconds", 0) : 0;
    picture->leases[picture->snapshot.n_leases++] =
        (struct rg_pool_lease){.id = id,
                               .user = held ? rg_json_get_text(held->value, "user") : "",
                               .project = held ? rg_json_get_text(held->value, "project") : "",
                               .priority = held ? priority_of(held->value) : 0,
                               .parts = parts,
                               .started = since * SECOND,
                               .ends = seconds ? (since + seconds) * SECOND : RG_POOL_UNKNOWN,
                               .suspendable = held && member->suspends,
                               .suspended = true};
}

/*
 * Adds a part to the last lease: that may be suspended if it lies on one server, whose sessions come to rest or do not as one, and is
 * suspended if all of it is.
 */
static void add_part(struct rg_picture *picture, const struct held_part *held, struct rg_pool_part *part)
{
    struct rg_pool_lease *lease = &picture->leases[picture->snapshot.n_leases - 1];
    const struct rg_pool_share *share = held->share;
    const uint32_t server = picture->devices[held->part.device].server;
    const uint64_t since = share->since * SECOND, rest = picture->members[server]->rest_s * SECOND;
    const uint64_t last = since > lease->started ? since : lease->started,
                   alone = (share->refused == RG_POOL_SHARE_BUSY ? BUSY_S : CANNOT_S) * SECOND;
    const uint64_t spared = share->refused ? since + alone : last + rest;
    *part = held->part;
    lease->n++;
    lease->suspendable = lease->suspendable && picture->devices[lease->parts[0].device].server == server;
    lease->suspending = lease->suspending || share->state == RG_POOL_SHARE_SUSPENDING;
    lease->suspended = lease->suspended && share->state == RG_POOL_SHARE_SUSPENDED;
    lease->spared_until = spared > lease->spared_until ? spared : lease->spared_until;
}

/* False: no memory. */
static bool add_leases(struct rg_picture *picture, const struct rg_pool_mirror *mirror, size_t most)
{
    RG_CLEANUP_FREE struct held_part *held = calloc(most + 1, sizeof *held);
    size_t n = 0;
    if (!held)
        return false;
    for (uint32_t i = 0; i < picture->snapshot.n_devices; i++) {
        const struct rg_pool_gpu *gpu = picture->gpus[i];
        for (uint32_t j = 0; j < gpu->n_shares; j++) {
            const struct rg_pool_share *share = &gpu->shares[j];
            held[n++] =
                (struct held_part){share, {i, share->memory < gpu->memory ? share->memory : gpu->memory}};
        }
    }
    qsort(held, n, sizeof *held, compare_parts);
    for (size_t i = 0, parts = 0; i < n; i++) {
        const bool same = i > 0 && strcmp(held[i].share->lease, held[i - 1].share->lease) == 0;
        if (same && held[i].part.device == held[i - 1].part.device)
            continue; /* a GPU that says it twice */
        picture->parts[parts] = held[i].part;
        if (!same)
            begin_lease(picture, mirror, held[i].share->lease, &picture->parts[parts]);
        add_part(picture, &held[i], &picture->parts[parts++]);
    }
    return true;
}

/* How much of the picture's arrays is used. */
struct used {
    size_t filters, named, labels;
};

/* The GPUs that a request names. */
static uint32_t add_named(struct rg_picture *picture, const json_t *value, size_t at)
{
    const json_t *one;
    size_t i;
    uint32_t n = 0;
    json_array_foreach(json_object_get(value, "devices"), i,
                       one) if (json_is_string(one) && n < RG_POOL_GPUS_MAX) picture->named[at + n++] =
        json_string_value(one);
    return n;
}

/* False: its filters are not understood, so that nothing can be decided about it. */
static bool add_request(struct rg_picture *picture, const struct rg_pool_mirror *mirror, const char *id,
                        const json_t *value, struct used *used, char *why, size_t why_size)
{
    const char *texts[RG_POOL_FILTERS_MAX];
    const json_t *list = json_object_get(value, "filters"), *one;
    uint32_t n = 0;
    size_t i;
    struct rg_pool_request *request = &picture->requests[picture->snapshot.n_requests];
    json_array_foreach(list, i, one) if (json_is_string(one) && n < RG_POOL_FILTERS_MAX) texts[n++] =
        json_string_value(one);
    if (rg_pool_filters_parse(texts, n, &picture->filters[used->filters], why, why_size) != RG_OK)
        return false;
    const uint64_t seconds = rg_json_get_number(value, "seconds", 0);
    *request = (struct rg_pool_request){.id = id,
                                        .user = rg_json_get_text(value, "user"),
                                        .project = rg_json_get_text(value, "project"),
                                        .priority = priority_of(value),
                                        .spares = !json_is_true(json_object_get(value, "preempts")),
                                        .n = (uint32_t)rg_json_get_number(value, "gpus", 1),
                                        .memory = rg_json_get_number(value, "memory", 0),
                                        .fraction = (uint32_t)rg_json_get_number(value, "fraction", 0),
                                        .filters = &picture->filters[used->filters],
                                        .n_filters = n,
                                        .devices = &picture->named[used->named],
                                        .n_devices = add_named(picture, value, used->named),
                                        .several_servers = json_is_true(json_object_get(value, "spread")),
                                        .strategy = RG_POOL_AS_POLICY,
                                        .submitted = rg_json_get_number(value, "since", 0) * SECOND,
                                        .time_limit = seconds ? seconds * SECOND : RG_POOL_UNKNOWN};
    if (request->n == 0 || request->n > RG_POOL_GPUS_MAX)
        return false;
    request->links = rg_links_draw(mirror, picture, request->user, rg_json_get_text(value, "machine"));
    request->tolerations = &picture->labels[used->labels];
    request->n_tolerations = add_labels(picture, json_object_get(value, "tolerate"), &used->labels);
    used->filters += n;
    used->named += request->n_devices;
    picture->snapshot.n_requests++;
    return true;
}

/* Leases that are suspended, and wait for their GPUs: as requests for them. */
static void add_returning(struct rg_picture *picture, const struct rg_pool_mirror *mirror)
{
    for (uint32_t i = 0; i < picture->snapshot.n_leases; i++) {
        const struct rg_pool_lease *lease = &picture->leases[i];
        const struct rg_pool_entry *held = lease->suspended ? rg_pool_mirror_lease(mirror, lease->id) : NULL;
        const struct rg_pool_part *part = lease->parts;
        const struct rg_pool_share *share = NULL;
        if (!held)
            continue;
        const struct rg_pool_gpu *gpu = picture->gpus[part->device];
        for (uint32_t j = 0; j < gpu->n_shares; j++)
            share = strcmp(gpu->shares[j].lease, lease->id) == 0 ? &gpu->shares[j] : share;
        const uint64_t fraction = rg_json_get_number(held->value, "fraction", 0);
        const bool whole = part->memory >= gpu->memory;
        picture->queued[picture->snapshot.n_requests] = NULL;
        picture->requests[picture->snapshot.n_requests++] =
            (struct rg_pool_request){.id = lease->id,
                                     .user = lease->user,
                                     .project = lease->project,
                                     .priority = lease->priority,
                                     .n = lease->n,
                                     .memory = whole || fraction ? 0 : part->memory,
                                     .fraction = whole ? 0 : (uint32_t)fraction,
                                     .submitted = share ? share->since * SECOND : lease->started,
                                     .time_limit = RG_POOL_UNKNOWN,
                                     .returns = lease->parts};
    }
}

static int compare_accounts(const void *a, const void *b)
{
    const struct rg_pool_account *one = a, *other = b;
    return one->project != other->project ? (int)one->project - (int)other->project
                                          : strcmp(one->name, other->name);
}

/* What one server says of users or projects. */
static void add_used(struct rg_picture *picture, const json_t *value, const char *kind, uint64_t as_of)
{
    const char *name;
    json_t *usage;
    json_object_foreach(json_object_get(value, kind), name, usage) if (json_is_integer(usage) && *name)
        picture->accounts[picture->snapshot.n_accounts++] =
        (struct rg_pool_account){.name = name,
                                 .project = strcmp(kind, "projects") == 0,
                                 .weight = RG_POOL_WEIGHT_DEFAULT,
                                 .usage = (uint64_t)json_integer_value(usage),
                                 .as_of = as_of};
}

/* What has been used over time: the sum of what all servers say, as of the latest of them. */
static void add_accounts(struct rg_picture *picture, const struct rg_pool_mirror *mirror)
{
    struct rg_pool_policy policy;
    struct rg_pool_account *all = picture->accounts;
    uint64_t latest = 0;
    uint32_t n = 0;
    rg_pool_policy_default(&policy);
    for (uint32_t i = 0; i < mirror->n_usage; i++) {
        const uint64_t as_of = rg_json_get_number(mirror->usage[i]->value, "as_of", 0) * SECOND;
        add_used(picture, mirror->usage[i]->value, "users", as_of);
        add_used(picture, mirror->usage[i]->value, "projects", as_of);
        latest = as_of > latest ? as_of : latest;
    }
    if (picture->snapshot.n_accounts)
        qsort(all, picture->snapshot.n_accounts, sizeof *all, compare_accounts);
    for (uint32_t i = 0; i < picture->snapshot.n_accounts; i++) {
        struct rg_pool_account one = all[i];
        one.usage = rg_pool_usage_decayed(one.usage, latest - one.as_of, policy.half_life);
        one.as_of = latest;
        if (n && compare_accounts(&all[n - 1], &one) == 0)
            all[n - 1].usage =
                one.usage > UINT64_MAX - all[n - 1].usage ? UINT64_MAX : all[n - 1].usage + one.usage;
        else
            all[n++] = one;
    }
    picture->snapshot.n_accounts = n;
}

bool rg_picture_draw(const struct rg_pool_mirror *mirror, const json_t *extra, struct rg_picture *picture,
                     char *why, size_t why_size)
{
    struct counts n = {0};
    struct used used = {0};
    count(mirror, &n);
    const bool good = picture_init(picture, &n);
    for (uint32_t i = 0; i < mirror->n_members && good; i++)
        add_server(picture, mirror->members[i], &used.labels);
    if (!good || !add_leases(picture, mirror, n.parts)) {
        rg_explain(why, why_size, "the server is out of memory");
        return false;
    }
    for (uint32_t i = 0; i < mirror->n_requests && !extra; i++) {
        picture->queued[picture->snapshot.n_requests] = mirror->requests[i];
        (void)add_request(picture, mirror, mirror->requests[i]->id, mirror->requests[i]->value, &used, NULL,
                          0);
    }
    if (!extra)
        add_returning(picture, mirror);
    add_accounts(picture, mirror);
    picture->snapshot.servers = picture->servers;
    picture->snapshot.accounts = picture->accounts;
    picture->snapshot.devices = picture->devices;
    picture->snapshot.leases = picture->leases;
    picture->snapshot.requests = picture->requests;
    return !extra || add_request(picture, mirror, "0", extra, &used, why, why_size);
}
