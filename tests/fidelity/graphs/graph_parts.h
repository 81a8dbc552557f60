/*
 * graph_parts.h - what the transcripts of graphs (graphs.c, graph_memory.c, graph_conditions.c, captures.c) have in common:
 * kernels, a few objects of each kind, and how a graph is made, run and shown. See wrong_use.c for transcripts.
 */
#ifndef TESTS_FIDELITY_GRAPH_PARTS_H
#define TESTS_FIDELITY_GRAPH_PARTS_H

#include "tests/node_params.h"

#include <cuda.h>
#include <stddef.h>
#include <stdio.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

extern CUcontext c;
extern CUfunction add, scale; /* *p += n, *p *= n */
extern CUfunction decide;     /* the condition is *p */
extern CUfunction nothing;
extern CUdeviceptr p, q; /* 4096 bytes; those at p are zero at first */
extern CUstream s, t, u; /* u is ordered with the legacy stream */
extern CUevent e, e2;
extern CUgraph g, g2;
extern CUgraphExec x;
extern CUgraphNode nodes[16], node;
extern size_t n;
extern int calls;                 /* what `called` was called with, added up */
extern CUresult in_host_function; /* what a call of the API gives there */

void CUDA_CB called(void *user);
/** A kernel's node, with one address and one number. */
CUgraphNode kernel(CUgraph graph, const CUgraphNode *after, size_t count, CUfunction f, CUdeviceptr address,
                   unsigned number);
/** Shows so many numbers from `address` on. */
void show(CUdeviceptr address, int count);
/** Shows a graph's nodes and edges. */
void shape(CUgraph graph);
/** Launches in `s` and waits. */
void run(CUgraphExec exec);
/** Ends the capture in `s`, shows and runs its graph `g`, and shows so many numbers at `p`. */
void run_captured(int count);
/** Makes all of the above, then calls the parts up to NULL. What main returns. */
int transcript(void (*const parts[])(void));

#endif
