/* graph_parts.c - see graph_parts.h. */
#include "graph_parts.h"

#include <stdint.h>

#define CHANGE(name, instruction)                                                                            \
    ".visible .entry " name "(.param .u64 p, .param .u32 n)\n"                                               \
    "{\n"                                                                                                    \
    "    .reg .u32 %r<4>;\n"                                                                                 \
    "    .reg .u64 %rd<3>;\n"                                                                                \
    "    ld.param.u64 %rd1, [p];\n"                                                                          \
    "    ld.param.u32 %r1, [n];\n"                                                                           \
    "    cvta.to.global.u64 %rd2, %rd1;\n"                                                                   \
    "    ld.global.u32 %r2, [%rd2];\n"                                                                       \
    "    " instruction " %r3, %r1, %r2;\n"                                                                   \
    "    st.global.u32 [%rd2], %r3;\n"                                                                       \
    "    ret;\n"                                                                                             \
    "}\n"

static const char ptx[] =
    ".version 7.0\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n" CHANGE(
        "add", "add.u32")                                         /* *p += n */
    CHANGE("scale", "mul.lo.u32")                                 /* *p *= n */
    ".visible .entry decide(.param .u64 handle, .param .u64 p)\n" /* the condition is *p */
    "{\n"
    "    .reg .u32 %r<2>;\n"
    "    .reg .u64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [handle];\n"
    "    ld.param.u64 %rd2, [p];\n"
    "    cvta.to.global.u64 %rd3, %rd2;\n"
    "    ld.global.u32 %r1, [%rd3];\n"
    "    {\n"
    "    .param .b64 param0;\n"
    "    st.param.b64 [param0+0], %rd1;\n"
    "    .param .b32 param1;\n"
    "    st.param.b32 [param1+0], %r1;\n"
    "    call.uni cudaGraphSetConditional, (param0, param1);\n"
    "    }\n"
    "    ret;\n"
    "}\n"
    ".visible .entry nothing()\n"
    "{\n"
    "    ret;\n"
    "}\n";

CUcontext c;
CUfunction add, scale, decide, nothing;
CUdeviceptr p, q;
CUstream s, t, u;
CUevent e, e2;
CUgraph g, g2;
CUgraphExec x;
CUgraphNode nodes[16], node;
size_t n;
int calls;
CUresult in_host_function;
static CUmodule m;

void CUDA_CB called(void *user)
{
    CUdeviceptr none;
    calls += (int)(intptr_t)user;
    in_host_function = cuMemAlloc_v2(&none, 4);
}

CUgraphNode kernel(CUgraph graph, const CUgraphNode *after, size_t count, CUfunction f, CUdeviceptr address,
                   unsigned number)
{
    void *args[] = {&address, &number};
    CUDA_KERNEL_NODE_PARAMS k = one_block(f, 1, args);
    CUgraphNode made = NULL;
    TRY(cuGraphAddKernelNode_v2(&made, graph, after, count, &k));
    return made;
}

void show(CUdeviceptr address, int count)
{
    unsigned values[16] = {0};
    TRY(cuMemcpyDtoH_v2(values, address, (size_t)count * 4));
    for (int i = 0; i < count; i++)
        printf(" %u", values[i]);
    printf("\n");
}

void shape(CUgraph graph)
{
    CUgraphNode from[64], to[64];
    CUgraphEdgeData data[64];
    size_t edges = 64, count = 64, roots = 0;
    CUgraphNode all[64];
    printf("shape:");
    if (cuGraphGetNodes(graph, all, &count) != CUDA_SUCCESS ||
        cuGraphGetEdges_v2(graph, from, to, data, &edges) != CUDA_SUCCESS ||
        cuGraphGetRootNodes(graph, NULL, &roots) != CUDA_SUCCESS) {
        printf(" none\n");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type = (CUgraphNodeType)-1;
        (void)cuGraphNodeGetType(all[i], &type);
        printf(" %d", (int)type);
    }
    printf(" roots %zu;", roots);
    for (size_t i = 0; i < edges; i++) {
        size_t a = 0, b = 0;
        while (a < count && all[a] != from[i])
            a++;
        while (b < count && all[b] != to[i])
            b++;
        printf(" %zu-%zu", a, b);
        if (data[i].from_port || data[i].type)
            printf("(%d,%d)", data[i].from_port, data[i].type);
    }
    printf("\n");
}

void run(CUgraphExec exec)
{
    TRY(cuGraphLaunch(exec, s));
    TRY(cuStreamSynchronize(s));
}

void run_captured(int count)
{
    TRY(cuStreamEndCapture(s, &g));
    shape(g);
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, count);
    TRY(cuGraphExecDestroy(x));
}

/* Makes what the transcripts have in common. */
static void begin(void)
{
    TRY(cuInit(0));
    TRY(cuGraphCreate(&g, 0));
    TRY(cuDevicePrimaryCtxRetain(&c, 0));
    TRY(cuCtxSetCurrent(c));
    TRY(cuModuleLoadData(&m, ptx));
    TRY(cuModuleGetFunction(&add, m, "add"));
    TRY(cuModuleGetFunction(&scale, m, "scale"));
    TRY(cuModuleGetFunction(&decide, m, "decide"));
    TRY(cuModuleGetFunction(&nothing, m, "nothing"));
    TRY(cuMemAlloc_v2(&p, 4096));
    TRY(cuMemAlloc_v2(&q, 4096));
    TRY(cuMemsetD8_v2(p, 0, 4096));
    TRY(cuCtxSynchronize()); /* s and t do not wait for the default stream */
    TRY(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&u, CU_STREAM_DEFAULT));
    TRY(cuEventCreate(&e, 0));
    TRY(cuEventCreate(&e2, 0));
}

int transcript(void (*const parts[])(void))
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    begin();
    while (*parts)
        (*parts++)();
    TRY(cuCtxSynchronize());
    return 0;
}
