/*
 * warp.h - barriers, warps and clusters: what threads of thread form wait for. Slot's thread only.
 */
#ifndef SG_EXEC_WARP_WARP_H
#define SG_EXEC_WARP_WARP_H

#include "softgpu/exec/engine.h"

/* --- barrier.c, warp.c: what the end of a thread means to those that wait --- */

/** Opens the barriers for which only threads that have ended were missing. */
void sg_barriers_thread_ended(struct sg_run *run);
/** Counts exited threads as arrived where nothing else can run; true if that made a thread ready. */
bool sg_barriers_rescue(struct sg_run *run);
/** Lets threads that wait before an access go on where no others of their warps can; true if there were any. */
bool sg_warps_pass(struct sg_run *run);
/** Lets threads that wait in activemask go on; true if there were any. */
bool sg_warps_converge(struct sg_run *run);
/**
 * Where nothing else can run: lets lanes go on whose masks disagree, but all name lanes that are there; true
 * if any.
 */
bool sg_warps_rescue(struct sg_run *run);
void sg_warp_thread_ended(struct sg_run *run, struct sg_warp *warp);

/* --- cluster.c: blocks that run together --- */

/** Makes ready a cluster, without its runs; NULL if memory ran out. */
struct sg_cluster *sg_cluster_acquire(struct sg_slot *slot, const struct sg_grid *grid);
/** Puts a cluster back that has no runs. */
void sg_cluster_release(struct sg_slot *slot, struct sg_cluster *cluster);
/** The block index of block `rank` of cluster `index`. */
void sg_cluster_set_index(struct sg_block *block, uint64_t index, uint32_t rank);
/** The shared memory of block `rank`; that of the first where `rank` is 0. */
unsigned char *sg_cluster_shared(const struct sg_cluster *cluster, uint32_t rank);
/** A run of the cluster is released. */
void sg_cluster_leave(struct sg_slot *slot, struct sg_run *run);
void sg_cluster_thread_ended(struct sg_fiber *fiber);
/** Whether no block of the cluster can go on, each having been found blocked. */
bool sg_cluster_is_stuck(const struct sg_cluster *cluster);

#endif
