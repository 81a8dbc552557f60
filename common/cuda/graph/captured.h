/*
 * captured.h - calls of a library above the driver as nodes of graphs: NCCL's (client/nccl/capture.c, softgpu/nccl/capture.c).
 *
 * Happy path: the library asks which capture a stream takes part in (rg_capture_number), and gives the capture a structure of its own
 * (rg_captured_add), which becomes a node behind all that its streams have. Each launch of a graph with that node calls `run` with the
 * stream in which the node's turn comes; copies of the graph share the structure. When no graph has it any more, `end` gives it back.
 *
 * A program that asks sees a node of the type of host functions, whose parameters can be neither read nor changed.
 */
#ifndef RG_COMMON_CUDA_GRAPH_CAPTURED_H
#define RG_COMMON_CUDA_GRAPH_CAPTURED_H

#include "common/cuda/api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** First member of what the library keeps for the node. */
struct rg_captured_work {
    /** In one capture, works of one owner follow each other as they were added, whatever their streams say. */
    const void *owner;
    /** Puts the calls into the stream, whose context is current. Any thread, several at once where graphs share the work. */
    CUresult (*run)(struct rg_captured_work *work, CUstream stream);
    /** Any thread, once, without locks of graphs: it may call the driver. */
    void (*end)(struct rg_captured_work *work);
    struct rg_captured_work *next; /* of those that are to end: captured.c's */
};

/**
 * Which capture the stream takes part in; 0: none. CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: in one that is invalid;
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: it is the legacy stream, and would wait for one that does. Any thread.
 */
CUresult rg_capture_number(CUstream stream, uint64_t *number);
/**
 * The work as a node of the capture in which all of the n streams (of which several may be one) take part, and from then on what each of
 * them has last. It is taken over on success alone. CUDA_ERROR_NOT_SUPPORTED, and the capture is invalid: into the body of a conditional node. Any thread.
 */
CUresult rg_captured_add(struct rg_captured_work *work, const CUstream *streams, size_t n);
/** Ends works that no graph has any more. Without locks of graphs; any thread. */
void rg_captured_collect(void);

/* The bytes of the id by which cuGetExportTable of the software device gives its NCCL what follows. No other driver knows it. */
#define RG_CAPTURED_TABLE_ID "remote-gpu: capt"

struct rg_captured_table {
    size_t size; /* of this structure */
    CUresult (*number)(CUstream stream, uint64_t *number);
    CUresult (*add)(struct rg_captured_work *work, const CUstream *streams, size_t n);
    void (*collect)(void);
    /** Whether so much memory of the device's is there, and may be read (`write`: and written) by the process itself, at its address. Any thread. */
    bool (*in_place)(uint64_t address, uint64_t size, bool write);
};

#endif
