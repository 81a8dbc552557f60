/*
 * graph_conditions.c - a transcript of nodes whose graphs run if, while or as often as the device decides.
 */
#include "graph_parts.h"

static CUgraphNode decision(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphConditionalHandle h,
                            CUdeviceptr address)
{
    void *args[] = {&h, &address};
    CUDA_KERNEL_NODE_PARAMS k = one_block(decide, 1, args);
    CUgraphNode made = NULL;
    TRY(cuGraphAddKernelNode_v2(&made, graph, after, count, &k));
    return made;
}

static CUgraph *conditional(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphConditionalHandle h,
                            CUgraphConditionalNodeType type, unsigned size, CUgraphNode *out)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = h;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = c;
    TRY(cuGraphAddNode_v2(out, graph, after, NULL, count, &params));
    return params.conditional.phGraph_out;
}

static void conditional_nodes(void)
{
    CUgraphConditionalHandle h = 0, h2 = 0;
    CUgraphNode while_node, if_node, switch_node;
    unsigned start[4] = {5, 0, 2, 0}, result[4] = {0};
    CUDA_MEMCPY3D in = copy_to_device(p, start, sizeof start);
    CUDA_MEMCPY3D back = copy_to_host(result, p, sizeof result);
    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphConditionalHandleCreate(NULL, g, c, 0, 0));
    TRY(cuGraphConditionalHandleCreate(&h, NULL, c, 0, 0));
    TRY(cuGraphConditionalHandleCreate(&h, g, c, 0, 8));
    TRY(cuGraphConditionalHandleCreate(&h, g, c, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    TRY(cuGraphInstantiateWithParams(&x, g, &how)); /* without its node */
    printf("%d\n", (int)how.result_out);
    /* while (p[0]) { p[1] += 10; p[0] -= 1; if (p[2] == 0) p[3] += 1 else p[3] += 100; p[2] -= 1 … } */
    TRY(cuGraphAddMemcpyNode(&nodes[0], g, NULL, 0, &in, c));
    conditional(g, nodes, 1, h + 1, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 2, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_IF, 3, &node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_SWITCH, 0, &node);
    conditional(g, nodes, 1, h, (CUgraphConditionalNodeType)7, 1, &node);
    CUgraph *loop = conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 1, &while_node);
    conditional(g, nodes, 1, h, CU_GRAPH_COND_TYPE_WHILE, 1, &node); /* in use */
    CUgraph body = loop[0];
    CUDA_HOST_NODE_PARAMS host = {called, (void *)1};
    TRY(cuGraphAddHostNode(&node, body, NULL, 0, &host));
    TRY(cuGraphDestroy(body));
    TRY(cuGraphInstantiateWithFlags(&x, body, 0));
    TRY(cuGraphConditionalHandleCreate(&h2, g, c, 0, 0));
    nodes[1] = kernel(body, NULL, 0, add, p + 4, 10);
    nodes[2] = kernel(body, NULL, 0, add, p, (unsigned)-1);
    nodes[3] = decision(body, &nodes[2], 1, h, p);
    nodes[4] = decision(body, &nodes[1], 1, h2, p + 8);
    CUgraph *both = conditional(body, &nodes[4], 1, h2, CU_GRAPH_COND_TYPE_IF, 2, &if_node);
    kernel(both[0], NULL, 0, add, p + 8, (unsigned)-1);
    kernel(both[1], NULL, 0, add, p + 12, 1);
    TRY(cuGraphAddMemcpyNode(&node, g, &while_node, 1, &back, c));
    shape(g);
    shape(body);
    TRY(cuGraphClone(&g2, g));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    start[0] = 20;
    start[2] = 7;
    TRY(cuGraphLaunch(x, s));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    unsigned more = 3;
    CUdeviceptr address = p + 4;
    void *args[] = {&address, &more};
    CUDA_KERNEL_NODE_PARAMS k = one_block(add, 1, args);
    TRY(cuGraphExecKernelNodeSetParams_v2(x, nodes[1], &k));
    run(x);
    printf("%u %u %u %u\n", result[0], result[1], result[2], result[3]);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));

    TRY(cuGraphCreate(&g, 0));
    TRY(cuGraphConditionalHandleCreate(&h, g, NULL, 2, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraph *cases = conditional(g, NULL, 0, h, CU_GRAPH_COND_TYPE_SWITCH, 3, &switch_node);
    for (unsigned i = 0; i < 3; i++)
        kernel(cases[i], NULL, 0, add, p, 1u << (8 * i));
    TRY(cuStreamBeginCaptureToGraph(s, cases[1], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD32Async(p + 4, 6, 1, s));
    TRY(cuStreamEndCapture(s, NULL));
    TRY(cuMemsetD8Async(p, 0, 16, s));
    TRY(cuGraphInstantiateWithFlags(&x, g, 0));
    run(x);
    show(p, 2);

    /* The same with another condition, which a kernel sets as well. */
    CUgraphExecUpdateResultInfo info;
    TRY(cuGraphCreate(&g2, 0));
    TRY(cuGraphConditionalHandleCreate(&h2, g2, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    cases = conditional(g2, NULL, 0, h2, CU_GRAPH_COND_TYPE_SWITCH, 3, &switch_node);
    for (unsigned i = 0; i < 3; i++)
        kernel(cases[i], NULL, 0, add, p, 2u << (8 * i));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    printf("%d %d\n", (int)info.result, info.errorNode == NULL);
    TRY(cuStreamBeginCaptureToGraph(s, cases[1], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuMemsetD32Async(p + 4, 6, 1, s));
    TRY(cuStreamEndCapture(s, NULL));
    TRY(cuGraphExecUpdate_v2(x, g2, &info));
    TRY(cuGraphDestroy(g2));
    run(x);
    show(p, 2);
    TRY(cuGraphExecDestroy(x));
    TRY(cuGraphDestroy(g));
}

int main(void)
{
    return transcript((void (*const[])(void)){conditional_nodes, NULL});
}
