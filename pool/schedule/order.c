/*
 * order.c - the order of the queue, which depends on nothing but requests, leases and accounts: not on what fits.
 *
 * Fair shares have two levels. The project with the least use for its weight comes next, in it the user with the least,
 * and of that user's requests the one that arrived first. It counts as used at once (for `charge_ahead`), so that the
 * next one is another's if both have used as much; otherwise the one with a thousand requests would have a thousand turns.
 * A user without a project stands beside the projects.
 *
 * Use is in GPU milliseconds, decayed to now, and what is held counts ahead in the same way. All of it in integers, so
 * that all members of a pool come to the same order.
 */
#include "pool/schedule/order.h"

#include "common/base/hash_table.h"

#include <stdlib.h>
#include <string.h>

#define SCALE 1000u /* of scores, so that little use is not lost in the division by a weight */

/* A user or project: what it has used and holds. */
struct owner {
    const char *name;
    bool project;
    uint32_t weight;
    uint64_t used; /* GPU milliseconds */
};

struct owners {
    struct owner *all;
    uint32_t n, n_slots;
    uint32_t *slots; /* index + 1 */
};

/* A request on its way into the queue. */
struct entry {
    const struct rg_pool_request *request;
    uint32_t index;   /* of it */
    uint32_t project; /* owner: its project, or its user if it has none */
    uint32_t user;    /* owner */
    bool late; /* goes by arrival alone: has waited longer than `patience`, or comes back to its GPUs */
};

/* The requests of one user in one project and priority, or the users of one project: what takes turns. */
struct turn {
    uint64_t score;
    uint64_t arrived; /* the request that is its next */
    uint32_t owner;
    uint32_t next, end; /* entries; or turns of users, a heap by score of which [next, end) is left */
};

struct ordering {
    struct rg_pool_plan *plan;
    struct owners owners;
    struct entry *entries;
    struct turn *users, *projects;
    uint32_t *order, n_ordered;
};

static bool named(const char *name)
{
    return name && *name;
}

/* The owner of this name; made if there is none. There is room. */
static uint32_t owner_of(struct owners *owners, const char *name, bool project)
{
    uint32_t slot = (uint32_t)(rg_hash_text(name) + project) & (owners->n_slots - 1);
    for (; owners->slots[slot]; slot = (slot + 1) & (owners->n_slots - 1)) {
        const struct owner *at = &owners->all[owners->slots[slot] - 1];
        if (at->project == project && strcmp(at->name, name) == 0)
            return owners->slots[slot] - 1;
    }
    owners->all[owners->n] =
        (struct owner){.name = name, .project = project, .weight = RG_POOL_WEIGHT_DEFAULT};
    owners->slots[slot] = ++owners->n;
    return owners->n - 1;
}

/* GPU milliseconds that count for holding so many millionths of GPUs. */
static uint64_t ahead(const struct ordering *ordering, uint64_t gpu_millionths)
{
    return (uint64_t)((unsigned __int128)ordering->plan->policy->charge_ahead * gpu_millionths / 1000000 /
                      1000000);
}

static uint64_t millionths_of_lease(const struct rg_pool_snapshot *snapshot,
                                    const struct rg_pool_lease *lease)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < lease->n; p++) {
        const uint64_t memory = snapshot->devices[lease->parts[p].device].memory;
        sum += (uint64_t)((unsigned __int128)lease->parts[p].memory * 1000000 / memory);
    }
    return sum;
}

/* Of what share of a GPU a request is, before one is chosen: what it asks of the first GPU of the pool. */
static uint64_t millionths_of_request(const struct rg_pool_snapshot *snapshot,
                                      const struct rg_pool_request *request)
{
    if (!snapshot->n_devices || (!request->memory && !request->fraction))
        return (uint64_t)request->n * 1000000;
    const struct rg_pool_device *device = &snapshot->devices[0];
    const uint64_t need = rg_pool_need(request, device);
    const uint64_t part = (uint64_t)((unsigned __int128)need * 1000000 / device->memory);
    return request->n * (part < 1000000 ? part : 1000000);
}

static enum rg_status know_owners(struct ordering *ordering)
{
    struct rg_pool_plan *plan = ordering->plan;
    const struct rg_pool_snapshot *snapshot = plan->snapshot;
    struct owners *owners = &ordering->owners;
    const uint64_t most = 2 * ((uint64_t)snapshot->n_requests + snapshot->n_leases) + snapshot->n_accounts;
    if (most > UINT32_MAX / 4)
        return RG_ERR_NO_MEMORY;
    for (owners->n_slots = 16; owners->n_slots < 2 * most;)
        owners->n_slots *= 2;
    owners->all = rg_pool_arena_take(&plan->arena, most, sizeof *owners->all);
    owners->slots = rg_pool_arena_take(&plan->arena, owners->n_slots, sizeof *owners->slots);
    if (!owners->all || !owners->slots)
        return RG_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < snapshot->n_accounts; i++) {
        const struct rg_pool_account *account = &snapshot->accounts[i];
        struct owner *owner = &owners->all[owner_of(owners, account->name, account->project)];
        const uint64_t since = plan->now > account->as_of ? plan->now - account->as_of : 0;
        owner->weight = account->weight ? account->weight : 1;
        owner->used = rg_pool_usage_decayed(account->usage, since, plan->policy->half_life);
    }
    for (uint32_t i = 0; i < snapshot->n_leases; i++) {
        const struct rg_pool_lease *lease = &snapshot->leases[i];
        if (lease->suspended)
            continue;
        const uint64_t used = ahead(ordering, millionths_of_lease(snapshot, lease));
        if (lease->user)
            owners->all[owner_of(owners, lease->user, false)].used += used;
        if (named(lease->project))
            owners->all[owner_of(owners, lease->project, true)].used += used;
    }
    return RG_OK;
}

static int by_arrival(const struct entry *a, const struct entry *b)
{
    if (a->request->submitted != b->request->submitted)
        return a->request->submitted < b->request->submitted ? -1 : 1;
    const int order = strcmp(a->request->id, b->request->id);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_group(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->request->priority != b->request->priority)
        return a->request->priority > b->request->priority ? -1 : 1;
    if (a->late != b->late)
        return a->late ? -1 : 1;
    if (!a->request->returns != !b->request->returns)
        return a->request->returns ? -1 : 1;
    if (!a->late && a->project != b->project)
        return a->project < b->project ? -1 : 1;
    if (!a->late && a->user != b->user)
        return a->user < b->user ? -1 : 1;
    return by_arrival(a, b);
}

static void sort_entries(struct ordering *ordering)
{
    const struct rg_pool_plan *plan = ordering->plan;
    const uint32_t n = plan->snapshot->n_requests;
    for (uint32_t r = 0; r < n; r++) {
        const struct rg_pool_request *request = &plan->snapshot->requests[r];
        struct entry *entry = &ordering->entries[r];
        entry->request = request;
        entry->index = r;
        entry->user = owner_of(&ordering->owners, request->user, false);
        entry->project =
            named(request->project) ? owner_of(&ordering->owners, request->project, true) : entry->user;
        entry->late = request->returns || (plan->now > request->submitted &&
                                           plan->now - request->submitted > plan->policy->patience);
    }
    qsort(ordering->entries, n, sizeof *ordering->entries, by_group);
}

static uint64_t score_of(const struct ordering *ordering, uint32_t owner)
{
    const struct owner *at = &ordering->owners.all[owner];
    const unsigned __int128 score = (unsigned __int128)at->used * SCALE / at->weight;
    return score > UINT64_MAX ? UINT64_MAX : (uint64_t)score;
}

static bool comes_before(const struct ordering *ordering, const struct turn *a, const struct turn *b)
{
    if (a->score != b->score)
        return a->score < b->score;
    if (a->arrived != b->arrived)
        return a->arrived < b->arrived;
    return strcmp(ordering->owners.all[a->owner].name, ordering->owners.all[b->owner].name) < 0;
}

/* Restores the heap below `at`, whose score has grown. */
static void sift_down(const struct ordering *ordering, struct turn *heap, uint32_t n, uint32_t at)
{
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
            if (comes_before(ordering, &heap[child], &heap[least]))
                least = child;
        if (least == at)
            return;
        const struct turn moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static void make_heap(const struct ordering *ordering, struct turn *heap, uint32_t n)
{
    for (uint32_t at = n / 2; at-- > 0;)
        sift_down(ordering, heap, n, at);
}

/* The first of a heap was served: it goes down, or out if nothing is left of it. */
static uint32_t served(const struct ordering *ordering, struct turn *heap, uint32_t n)
{
    if (heap->next == heap->end)
        heap[0] = heap[--n];
    sift_down(ordering, heap, n, 0);
    return n;
}

static void append(struct ordering *ordering, const struct entry *entry)
{
    const uint64_t used = ahead(ordering, millionths_of_request(ordering->plan->snapshot, entry->request));
    ordering->order[ordering->n_ordered++] = entry->index;
    ordering->owners.all[entry->user].used += used;
    if (entry->project != entry->user)
        ordering->owners.all[entry->project].used += used;
}

/* Entries [first, end) are of one priority and in the order of projects and users; they are appended by turns. */
static void take_turns(struct ordering *ordering, uint32_t first, uint32_t end)
{
    uint32_t n_users = 0, n_projects = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct entry *entry = &ordering->entries[i], *before = i > first ? entry - 1 : NULL;
        if (!before || before->project != entry->project) {
            ordering->projects[n_projects++] = (struct turn){.score = score_of(ordering, entry->project),
                                                             .owner = entry->project,
                                                             .next = n_users,
                                                             .end = n_users};
            before = NULL;
        }
        if (!before || before->user != entry->user) {
            ordering->users[n_users++] = (struct turn){.score = score_of(ordering, entry->user),
                                                       .arrived = entry->request->submitted,
                                                       .owner = entry->user,
                                                       .next = i,
                                                       .end = i};
            ordering->projects[n_projects - 1].end++;
        }
        ordering->users[n_users - 1].end++;
    }
    for (uint32_t p = 0; p < n_projects; p++) {
        struct turn *project = &ordering->projects[p];
        make_heap(ordering, ordering->users + project->next, project->end - project->next);
        project->arrived = ordering->users[project->next].arrived;
    }
    make_heap(ordering, ordering->projects, n_projects);
    while (n_projects) {
        struct turn *project = ordering->projects, *user = ordering->users + project->next;
        append(ordering, &ordering->entries[user->next++]);
        if (user->next < user->end)
            user->arrived = ordering->entries[user->next].request->submitted;
        /* A user's score in another project's heap stays what it was: within a project, its own turns count. */
        user->score = score_of(ordering, user->owner);
        project->score = score_of(ordering, project->owner);
        project->end = project->next + served(ordering, user, project->end - project->next);
        project->arrived = user->arrived;
        n_projects = served(ordering, ordering->projects, n_projects);
    }
}

enum rg_status rg_pool_order(struct rg_pool_plan *plan, uint32_t *order)
{
    const uint32_t n = plan->snapshot->n_requests;
    struct ordering ordering = {.plan = plan, .order = order};
    ordering.entries = rg_pool_arena_take(&plan->arena, n, sizeof *ordering.entries);
    ordering.users = rg_pool_arena_take(&plan->arena, n, sizeof *ordering.users);
    ordering.projects = rg_pool_arena_take(&plan->arena, n, sizeof *ordering.projects);
    if (!ordering.entries || !ordering.users || !ordering.projects)
        return RG_ERR_NO_MEMORY;
    RG_TRY(know_owners(&ordering));
    sort_entries(&ordering);
    for (uint32_t first = 0, end; first < n; first = end) {
        const struct entry *entry = &ordering.entries[first];
        end = first + 1;
        if (entry->late) {
            append(&ordering, entry);
            continue;
        }
        while (end < n && ordering.entries[end].request->priority == entry->request->priority)
            end++;
        take_turns(&ordering, first, end);
    }
    return RG_OK;
}
