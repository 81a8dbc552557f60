/*
 * graph.c - the handles of conditions in the parameters of kernels, on a driver whose own handles are the
 * client's in another order: the worker puts the driver's in the place of the client's, and what it has put
 * is the driver's.
 */
#include "proto/graph.h"
#include "proto/codec.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <string.h>

enum { CONDITIONS = 5, SIZE = 128 };

/* --- the driver ----------------------------------------------------------------------------------------- */

static uint64_t own[CONDITIONS]; /* the handles that it gives, one after another */
static unsigned n_given, n_nodes, n_kernels;
static uint64_t nodes[CONDITIONS];      /* the handles of the conditional nodes that it is given */
static unsigned char kernels[64][SIZE]; /* and the parameters of the kernels */

static CUresult give_handle(CUgraphConditionalHandle *out, CUgraph graph, CUcontext context, unsigned initial,
                            unsigned flags)
{
    (void)graph, (void)context, (void)initial, (void)flags;
    CHECK(n_given < CONDITIONS);
    *out = own[n_given++];
    return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                         const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
    static CUgraph graphs[64];
    (void)node, (void)graph, (void)before, (void)edges, (void)n;
    CHECK(params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && n_nodes < CONDITIONS);
    nodes[n_nodes++] = params->conditional.handle;
    params->conditional.phGraph_out = graphs;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    (void)node, (void)graph, (void)before, (void)n;
    CHECK(n_kernels < sizeof kernels / sizeof *kernels && *(const size_t *)params->extra[3] == SIZE);
    memcpy(kernels[n_kernels++], params->extra[1], SIZE);
    return CUDA_SUCCESS;
}

static CUresult load(CUmodule *module, const void *image)
{
    (void)image;
    *module = (CUmodule)(void *)0x2000;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
    (void)module, (void)name;
    *function = (CUfunction)(void *)0x3000;
    return CUDA_SUCCESS;
}

static struct client *begin(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuModuleLoadData = load;
    rg_driver.cuModuleGetFunction = get_function;
    rg_driver.cuGraphConditionalHandleCreate = give_handle;
    rg_driver.cuGraphAddNode_v2 = add_node;
    rg_driver.cuGraphAddKernelNode_v2 = add_kernel;
    n_given = n_nodes = n_kernels = 0;
    struct client *c = client_create();
    enter_context(c);
    return c;
}

/* --- graphs: each condition in the body of the one before, with kernels in all of them ------------------ */

static void put_kernel(struct rg_writer *w, const unsigned char *parameters)
{
    rg_put_u32(w, RG_GRAPH_WIRE_KERNEL);
    rg_put_u32(w, 0);
    rg_put_u64(w, handle(RG_KIND_FUNCTION, 8));
    for (int i = 0; i < 9; i++)
        rg_put_u32(w, i < 6);
    rg_put_u32(w, SIZE);
    rg_put(w, parameters, SIZE);
}

static size_t describe(unsigned char *out, const uint64_t *client, const unsigned char *parameters)
{
    struct rg_writer w = {out};
    rg_put_u32(&w, CONDITIONS);
    for (int i = 0; i < CONDITIONS; i++) {
        rg_put_u64(&w, client[i]);
        rg_put_u32(&w, 0);
        rg_put_u32(&w, 0);
    }
    for (int i = 0; i < CONDITIONS; i++) {
        rg_put_u32(&w, 2);
        put_kernel(&w, parameters);
        rg_put_u32(&w, RG_GRAPH_WIRE_CONDITIONAL);
        rg_put_u32(&w, 1);
        rg_put_u32(&w, 0);
        rg_put_u64(&w, client[i]);
        rg_put_u32(&w, CU_GRAPH_COND_TYPE_IF);
        rg_put_u32(&w, 1);
    }
    rg_put_u32(&w, 0);
    return (size_t)(w.at - out);
}

/* Makes the graph on a driver that gives the handles `own`, and compares what it is given. */
static void make(const uint64_t *client, const unsigned char *parameters, const unsigned char *expected)
{
    static unsigned char bytes[4096];
    static uint64_t id = 1;
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7);
    const size_t size = describe(bytes, client, parameters);
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)9, (uint64_t)0, (uint64_t)9);
    send_bulk(c, ".version ", 9);
    CALL(c, RG_OP_rgModuleLoad, 0, CUDA_SUCCESS, "8488888", id++, 0, (uint64_t)0, (uint64_t)0, module,
         (uint64_t)0, (uint64_t)0);
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_SUCCESS, "88s", handle(RG_KIND_FUNCTION, 8), module, "name");
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)size, (uint64_t)0, (uint64_t)size);
    send_bulk(c, bytes, size);
    CALL(c, RG_OP_rgGraphMake, 0, CUDA_SUCCESS, "848", id++, 0, handle(RG_KIND_GRAPH, 30));
    CHECK(n_given == CONDITIONS && n_nodes == CONDITIONS && n_kernels == CONDITIONS);
    for (unsigned i = 0; i < CONDITIONS; i++)
        CHECK(nodes[i] == own[i] && memcmp(kernels[i], expected, SIZE) == 0);
    CHECK(client_destroy(c) == 0);
}

/* All orders of the driver's handles. */
static void order(unsigned number, const uint64_t *client)
{
    unsigned left[CONDITIONS];
    for (unsigned i = 0; i < CONDITIONS; i++)
        left[i] = i;
    for (unsigned n = CONDITIONS; n; n--) {
        const unsigned at = number % n;
        number /= n;
        own[CONDITIONS - n] = client[left[at]];
        memmove(left + at, left + at + 1, (n - at - 1) * sizeof *left);
    }
}

static void put_word(unsigned char *at, uint64_t word)
{
    memcpy(at, &word, sizeof word);
}

static void test_orders(void)
{
    static const uint64_t client[CONDITIONS] = {0x6b1c93d2a5e40000, 0x51f0c8b7326d0001, 0x7d24e5908ab30002,
                                                0x4a937cd1e85f0003, 0x68e2501bf7c90004};
    for (unsigned number = 0; number < 120; number++) {
        unsigned char given[SIZE], expected[SIZE];
        order(number, client);
        memset(given, 0xa5, SIZE);
        memcpy(expected, given, SIZE);
        /* one after another, then behind a word of four bytes, then anywhere */
        static const unsigned places[CONDITIONS] = {0, 8, 20, 49, 120};
        for (unsigned i = 0; i < CONDITIONS; i++) {
            const unsigned which = (i + number) % CONDITIONS;
            put_word(given + places[i], client[which]);
            put_word(expected + places[i], own[which]);
        }
        /* and numbers that are nearly handles */
        for (unsigned i = 0; i < 3; i++) {
            put_word(given + 64 + 8 * i, client[i] ^ 1ull << (20 * i));
            put_word(expected + 64 + 8 * i, client[i] ^ 1ull << (20 * i));
        }
        make(client, given, expected);
    }
}

/*
 * Handles of the driver's that are numbers as a program has them: these stay, and are no handles of the
 * client's.
 */
static void test_numbers(void)
{
    static const uint64_t client[CONDITIONS] = {0x6b1c93d2a5e40000, 0x51f0c8b7326d0001, 0x7d24e5908ab30002,
                                                0x4a937cd1e85f0003, 0x68e2501bf7c90004};
    unsigned char given[SIZE] = {0}, expected[SIZE];
    for (unsigned i = 0; i < CONDITIONS; i++) {
        own[i] = i + 1;
        put_word(given + 8 * i, i + 1);
    }
    memcpy(expected, given, SIZE);
    for (unsigned i = 0; i < CONDITIONS; i++) {
        put_word(given + 64 + 8 * i, client[CONDITIONS - 1 - i]);
        put_word(expected + 64 + 8 * i, own[CONDITIONS - 1 - i]);
    }
    make(client, given, expected);
}

/* A conditional node of a kind with so many bodies, each without steps. */
static void bodies(unsigned type, unsigned n, bool good)
{
    static unsigned char bytes[RG_GRAPH_BODIES_MAX * 4 + 4096];
    static uint64_t id = 1000;
    const uint64_t condition = 0x6b1c93d2a5e40000;
    struct client *c = begin();
    struct rg_writer w = {bytes};
    rg_put_u32(&w, 1);
    rg_put_u64(&w, condition);
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 0);
    rg_put_u32(&w, 1);
    rg_put_u32(&w, RG_GRAPH_WIRE_CONDITIONAL);
    rg_put_u32(&w, 0);
    rg_put_u64(&w, condition);
    rg_put_u32(&w, type);
    rg_put_u32(&w, n);
    for (unsigned i = 0; i < n; i++)
        rg_put_u32(&w, 0);
    const size_t size = (size_t)(w.at - bytes);
    own[0] = condition;
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)size, (uint64_t)0, (uint64_t)size);
    send_bulk(c, bytes, size);
    put(c, RG_OP_rgGraphMake, 0, 77, "848", id++, 0, handle(RG_KIND_GRAPH, 30));
    send_batch(c);
    if (good) {
        expect_reply(c, 77, CUDA_SUCCESS);
        CHECK(client_destroy(c) == 0);
    } else {
        expect_violation(c, "conditional node");
    }
    CHECK(n_nodes == good);
}

static void test_bodies(void)
{
    bodies(CU_GRAPH_COND_TYPE_IF, 1, true);
    bodies(CU_GRAPH_COND_TYPE_IF, 2, true); /* and else */
    bodies(CU_GRAPH_COND_TYPE_WHILE, 1, true);
    bodies(CU_GRAPH_COND_TYPE_SWITCH, 64, true);
    bodies(CU_GRAPH_COND_TYPE_IF, 3, false);
    bodies(CU_GRAPH_COND_TYPE_WHILE, 2, false);
    bodies(CU_GRAPH_COND_TYPE_WHILE, 0, false);
    bodies(CU_GRAPH_COND_TYPE_SWITCH, RG_GRAPH_BODIES_MAX + 1, false);
    bodies(7, 1, false);
}

int main(void)
{
    test_orders();
    test_bodies();
    test_numbers();
    return 0;
}
