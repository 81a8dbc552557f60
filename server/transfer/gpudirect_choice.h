/*
 * gpudirect_choice.h - how bulk data gets into a GPU's memory: what driver, network device and user (REMOTE_GPU_DIRECT) have, or let.
 *
 * What is chosen, and why nothing better, is logged. The dispatcher.
 */
#ifndef RG_SERVER_TRANSFER_GPUDIRECT_CHOICE_H
#define RG_SERVER_TRANSFER_GPUDIRECT_CHOICE_H

#include "proto/gpu_path.h"
#include "server/core/worker.h"

/** The best path below `above` (RG_GPU_PATH_DMABUF + 1: any). */
enum rg_gpu_path rg_gpudirect_choose(struct rg_worker *worker, CUdevice device, int above);
/** Whether what the network device wrote must be made visible to the device's work. */
bool rg_gpudirect_flushes(CUdevice device);

#endif
