/*
 * gpu_groups.h - which GPUs of a machine belong together: groups in which each is linked with each other, as the pool's scheduler wants
 * them (pool/schedule.h). Pure; any thread.
 */
#ifndef RG_SERVER_DAEMON_PROBE_GPU_GROUPS_H
#define RG_SERVER_DAEMON_PROBE_GPU_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/** Whether two GPUs of a machine, by their numbers, are linked. */
typedef bool rg_gpu_linked(void *data, uint32_t one, uint32_t other);

/**
 * A number for each of `n` GPUs, the same for those of a group, -1 for those that are linked with none. A GPU joins the first group of
 * which it is linked with all, so that where links are no full mesh a group is a part of it that is one.
 */
void rg_gpu_groups(uint32_t n, rg_gpu_linked *linked, void *data, int32_t *group);

#endif
