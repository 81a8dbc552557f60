/*
 * dot.c - graphs as text for Graphviz. See graph.h.
 *
 * Nodes are named by their graph's id and their place in it; each has its type and what it works on, and what
 * the flags ask for. Graphs inside nodes are clusters of their own.
 */
#include "common/cuda/graph/call.h"

#include <stdio.h>

static const char *const names[] = {
    "KERNEL",       "MEMCPY",       "MEMSET",           "HOST",           "GRAPH",     "EMPTY",
    "EVENT_WAIT",   "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE",
    "BATCH_MEM_OP", "CONDITIONAL",
};

static const char *side(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_HOST ? "H" : type == CU_MEMORYTYPE_ARRAY ? "A" : "D";
}

static bool wants(unsigned flags, unsigned what)
{
    return flags & (what | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
}

static void kernel(FILE *file, const struct rg_graph_work *work, unsigned flags)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &work->params.kernel;
    const char *name = NULL;
    if (cuFuncGetName(&name, k->func) == CUDA_SUCCESS && name)
        fprintf(file, "\\n%s", name);
    fprintf(file, "\\n\\<\\<\\<(%u,%u,%u),(%u,%u,%u),%u\\>\\>\\>", k->gridDimX, k->gridDimY, k->gridDimZ,
            k->blockDimX, k->blockDimY, k->blockDimZ, k->sharedMemBytes);
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
        fprintf(file, "\\nsharedMemBytes: %u", k->sharedMemBytes);
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES))
        fprintf(file, "\\ncooperative: %d\\npriority: %d", work->cooperative, work->priority);
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
        fprintf(file, "\\nfunc: %p", (void *)k->func);
}

static void copy(FILE *file, const CUDA_MEMCPY3D *c, unsigned flags)
{
    fprintf(file, "\\n%sto%s", side(c->srcMemoryType), side(c->dstMemoryType));
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
        fprintf(file, "\\nWidthInBytes: %zu\\nHeight: %zu\\nDepth: %zu\\nsrcPitch: %zu\\ndstPitch: %zu",
                c->WidthInBytes, c->Height, c->Depth, c->srcPitch, c->dstPitch);
}

static void conditional(FILE *file, const CUDA_CONDITIONAL_NODE_PARAMS *c)
{
    static const char *const types[] = {"IF", "WHILE", "SWITCH"};
    fprintf(file, "\\ntype: %s\\nsize: %u\\nhandle: %llx", types[c->type], c->size,
            (unsigned long long)c->handle);
}

static void label(FILE *file, const struct rg_graph_node *node, unsigned flags)
{
    const CUgraphNodeParams *p = &node->work->params;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        kernel(file, node->work, flags);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        copy(file, &p->memcpy.copyParams, flags);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
            fprintf(file,
                    "\\ndst: %llx\\nvalue: %u\\nelementSize: %u\\nwidth: %zu\\nheight: %zu\\npitch: %zu",
                    (unsigned long long)p->memset.dst, p->memset.value, p->memset.elementSize,
                    p->memset.width, p->memset.height, p->memset.pitch);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS))
            fprintf(file, "\\nfn: %p\\nuserData: %p", (void *)(uintptr_t)p->host.fn, p->host.userData);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS))
            fprintf(file, "\\nevent: %p", (void *)p->eventRecord.event);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
            fprintf(file, "\\nbytesize: %zu\\ndptr: %llx", p->alloc.bytesize,
                    (unsigned long long)p->alloc.dptr);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
            fprintf(file, "\\ndptr: %llx", (unsigned long long)p->free.dptr);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS))
            fprintf(file, "\\ncount: %u", p->memOp.count);
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS))
            conditional(file, &p->conditional);
        break;
    default:
        break;
    }
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
        fprintf(file, "\\nnode: %p", (const void *)node);
}

static void edge(FILE *file, const struct rg_graph_edge *e, const struct rg_graph_node *to, size_t number,
                 unsigned flags)
{
    const unsigned long long id = to->graph->id;
    fprintf(file, "\"graph_%llu_node_%zu\" -> \"graph_%llu_node_%zu\" [style=\"%s\"", id, e->from->index, id,
            to->index, e->data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ? "dashed" : "solid");
    if (wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO))
        fprintf(file, " label=\"%zu\"", number);
    if (!rg_graph_edge_plain(&e->data))
        fprintf(file, " taillabel=\"%u\"", e->data.from_port);
    fprintf(file, "];\n");
}

static void print(FILE *file, const struct rg_graph *graph, unsigned flags)
{
    const unsigned long long id = graph->id;
    fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\" graph[style=\"dashed\"];\n", id, id);
    for (size_t i = 0; i < graph->n; i++) {
        const struct rg_graph_node *node = graph->nodes[i];
        const CUgraphNodeType type = node->work->params.type;
        fprintf(file, "\"graph_%llu_node_%zu\" [style=\"%s\" shape=\"%s\" label=\"%zu\\n%s", id, i,
                type == CU_GRAPH_NODE_TYPE_KERNEL ? "bold" : "solid",
                type == CU_GRAPH_NODE_TYPE_KERNEL ? "octagon" : "rectangle", i, names[type]);
        label(file, node, flags);
        fprintf(file, "\"];\n");
        for (unsigned c = 0; c < node->work->n_children; c++)
            print(file, node->work->children[c], flags);
    }
    size_t number = 0;
    for (size_t i = 0; i < graph->n; i++)
        for (size_t d = 0; d < graph->nodes[i]->n_dependencies; d++)
            edge(file, &graph->nodes[i]->dependencies[d], graph->nodes[i], number++, flags);
    fprintf(file, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
    RG_TRY(rg_graph_backend_enter());
    if (!path || (flags & ~0xffffu))
        return CUDA_ERROR_INVALID_VALUE;
    RG_GRAPH_LOCKED;
    GRAPH_OR_RETURN(graph, handle);
    FILE *file = fopen(path, "we");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    print(file, graph, flags);
    fprintf(file, "}\n");
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
