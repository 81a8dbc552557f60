/*
 * graph.c - graphs of the driver, made of what the client sends (proto/graph.h) and launched by its records.
 *
 * Everything in the description is checked: kinds, counts, places in lists, functions by their handles, and
 * attributes as those of launches are. Addresses are the driver's to judge, as in any call.
 */
#include "proto/graph.h"

#include "generated/server/execute.h"
#include "server/images/image.h"
#include "server/shares/worker/count.h"

#include <stdlib.h>
#include <string.h>

struct condition {
    uint64_t client;
    CUgraphConditionalHandle own;
};

struct maker {
    struct rg_request *request;
    struct rg_reader in;
    CUcontext context;
    CUgraph graph;
    struct condition *conditions; /* by the client's handles */
    uint32_t n_conditions;
};

/* The bytes are not what a client sends. */
static CUresult malformed(struct maker *m, const char *what)
{
    rg_request_violation(m->request, "a graph with %s", what);
    return CUDA_ERROR_INVALID_VALUE;
}

static bool supported(void)
{
    return rg_driver_has(cuGraphCreate) && rg_driver_has(cuGraphDestroy) &&
           rg_driver_has(cuGraphConditionalHandleCreate) && rg_driver_has(cuGraphAddNode_v2) &&
           rg_driver_has(cuGraphAddKernelNode_v2) && rg_driver_has(cuGraphKernelNodeSetAttribute) &&
           rg_driver_has(cuGraphAddMemcpyNode) && rg_driver_has(cuGraphAddMemsetNode) &&
           rg_driver_has(cuGraphAddEmptyNode) && rg_driver_has(cuGraphInstantiateWithFlags) &&
           rg_driver_has(cuGraphLaunch) && rg_driver_has(cuGraphExecDestroy);
}

static int by_client(const void *a, const void *b)
{
    const uint64_t x = ((const struct condition *)a)->client, y = ((const struct condition *)b)->client;
    return x < y ? -1 : x > y;
}

static CUresult read_conditions(struct maker *m)
{
    const uint32_t n = rg_get_u32(&m->in);
    if (n > RG_GRAPH_CONDITIONS_MAX || n > rg_left(&m->in) / 16)
        return malformed(m, "a wrong count of conditions");
    m->conditions = rg_request_memory(m->request, (n + 1) * sizeof *m->conditions);
    if (!m->conditions)
        return m->request->result;
    for (uint32_t i = 0; i < n; i++) {
        m->conditions[i].client = rg_get_u64(&m->in);
        const uint32_t initial = rg_get_u32(&m->in), flags = rg_get_u32(&m->in);
        RG_TRY(rg_driver.cuGraphConditionalHandleCreate(&m->conditions[i].own, m->graph, m->context, initial,
                                                        flags));
        m->n_conditions = i + 1;
    }
    if (n)
        qsort(m->conditions, n, sizeof *m->conditions, by_client);
    return CUDA_SUCCESS;
}

/* A step behind the nodes it names. */
struct place {
    CUgraph graph;
    const CUgraphNode *before;
    size_t n;
};

static const struct condition *find_condition(const struct maker *m, uint64_t client)
{
    uint32_t low = 0, high = m->n_conditions;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (m->conditions[middle].client < client)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->n_conditions && m->conditions[low].client == client ? &m->conditions[low] : NULL;
}

/*
 * Copies the parameters with the driver's handles in the place of the client's. What has been put is not
 * looked at again: the driver's handles are numbers like others and may be the same as some of the client's.
 */
static void translate(const struct maker *m, const unsigned char *given, size_t size, unsigned char *out)
{
    size_t at = 0;
    memcpy(out, given, size);
    while (m->n_conditions && size - at >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, given + at, sizeof word);
        const struct condition *condition = find_condition(m, word);
        if (condition)
            memcpy(out + at, &condition->own, sizeof condition->own);
        at += condition ? sizeof word : 1;
    }
}

/* Attributes are those of launches, and no others get to the driver. */
static CUresult set_attributes(struct maker *m, CUgraphNode node, const CUlaunchAttribute *attributes,
                               uint32_t n, bool cooperative)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        CUlaunchAttribute attribute; /* in the record it may lie anywhere */
        memcpy(&attribute, &attributes[i], sizeof attribute);
        result = rg_translate_CUlaunchAttribute(m->request, &attribute, 1);
        if (result == CUDA_SUCCESS)
            result = rg_driver.cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value);
    }
    const CUlaunchAttributeValue value = {.cooperative = 1};
    if (cooperative && result == CUDA_SUCCESS)
        result = rg_driver.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
    return result;
}

static CUresult add_kernel(struct maker *m, const struct place *at, CUgraphNode *node)
{
    const uint64_t handle = rg_get_u64(&m->in);
    uint32_t numbers[9];
    rg_get_into(&m->in, numbers, sizeof numbers);
    if (numbers[8] > 64)
        return malformed(m, "a wrong count of attributes");
    const CUlaunchAttribute *attributes = rg_get(&m->in, numbers[8] * sizeof *attributes);
    size_t size = rg_get_u32(&m->in);
    const unsigned char *given = size <= RG_PARAMS_MAX ? rg_get(&m->in, size) : NULL;
    if (!given)
        return malformed(m, "parameters of a wrong size");
    void *function = rg_request_object(m->request, RG_KIND_FUNCTION, handle);
    unsigned char *parameters = rg_request_memory(m->request, size + 1);
    if (!function || !parameters)
        return m->request->result != CUDA_SUCCESS ? m->request->result : CUDA_ERROR_INVALID_HANDLE;
    translate(m, given, size, parameters);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params = {
        .gridDimX = numbers[0],
        .gridDimY = numbers[1],
        .gridDimZ = numbers[2],
        .blockDimX = numbers[3],
        .blockDimY = numbers[4],
        .blockDimZ = numbers[5],
        .sharedMemBytes = numbers[6],
        .extra = size ? extra : NULL,
    };
    if (rg_handle_kind(handle) == RG_KIND_KERNEL) {
        params.kern = function;
        params.ctx = m->context;
    } else {
        params.func = function;
    }
    CUresult result = rg_driver.cuGraphAddKernelNode_v2(node, at->graph, at->before, at->n, &params);
    return result == CUDA_SUCCESS ? set_attributes(m, *node, attributes, numbers[8], numbers[7] != 0)
                                  : result;
}

static CUresult add_fill(struct maker *m, const struct place *at, CUgraphNode *node)
{
    CUDA_MEMSET_NODE_PARAMS params = {0};
    params.dst = rg_get_u64(&m->in);
    params.pitch = rg_get_u64(&m->in);
    params.width = rg_get_u64(&m->in);
    params.height = rg_get_u64(&m->in);
    params.value = rg_get_u32(&m->in);
    params.elementSize = rg_get_u32(&m->in);
    if (m->in.bad)
        return malformed(m, "too few bytes");
    if (!rg_request_device_memory(m->request, params.dst, params.pitch,
                                  rg_request_bytes_of(params.width, params.elementSize), params.height))
        return m->request->result;
    return rg_driver.cuGraphAddMemsetNode(node, at->graph, at->before, at->n, &params, m->context);
}

/* Whether one side of a copy is device memory; the rows of a slice are `rows` times `pitch` bytes. */
static bool is_device_memory(struct maker *m, const CUDA_MEMCPY3D *copy, CUdeviceptr address, size_t pitch,
                             size_t rows, const size_t at[3])
{
    const uint64_t slice = rg_request_bytes_of(pitch, rows);
    uint64_t offset, rest;
    if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
        return true;
    return !__builtin_add_overflow(rg_request_bytes_of(slice, at[2]), rg_request_bytes_of(pitch, at[1]),
                                   &offset) &&
           !__builtin_add_overflow(offset, at[0], &offset) &&
           !__builtin_add_overflow(offset, address, &offset) &&
           !__builtin_add_overflow(rg_request_bytes_of(slice, copy->Depth - 1),
                                   rg_request_bytes_of(pitch, copy->Height - 1), &rest) &&
           !__builtin_add_overflow(rest, copy->WidthInBytes, &rest) &&
           rg_request_device_memory(m->request, offset, 0, rest, 1);
}

static CUresult add_copy(struct maker *m, const struct place *at, CUgraphNode *node)
{
    CUDA_MEMCPY3D copy;
    rg_get_into(&m->in, &copy, sizeof copy);
    /* Only device memory: the worker's own is none of the client's business. */
    if (m->in.bad || copy.srcMemoryType != CU_MEMORYTYPE_DEVICE || copy.dstMemoryType != CU_MEMORYTYPE_DEVICE)
        return malformed(m, "a copy of what is not device memory");
    const size_t from[] = {copy.srcXInBytes, copy.srcY, copy.srcZ},
                 to[] = {copy.dstXInBytes, copy.dstY, copy.dstZ};
    if (!is_device_memory(m, &copy, copy.srcDevice, copy.srcPitch, copy.srcHeight, from) ||
        !is_device_memory(m, &copy, copy.dstDevice, copy.dstPitch, copy.dstHeight, to))
        return CUDA_ERROR_INVALID_VALUE;
    copy.srcHost = NULL;
    copy.dstHost = NULL;
    copy.srcArray = copy.dstArray = NULL;
    copy.reserved0 = copy.reserved1 = NULL;
    return rg_driver.cuGraphAddMemcpyNode(node, at->graph, at->before, at->n, &copy, m->context);
}

static CUresult add_steps(struct maker *m, CUgraph graph, unsigned depth);

/* Bodies that a conditional node can have. */
static uint32_t most_bodies(uint32_t type)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF: /* and else */
        return 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return RG_GRAPH_BODIES_MAX;
    default:
        return 0;
    }
}

static CUresult add_conditional(struct maker *m, const struct place *at, unsigned depth, CUgraphNode *node)
{
    const uint64_t handle = rg_get_u64(&m->in);
    const uint32_t type = rg_get_u32(&m->in), n = rg_get_u32(&m->in);
    const struct condition *condition = find_condition(m, handle);
    /* A body is at least its count of steps. */
    if (m->in.bad || !condition || depth == RG_GRAPH_DEPTH_MAX || n == 0 || n > most_bodies(type) ||
        n > rg_left(&m->in) / 4)
        return malformed(m, "a wrong conditional node");
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = condition->own;
    params.conditional.type = (CUgraphConditionalNodeType)type;
    params.conditional.size = n;
    params.conditional.ctx = m->context;
    CUresult result = rg_driver.cuGraphAddNode_v2(node, at->graph, at->before, NULL, at->n, &params);
    if (result == CUDA_SUCCESS && n && !params.conditional.phGraph_out)
        result = CUDA_ERROR_NOT_SUPPORTED;
    for (uint32_t b = 0; b < n && result == CUDA_SUCCESS; b++)
        result = add_steps(m, params.conditional.phGraph_out[b], depth + 1);
    return result;
}

static CUresult add_step(struct maker *m, const struct place *at, unsigned kind, unsigned depth,
                         CUgraphNode *node)
{
    switch (kind) {
    case RG_GRAPH_WIRE_NOTHING:
        return rg_driver.cuGraphAddEmptyNode(node, at->graph, at->before, at->n);
    case RG_GRAPH_WIRE_KERNEL:
        return add_kernel(m, at, node);
    case RG_GRAPH_WIRE_FILL:
        return add_fill(m, at, node);
    case RG_GRAPH_WIRE_COPY:
        return add_copy(m, at, node);
    case RG_GRAPH_WIRE_CONDITIONAL:
        return add_conditional(m, at, depth, node);
    default:
        return malformed(m, "a step of no known kind");
    }
}

static CUresult add_steps(struct maker *m, CUgraph graph, unsigned depth)
{
    const uint32_t n = rg_get_u32(&m->in);
    if (m->in.bad || n > RG_GRAPH_STEPS_MAX || n > rg_left(&m->in) / 8)
        return malformed(m, "a wrong count of steps");
    CUgraphNode *nodes = rg_request_memory(m->request, ((size_t)n + 1) * sizeof *nodes);
    CUgraphNode *before = rg_request_memory(m->request, ((size_t)n + 1) * sizeof *before);
    if (!nodes || !before)
        return m->request->result;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t kind = rg_get_u32(&m->in), n_before = rg_get_u32(&m->in);
        if (m->in.bad || n_before > i)
            return malformed(m, "a step behind too many");
        for (uint32_t b = 0; b < n_before; b++) {
            const uint32_t from = rg_get_u32(&m->in);
            if (m->in.bad || from >= i)
                return malformed(m, "a step behind a later one");
            before[b] = nodes[from];
        }
        const struct place at = {graph, before, n_before};
        RG_TRY(add_step(m, &at, kind, depth, &nodes[i]));
    }
    return CUDA_SUCCESS;
}

static CUresult make(struct maker *m, unsigned priorities, CUgraphExec *made)
{
    RG_TRY(rg_driver.cuCtxGetCurrent(&m->context));
    RG_TRY(rg_driver.cuGraphCreate(&m->graph, 0));
    CUresult result = read_conditions(m);
    if (result == CUDA_SUCCESS)
        result = add_steps(m, m->graph, 0);
    if (result == CUDA_SUCCESS)
        result = rg_driver.cuGraphInstantiateWithFlags(
            made, m->graph, priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
    (void)rg_driver.cuGraphDestroy(m->graph);
    return result;
}

CUresult rg_execute_rgGraphMake(struct rg_request *request, uint64_t graph, unsigned long long id,
                                unsigned int priorities)
{
    struct rg_image *image = rg_image_take(request->worker, id);
    CUgraphExec made = NULL;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!supported())
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (image && rg_image_ready(request, image) == CUDA_SUCCESS) {
        struct maker maker = {.request = request, .in = rg_reader_of(image->data, image->total)};
        result = make(&maker, priorities, &made);
    }
    rg_image_free(request->worker, image);
    if (result == CUDA_SUCCESS)
        rg_request_new(request, RG_KIND_GRAPH, graph, made);
    return result;
}

CUresult rg_execute_rgGraphRun(struct rg_request *request, CUgraphExec graph, CUstream stream)
{
    (void)request;
    return rg_count_launch(rg_driver.cuGraphLaunch(graph, stream));
}

CUresult rg_execute_rgGraphDrop(struct rg_request *request, CUgraphExec graph)
{
    (void)request;
    return rg_driver.cuGraphExecDestroy(graph);
}
