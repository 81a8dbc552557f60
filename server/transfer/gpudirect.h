/*
 * gpudirect.h - bulk data between the network and the GPU's memory itself, past the server's memory.
 *
 * For each GPU one of three ways, the best that driver, kernel and network device have, tried in this order
 * and kept until it fails: its memory is registered with the network device by a dma-buf; by its address,
 * which the kernel module nvidia_peermem makes known; or data goes through page-locked memory (staging.h).
 * REMOTE_GPU_DIRECT of the server names one (dmabuf, peer, staging) or leaves the choice (auto): no other
 * than that and staging is tried then, and peer is taken at its word, whatever GPU and modules say of
 * themselves.
 *
 * An allocation is registered when a large copy first needs it, as a whole, and given back before it is freed
 * or its context ends. Memory that others than this session may free or unmap (pools, virtual and managed
 * memory, memory of other processes) goes through staging.
 *
 * Failures: whatever cannot be had is done without; the first failure of a way is logged. Threads: the
 * dispatcher, except as noted.
 */
#ifndef RG_SERVER_TRANSFER_GPUDIRECT_H
#define RG_SERVER_TRANSFER_GPUDIRECT_H

#include "proto/gpu_path.h"
#include "server/core/worker.h"

/** Memory of a GPU that the network device may use; held as long as it is in use. */
struct rg_gpudirect_area;

/** What the worker uses for the memory of the GPU of the current context. */
enum rg_gpu_path rg_gpudirect_path(struct rg_worker *worker);

/** Holds it for a transfer; NULL: it goes through staging. The context of the memory is current. */
struct rg_gpudirect_area *rg_gpudirect_pin(struct rg_worker *worker, struct rg_worker_context *context,
                                           CUdeviceptr address, size_t size);
/** Any thread. NULL is fine. */
void rg_gpudirect_unpin(struct rg_worker *worker, struct rg_gpudirect_area *area);

/**
 * Receives all of the request's bulk data straight to `device`, if that can be done now: nothing that
 * `stream` comes after is left to do. False: nothing has happened.
 */
bool rg_gpudirect_copy_in(struct rg_request *request, struct rg_worker_context *context, CUdeviceptr device,
                          size_t size, CUstream stream, CUresult *result);

/** Bytes that went straight to and from the memory of GPUs so far. Any thread. */
void rg_gpudirect_statistics(struct rg_worker *worker, uint64_t *in, uint64_t *out);
/** Bytes were sent straight from it. Any thread. */
void rg_gpudirect_sent(struct rg_worker *worker, size_t size);
/** Memory is about to be freed: it is not found any more. NULL: nothing is known of it. */
struct rg_gpudirect_area *rg_gpudirect_take(struct rg_worker *worker, CUdeviceptr address);
/**
 * Ends what was taken: waits for what uses it, as the driver would, and gives it back to the network device.
 * Also by a thread that is not the dispatcher any more. The context of the memory is current; NULL is fine.
 */
void rg_gpudirect_end(struct rg_request *request, struct rg_gpudirect_area *area);
/** The client wants to know how data gets to each GPU. Before the worker starts. */
void rg_gpudirect_tell(struct rg_worker *worker);

#endif
