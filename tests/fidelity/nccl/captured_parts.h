/*
 * captured_parts.h - what programs with NCCL's calls in captured streams (captured.c, captured_use.c) have in common: a rank on each of two
 * devices, a kernel, and how graphs are made, launched and compared with what a model says. Of one source file a program.
 */
#ifndef TESTS_FIDELITY_NCCL_CAPTURED_PARTS_H
#define TESTS_FIDELITY_NCCL_CAPTURED_PARTS_H

#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"

#include <stdbool.h>
#include <stdint.h>

#define COUNT 1000
#define LARGE (300 * COUNT) /* elements: several parts */
#define TURNS 20
#define MANY  100

static const char code[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry change(.param .u64 p, .param .u32 n, .param .u32 factor, .param .u32 more)\n"
    "{\n"
    "    .reg .u32 %r<9>; .reg .u64 %rd<4>; .reg .pred %q;\n"
    "    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "    ld.param.u32 %r5, [n]; setp.ge.u32 %q, %r4, %r5; @%q bra END;\n"
    "    ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd3, %rd1, %rd2;\n"
    "    ld.param.u32 %r6, [factor]; ld.param.u32 %r7, [more];\n"
    "    ld.global.u32 %r8, [%rd3]; mad.lo.u32 %r8, %r8, %r6, %r7; st.global.u32 [%rd3], %r8;\n"
    "END: ret;\n"
    "}\n";

static int wrong;
static CUcontext contexts[2];
static CUstream streams[2], others[2];
static CUevent events[2][2];
static CUdeviceptr sends[2], receives[2];
static CUfunction change[2];
static ncclComm_t comms[2];

static inline void expect(int wanted, const char *call, int result)
{
    printf("%s: %d\n", call, result);
    if (result == wanted)
        return;
    printf("    is wrong: it should be %d\n", wanted);
    wrong++;
}
#define EXPECT(wanted, call) expect(wanted, #call, (int)(call))

static inline void enter(int rank)
{
    CHECK(cuCtxSetCurrent(contexts[rank]));
}

static inline void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Every element becomes itself * factor + more. */
static inline void launch_change(int rank, CUdeviceptr p, unsigned n, unsigned factor, unsigned more,
                                 CUstream stream)
{
    void *parameters[] = {&p, &n, &factor, &more};
    CHECK(cuLaunchKernel(change[rank], (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, parameters, NULL));
}

/* Element i that a rank gives in a turn. */
static inline uint32_t given(int rank, unsigned turn, unsigned i)
{
    return (uint32_t)(rank + 1) * 1000003u * (turn + 1) + i * 7u;
}

static inline void upload(int rank, unsigned turn, unsigned n)
{
    static uint32_t values[2][LARGE];
    enter(rank);
    for (unsigned i = 0; i < n; i++)
        values[rank][i] = given(rank, turn, i);
    CHECK(cuMemcpyHtoDAsync_v2(sends[rank], values[rank], n * sizeof(uint32_t), streams[rank]));
}

/* How many elements at the rank's `receives` are not what `model` says of them. */
static inline int differing(int rank, unsigned turn, unsigned n, uint32_t (*model)(int, unsigned, unsigned))
{
    static uint32_t found[LARGE];
    int differ = 0;
    enter(rank);
    CHECK(cuMemcpyDtoHAsync_v2(found, receives[rank], n * sizeof *found, streams[rank]));
    CHECK(cuStreamSynchronize(streams[rank]));
    for (unsigned i = 0; i < n; i++)
        differ += found[i] != model(rank, turn, i);
    return differ;
}

static inline void begin(int rank, CUstream stream)
{
    enter(rank);
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static inline CUgraphExec end(int rank, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    enter(rank);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

static inline void end_all(CUgraphExec *execs, int n)
{
    for (int i = 0; i < n; i++) {
        enter(i);
        CHECK(cuGraphExecDestroy(execs[i]));
    }
}

/* Launches each rank's graph so many times, with new values, and compares; `n` graphs: with one, it is of both ranks. */
static inline void run(const char *what, unsigned turns, CUgraphExec *execs, int n, unsigned count,
                       uint32_t (*model)(int, unsigned, unsigned))
{
    int differ = 0;
    for (unsigned turn = 0; turn < turns; turn++) {
        for (int rank = 0; rank < 2; rank++)
            upload(rank, turn, count);
        CHECK(cuEventRecord(events[1][0], streams[1]));
        enter(0);
        CHECK(cuStreamWaitEvent(streams[0], events[1][0], 0));
        for (int i = 0; i < n; i++) {
            enter(i);
            CHECK(cuGraphLaunch(execs[i], streams[i]));
        }
        enter(0);
        CHECK(cuStreamSynchronize(streams[0]));
        for (int rank = 0; rank < 2; rank++)
            differ += differing(rank, turn, count, model);
    }
    printf("%s: %u times, %d elements differ\n", what, turns, differ);
    wrong += differ;
}

static inline void prepare(void)
{
    CHECK(cuInit(0));
    for (int rank = 0; rank < 2; rank++) {
        CUmodule module;
        CHECK(cuDevicePrimaryCtxRetain(&contexts[rank], rank));
        enter(rank);
        CHECK(cuModuleLoadData(&module, code));
        CHECK(cuModuleGetFunction(&change[rank], module, "change"));
        CHECK(cuStreamCreate(&streams[rank], CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamCreate(&others[rank], CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < 2; i++)
            CHECK(cuEventCreate(&events[rank][i], CU_EVENT_DISABLE_TIMING));
        CHECK(cuMemAlloc_v2(&sends[rank], LARGE * sizeof(uint32_t)));
        CHECK(cuMemAlloc_v2(&receives[rank], LARGE * sizeof(uint32_t)));
    }
    NCCL(ncclCommInitAll(comms, 2, NULL));
}

#endif
