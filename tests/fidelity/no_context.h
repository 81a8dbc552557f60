/* no_context.h - what the parts of no_context.c share. */
#ifndef TESTS_FIDELITY_NO_CONTEXT_H
#define TESTS_FIDELITY_NO_CONTEXT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "must.h"
#include "tests/add_kernel.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SIZE     ((size_t)8192)
#define CODE                                                                                                 \
    ADD_KERNEL ".visible .global .align 8 .b8 table[64];\n.visible .global .texref image;\n"                 \
               ".visible .global .surfref screen;\n"

/* What is made in one context. */
struct objects {
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory, other, pooled, managed, shared, mapped;
    CUmemGenericAllocationHandle allocation;
    void *host, *freed, *registered;
    CUstream stream, spare_stream;
    CUevent event, spare_event, shared_event;
    CUmodule module, spare_module;
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    CUarray array, spare_array;
    CUmipmappedArray mipmap;
    CUtexObject texture;
    CUsurfObject surface;
    CUtexref texref;
    CUsurfref surfref;
    CUlinkState link;
    CUmemoryPool pool;
    CUgraph graph;
    CUgraphExec exec;
};

extern const char code[sizeof CODE];
extern unsigned char bytes[SIZE]; /* memory that CUDA knows nothing of */
extern bool apart;                /* the devices are two servers', which share no managed memory */
extern bool expecting;            /* what the specification says */

/** Prints what came of a call; while `expecting`, ends the program where that is not what the call's line says. */
CUresult told(const char *call, bool has, CUresult result);

/* A call whose object has a context; the same of a default stream, or of no object. */
#define TRY(call)   told(#call, true, call)
#define PLAIN(call) told(#call, false, call)
/* A call that, where the objects are there, must succeed. */
#define OK(call) (TRY(call) == CUDA_SUCCESS || !expecting ? (void)0 : must(CUDA_ERROR_UNKNOWN, #call))

/* Of each kind of call, all that there is to ask. */
void ask_context_and_devices(const struct objects *o);
void ask_for_new(struct objects *o);
void ask_stream(struct objects *o);
void ask_default_streams(struct objects *o);
void ask_objects(struct objects *o);
void ask_managed(struct objects *o);
void ask_graphs(struct objects *o);
/** The ends of what was made. */
void end(struct objects *o);

#endif
