/*
 * cluster.c - the blocks of a cluster: shared memory that each finds at a fixed distance from the others',
 * and the barrier of all their threads.
 *
 * All blocks of a cluster have runs of one slot and take turns there, so that nothing here is touched by two
 * OS threads. A block that has nothing to run while threads of it wait at the cluster's barrier is blocked
 * (SG_LEAVE_BLOCKED) until another block's thread makes them ready. The memory of a block stays until the
 * last one has ended.
 *
 * A barrier that a thread arrives at and does not wait for counts it until it ends. Memory that runs out
 * fails sg_cluster_acquire.
 */
#include "common/base/align.h"
#include "softgpu/exec/warp/schedule.h"
#include "softgpu/guest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u

/**
 * Where a block's shared memory is in its window: at the end of its pages, so that what lies behind it
 * faults.
 */
static size_t lead(const struct sg_cluster *cluster)
{
    return (PAGE - cluster->shared % PAGE) % PAGE;
}

unsigned char *sg_cluster_shared(const struct sg_cluster *cluster, uint32_t rank)
{
    return cluster->windows + rank * SG_WINDOW + lead(cluster);
}

static void unmap(struct sg_cluster *cluster)
{
    if (cluster->map)
        munmap(cluster->map, cluster->map_size);
    cluster->map = NULL;
}

/** Makes windows of `shared` bytes for `size` blocks. */
static bool map_windows(struct sg_cluster *cluster, uint32_t size, size_t shared)
{
    if (cluster->map && cluster->capacity >= size && cluster->shared == shared)
        return true;
    unmap(cluster);
    if (shared > SG_WINDOW - PAGE)
        return false;
    cluster->map_size = size * SG_WINDOW;
    unsigned char *map = sg_guest_map(cluster->map_size, PROT_NONE);
    if (!map)
        return false;
    cluster->map = cluster->windows = map;
    cluster->capacity = size;
    cluster->shared = shared;
    size_t pages = rg_align_up(shared, PAGE);
    for (uint32_t rank = 0; rank < size && pages; rank++) {
        if (mprotect(map + rank * SG_WINDOW, pages, PROT_READ | PROT_WRITE) != 0) {
            unmap(cluster);
            return false;
        }
    }
    return true;
}

struct sg_cluster *sg_cluster_acquire(struct sg_slot *slot, const struct sg_grid *grid)
{
    const struct sg_launch *launch = grid->launch;
    size_t shared = rg_align_up(launch->shared_static, 16) + launch->shared_dynamic;
    struct sg_cluster *cluster = slot->clusters;
    if (cluster)
        slot->clusters = cluster->next;
    else if (!(cluster = calloc(1, sizeof(*cluster))))
        return NULL;
    if (!map_windows(cluster, grid->cluster_size, (shared + 1023) & ~(size_t)1023)) {
        sg_cluster_release(slot, cluster);
        return NULL;
    }
    cluster->size = grid->cluster_size;
    cluster->runs = 0;
    cluster->live = cluster->size * grid->n_threads;
    cluster->arrived = cluster->phase = 0;
    cluster->first = cluster->last = NULL;
    memset(cluster->run, 0, sizeof(cluster->run));
    return cluster;
}

void sg_cluster_release(struct sg_slot *slot, struct sg_cluster *cluster)
{
    cluster->next = slot->clusters;
    slot->clusters = cluster;
}

void sg_cluster_leave(struct sg_slot *slot, struct sg_run *run)
{
    struct sg_cluster *cluster = run->cluster;
    cluster->run[run->cluster_rank] = NULL;
    run->cluster = NULL;
    if (--cluster->runs == 0 && cluster != &run->alone)
        sg_cluster_release(slot, cluster);
}

void sg_cluster_set_index(struct sg_block *block, uint64_t index, uint32_t rank)
{
    for (int i = 0; i < 3; i++) {
        uint32_t size = block->cluster_nctaid[i], clusters = block->nctaid[i] / size;
        block->ctaid[i] = (uint32_t)(index % clusters) * size + rank % size;
        index /= clusters;
        rank /= size;
    }
}

bool sg_cluster_is_stuck(const struct sg_cluster *cluster)
{
    for (uint32_t rank = 0; rank < cluster->size; rank++) {
        const struct sg_run *run = cluster->run[rank];
        if (run && (run->ready_first || run->started < run->grid->n_threads || !run->cluster_waiting))
            return false;
    }
    return true;
}

/* --- the barrier --- */

/** Ends the phase if all have arrived: those that wait are made ready, each in its block. */
static void settle(struct sg_cluster *cluster)
{
    if (cluster->arrived < cluster->live)
        return;
    cluster->arrived = 0;
    cluster->phase++;
    for (struct sg_fiber *fiber = cluster->first, *next; fiber; fiber = next) {
        next = fiber->next;
        fiber->run->cluster_waiting--;
        sg_ready_append(fiber->run, fiber);
    }
    cluster->first = cluster->last = NULL;
}

/** The cluster of a thread's block; a block that is alone is one from the first time that somebody asks. */
static struct sg_cluster *cluster_of(struct sg_run *run)
{
    if (!run->cluster) {
        run->alone = (struct sg_cluster){.size = 1, .runs = 1, .live = run->live, .run = {run}};
        run->cluster = &run->alone;
        run->cluster_rank = 0;
    }
    return run->cluster;
}

void sg_rt_cluster_arrive(struct sg_thread *t)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_cluster *cluster = cluster_of(fiber->run);
    if (fiber->cluster_arrived && fiber->cluster_phase == cluster->phase)
        return;
    fiber->cluster_arrived = true;
    fiber->cluster_phase = cluster->phase;
    cluster->arrived++;
    settle(cluster);
}

void sg_rt_cluster_wait(struct sg_thread *t)
{
    struct sg_fiber *fiber = sg_thread_fiber(t);
    struct sg_run *run = fiber->run;
    struct sg_cluster *cluster = cluster_of(run);
    if (fiber->cluster_arrived && fiber->cluster_phase == cluster->phase) {
        fiber->next = NULL;
        if (cluster->first)
            cluster->last->next = fiber;
        else
            cluster->first = fiber;
        cluster->last = fiber;
        run->cluster_waiting++;
        sg_wait(fiber);
    }
    fiber->cluster_arrived = false;
}

void sg_cluster_thread_ended(struct sg_fiber *fiber)
{
    struct sg_cluster *cluster = fiber->run->cluster;
    cluster->live--;
    if (fiber->cluster_arrived && fiber->cluster_phase == cluster->phase)
        cluster->arrived--;
    if (cluster->live)
        settle(cluster);
}
