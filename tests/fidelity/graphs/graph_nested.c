/*
 * graph_nested.c - a transcript of conditional nodes in each other, several to a graph: whatever the order in which their
 * handles were made, and however these reach the kernels, each node obeys its own.
 *
 * The program is a loop in a loop, with a decision of two in the inner one, a decision in that, and one of four behind
 * it. It writes down where it comes along; what it must write follows from the definition, so the program fails by itself
 * as well.
 */
#include "graph_parts.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Sets a condition: the handle is put where the call takes it from, the value is at %v. */
#define SET(handle)                                                                                          \
    "    ld.global.u32 %r1, [%v];\n"                                                                         \
    "    {\n"                                                                                                \
    "    .param .b64 param0;\n"                                                                              \
    "    st.param.b64 [param0+0], " handle ";\n"                                                             \
    "    .param .b32 param1;\n"                                                                              \
    "    st.param.b32 [param1+0], %r1;\n"                                                                    \
    "    call.uni cudaGraphSetConditional, (param0, param1);\n"                                              \
    "    }\n"
#define ENTRY(name, parameters)                                                                              \
    ".visible .entry " name "(" parameters ")\n{\n"                                                          \
    ".reg .u32 %r<8>; .reg .u64 %rd<8>, %v; .reg .pred %p<2>;\n"
/* Of one that is given all handles: sets that of place n, if the mask has it, to word n of the values. */
#define ONE_OF(label, n, at)                                                                                 \
    "    and.b32 %r3, %r2, 1 << " n ";\n"                                                                    \
    "    setp.eq.u32 %p1, %r3, 0;\n"                                                                         \
    "    @%p1 bra " label ";\n"                                                                              \
    "    ld.param.u64 %rd1, [" at "];\n"                                                                     \
    "    ld.param.u64 %v, [s];\n"                                                                            \
    "    add.u64 %v, %v, 4 * " n ";\n" SET("%rd1") label ":\n"

/* clang-format off */
static const char ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    /* *log counts what has been noted, which follows it */
    ENTRY("note", ".param .u64 log, .param .u32 code")
    "    ld.param.u64 %rd1, [log];\n"
    "    ld.param.u32 %r1, [code];\n"
    "    ld.global.u32 %r2, [%rd1];\n"
    "    add.u32 %r2, %r2, 1;\n"
    "    st.global.u32 [%rd1], %r2;\n"
    "    min.u32 %r2, %r2, 500;\n"
    "    mul.wide.u32 %rd2, %r2, 4;\n"
    "    add.u64 %rd1, %rd1, %rd2;\n"
    "    st.global.u32 [%rd1], %r1;\n"
    "    ret;\n}\n"
    /* *to = *from & mask */
    ENTRY("part", ".param .u64 to, .param .u64 from, .param .u32 mask")
    "    ld.param.u64 %rd1, [to];\n"
    "    ld.param.u64 %rd2, [from];\n"
    "    ld.param.u32 %r1, [mask];\n"
    "    ld.global.u32 %r2, [%rd2];\n"
    "    and.b32 %r2, %r2, %r1;\n"
    "    st.global.u32 [%rd1], %r2;\n"
    "    ret;\n}\n"
    ENTRY("alone", ".param .u64 v, .param .u64 h")
    "    ld.param.u64 %rd1, [h];\n"
    "    ld.param.u64 %v, [v];\n" SET("%rd1")
    "    ret;\n}\n"
    /* as two words */
    ENTRY("words", ".param .u64 v, .param .u32 low, .param .u32 high")
    "    ld.param.u32 %r1, [low];\n"
    "    ld.param.u32 %r2, [high];\n"
    "    mov.b64 %rd1, {%r1, %r2};\n"
    "    ld.param.u64 %v, [v];\n" SET("%rd1")
    "    ret;\n}\n"
    /* { v, a byte, the handle }, packed */
    ENTRY("packed", ".param .align 1 .b8 s[17]")
    "    mov.u64 %rd1, 0;\n    mov.u64 %v, 0;\n"
#define BYTE(into, at, place) \
    "    ld.param.u8 %rd2, [s+" at "];\n    shl.b64 %rd2, %rd2, " place ";\n    or.b64 " into ", " into ", %rd2;\n"
    BYTE("%v", "0", "0") BYTE("%v", "1", "8") BYTE("%v", "2", "16") BYTE("%v", "3", "24")
    BYTE("%v", "4", "32") BYTE("%v", "5", "40") BYTE("%v", "6", "48") BYTE("%v", "7", "56")
    BYTE("%rd1", "9", "0") BYTE("%rd1", "10", "8") BYTE("%rd1", "11", "16") BYTE("%rd1", "12", "24")
    BYTE("%rd1", "13", "32") BYTE("%rd1", "14", "40") BYTE("%rd1", "15", "48") BYTE("%rd1", "16", "56")
    SET("%rd1")
    "    ret;\n}\n"
    /* { values, mask, a word, all handles } */
    ENTRY("table", ".param .align 8 .b8 s[56]")
    "    ld.param.u32 %r2, [s+8];\n"
    ONE_OF("A", "0", "s+16") ONE_OF("B", "1", "s+24") ONE_OF("C", "2", "s+32") ONE_OF("D", "3", "s+40")
    ONE_OF("E", "4", "s+48")
    "    ret;\n}\n"
    ENTRY("keep", ".param .u64 to, .param .u64 what, .param .u64 more")
    "    ld.param.u64 %rd1, [to];\n"
    "    ld.param.u64 %rd2, [what];\n"
    "    ld.param.u64 %rd3, [more];\n"
    "    st.global.v2.u64 [%rd1], {%rd2, %rd3};\n"
    "    ret;\n}\n";
/* clang-format on */

enum { A, B, C, D, E, CONDITIONS };
enum way { ALONE, WORDS, PACKED, TABLE, WAYS };

static const char *const names[] = {"alone", "words", "packed", "table"};
static CUfunction note, part, keep, deciders[WAYS];
static bool wrong;

#define LOG    (q)             /* 2048 bytes */
#define VALUES (q + 2048)      /* of A to E, as the decisions take them */
#define LEFT   (q + 2048 + 32) /* rounds of the inner loop: it goes on while there are any */

/* --- graphs in which one node follows another --- */

struct chain {
    CUgraph graph;
    CUgraphNode last;
};

static void must_be_good(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", what, (int)result);
    wrong = true;
}
#define GOOD(call) must_be_good(call, #call)

static void then_kernel(struct chain *c_, CUfunction f, void **args)
{
    CUDA_KERNEL_NODE_PARAMS k = one_block(f, 1, args);
    CUgraphNode made = NULL;
    GOOD(cuGraphAddKernelNode_v2(&made, c_->graph, &c_->last, c_->last != NULL, &k));
    c_->last = made;
}

static void then_note(struct chain *to, unsigned code)
{
    CUdeviceptr log = LOG;
    void *args[] = {&log, &code};
    then_kernel(to, note, args);
}

static void then_set(struct chain *to, CUdeviceptr address, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = address, .value = value, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNode made = NULL;
    GOOD(cuGraphAddMemsetNode(&made, to->graph, &to->last, to->last != NULL, &fill, c));
    to->last = made;
}

static void then_add(struct chain *to, CUdeviceptr address, unsigned number)
{
    void *args[] = {&address, &number};
    then_kernel(to, add, args);
}

static void then_part(struct chain *to, CUdeviceptr address, CUdeviceptr from, unsigned mask)
{
    void *args[] = {&address, &from, &mask};
    then_kernel(to, part, args);
}

/* The condition becomes its word of the values. */
static void then_decide(struct chain *to, enum way way, const CUgraphConditionalHandle *handles, int which)
{
    CUdeviceptr value = VALUES + 4 * (unsigned)which;
    CUgraphConditionalHandle handle = handles[which];
    uint32_t low = (uint32_t)handle, high = (uint32_t)(handle >> 32);
    unsigned char packed[17];
    struct {
        CUdeviceptr values;
        uint32_t mask, unused;
        CUgraphConditionalHandle handles[CONDITIONS];
    } table = {.values = VALUES, .mask = 1u << which};
    memcpy(table.handles, handles, sizeof table.handles);
    memcpy(packed, &value, 8);
    packed[8] = 0x77;
    memcpy(packed + 9, &handle, 8);
    void *arguments[WAYS][3] = {{&value, &handle}, {&value, &low, &high}, {packed}, {&table}};
    then_kernel(to, deciders[way], arguments[way]);
}

static CUgraph *then_conditional(struct chain *to, CUgraphConditionalHandle h,
                                 CUgraphConditionalNodeType type, unsigned size)
{
    static CUgraph none[4];
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = h;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = c;
    CUgraphNode made = NULL;
    GOOD(cuGraphAddNode_v2(&made, to->graph, &to->last, NULL, to->last != NULL, &params));
    to->last = made;
    return params.conditional.phGraph_out ? params.conditional.phGraph_out : none;
}

/* --- the program ---
 *
 * for (a = outer; a; a--) {
 *     for (left = inner; left; left--)
 *         if (left & 1) { if (left & 2) note 3; note 4; } else note 5;
 *     switch (a & 7) { note 10 + that, up to 13 }
 * }
 */
static void build(struct chain *to, enum way way, const CUgraphConditionalHandle *handles, unsigned outer,
                  unsigned inner)
{
    const CUdeviceptr values = VALUES;
    then_set(to, values + 4 * A, outer);
    then_decide(to, way, handles, A);
    struct chain a = {*then_conditional(to, handles[A], CU_GRAPH_COND_TYPE_WHILE, 1), NULL};
    then_note(&a, 1);
    then_set(&a, LEFT, inner);
    then_part(&a, values + 4 * B, LEFT, ~0u);
    then_decide(&a, way, handles, B);
    struct chain b = {*then_conditional(&a, handles[B], CU_GRAPH_COND_TYPE_WHILE, 1), NULL};
    then_note(&b, 2);
    then_part(&b, values + 4 * C, LEFT, 1);
    then_decide(&b, way, handles, C);
    CUgraph *branches = then_conditional(&b, handles[C], CU_GRAPH_COND_TYPE_IF, 2);
    struct chain yes = {branches[0], NULL}, no = {branches[1], NULL};
    then_part(&yes, values + 4 * D, LEFT, 2);
    then_decide(&yes, way, handles, D);
    struct chain inmost = {*then_conditional(&yes, handles[D], CU_GRAPH_COND_TYPE_IF, 1), NULL};
    then_note(&inmost, 3);
    then_note(&yes, 4);
    then_note(&no, 5);
    then_add(&b, LEFT, ~0u);
    then_part(&b, values + 4 * B, LEFT, ~0u);
    then_decide(&b, way, handles, B);
    then_part(&a, values + 4 * E, values + 4 * A, 7);
    then_decide(&a, way, handles, E);
    CUgraph *cases = then_conditional(&a, handles[E], CU_GRAPH_COND_TYPE_SWITCH, 4);
    for (unsigned i = 0; i < 4; i++) {
        struct chain one = {cases[i], NULL};
        then_note(&one, 10 + i);
    }
    then_add(&a, values + 4 * A, ~0u);
    then_decide(&a, way, handles, A);
}

static unsigned expected(unsigned outer, unsigned inner, unsigned *out)
{
    unsigned count = 0;
    for (unsigned a = outer; a; a--) {
        out[count++] = 1;
        for (unsigned left = inner; left; left--) {
            out[count++] = 2;
            if (left & 1 && left & 2)
                out[count++] = 3;
            out[count++] = left & 1 ? 4 : 5;
        }
        if ((a & 7) < 4)
            out[count++] = 10 + (a & 7);
    }
    return count;
}

/* Launches and compares what has been noted. */
static void run_and_compare(CUgraphExec exec, unsigned outer, unsigned inner)
{
    unsigned want[512], got[512] = {0};
    const unsigned count = expected(outer, inner, want);
    GOOD(cuMemsetD8Async(q, 0, 4096, s)); /* the graph's stream does not wait for the default one */
    GOOD(cuGraphLaunch(exec, s));
    GOOD(cuStreamSynchronize(s));
    GOOD(cuMemcpyDtoH_v2(got, LOG, 2048));
    const bool same = got[0] == count && memcmp(got + 1, want, count * sizeof *want) == 0;
    printf("  %u notes, %s\n", got[0], same ? "right" : "wrong");
    if (!same) {
        for (unsigned i = 1; i <= got[0] && i < 100; i++)
            printf(" %u", got[i]);
        printf("\n");
        wrong = true;
    }
}

/* Handles of `graph`, made in the order of the permutation of this number. */
static void make_handles(CUgraph graph, unsigned permutation, CUgraphConditionalHandle *handles)
{
    int left[CONDITIONS] = {A, B, C, D, E};
    for (unsigned n_left = CONDITIONS; n_left; n_left--) {
        const unsigned at = permutation % n_left;
        permutation /= n_left;
        GOOD(cuGraphConditionalHandleCreate(&handles[left[at]], graph, c, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
        memmove(left + at, left + at + 1, (n_left - at - 1) * sizeof *left);
    }
}

/* Handles made in an order of its own for each graph, and handed over in each way. */
static void orders(void)
{
    for (unsigned i = 0; i < 24; i++) {
        CUgraphConditionalHandle handles[CONDITIONS] = {0};
        struct chain all = {NULL, NULL};
        const enum way way = (enum way)(i % WAYS);
        GOOD(cuGraphCreate(&all.graph, 0));
        make_handles(all.graph, i * 37 % 120, handles);
        build(&all, way, handles, 1 + i % 4, 1 + i % 3);
        CUgraphExec exec = NULL;
        GOOD(cuGraphInstantiateWithFlags(&exec, all.graph, 0));
        printf("order %u, %s\n", i, names[way]);
        for (int launch = 0; launch < 3; launch++)
            run_and_compare(exec, 1 + i % 4, 1 + i % 3);
        if (i % 3) /* others stay, so that the next handles are at other places */
            GOOD(cuGraphExecDestroy(exec));
        if (i % 2)
            GOOD(cuGraphDestroy(all.graph));
    }
}

/* Several programs in one graph, which is instantiated twice, and that of a graph moved into another. */
static void parts(void)
{
    CUgraphConditionalHandle one[CONDITIONS] = {0}, two[CONDITIONS] = {0};
    struct chain all = {NULL, NULL}, child = {NULL, NULL};
    CUgraphExec exec = NULL, second = NULL;
    printf("parts\n");
    GOOD(cuGraphCreate(&all.graph, 0));
    make_handles(all.graph, 119, two);
    make_handles(all.graph, 44, one);
    build(&all, TABLE, one, 2, 2);
    build(&all, ALONE, two, 3, 1);
    then_set(&all, LOG, 0);
    make_handles(all.graph, 71, one);
    build(&all, PACKED, one, 2, 3);
    TRY(cuGraphClone(&g, all.graph));
    GOOD(cuGraphInstantiateWithFlags(&exec, all.graph, 0));
    GOOD(cuGraphInstantiateWithFlags(&second, all.graph, 0));
    for (int launch = 0; launch < 3; launch++) {
        run_and_compare(second, 2, 3);
        run_and_compare(exec, 2, 3);
    }
    GOOD(cuGraphExecDestroy(exec));
    GOOD(cuGraphDestroy(all.graph));
    run_and_compare(second, 2, 3);
    GOOD(cuGraphExecDestroy(second));

    all = (struct chain){NULL, NULL};
    GOOD(cuGraphCreate(&all.graph, 0));
    GOOD(cuGraphCreate(&child.graph, 0));
    make_handles(child.graph, 93, two);
    build(&child, TABLE, two, 3, 2);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    params.graph.graph = child.graph;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    make_handles(all.graph, 8, one);
    build(&all, WORDS, one, 1, 1);
    then_set(&all, LOG, 0);
    GOOD(cuGraphAddNode_v2(&node, all.graph, &all.last, NULL, 1, &params));
    GOOD(cuGraphInstantiateWithFlags(&exec, all.graph, 0));
    for (int launch = 0; launch < 2; launch++)
        run_and_compare(exec, 3, 2);
    GOOD(cuGraphExecDestroy(exec));
    GOOD(cuGraphDestroy(all.graph));
}

/* Numbers that could be taken for handles, beside real ones: they are data and stay as they are. */
static void data(void)
{
    CUgraphConditionalHandle handles[CONDITIONS] = {0};
    struct chain all = {NULL, NULL};
    CUgraphExec exec = NULL;
    uint64_t numbers[128], got[128] = {0};
    printf("data\n");
    GOOD(cuGraphCreate(&all.graph, 0));
    make_handles(all.graph, 17, handles);
    build(&all, ALONE, handles, 1, 1);
    for (unsigned i = 0; i < 128; i++)
        numbers[i] = i < 64 ? 0x15e7c0000u + 32ull * (i / 32) + i % 32 : 0x1000u + 64ull * (i - 64);
    for (unsigned i = 0; i < CONDITIONS; i++) {
        numbers[120 - 2 * i] = handles[i] + 0x10000;
        numbers[121 - 2 * i] = handles[i] ^ 1ull << 40;
    }
    for (unsigned i = 0; i < 128; i += 2) {
        CUdeviceptr to = p + 8 * i;
        void *args[] = {&to, &numbers[i], &numbers[i + 1]};
        then_kernel(&all, keep, args);
    }
    GOOD(cuGraphInstantiateWithFlags(&exec, all.graph, 0));
    run_and_compare(exec, 1, 1);
    GOOD(cuMemcpyDtoH_v2(got, p, sizeof got));
    for (unsigned i = 0; i < 128; i++)
        if (got[i] != numbers[i]) {
            printf("  number %u has changed\n", i);
            wrong = true;
        }
    GOOD(cuGraphExecDestroy(exec));
    GOOD(cuGraphDestroy(all.graph));
}

static void prepare(void)
{
    CUmodule own;
    TRY(cuModuleLoadData(&own, ptx));
    TRY(cuModuleGetFunction(&note, own, "note"));
    TRY(cuModuleGetFunction(&part, own, "part"));
    TRY(cuModuleGetFunction(&keep, own, "keep"));
    for (int way = 0; way < WAYS; way++)
        TRY(cuModuleGetFunction(&deciders[way], own, names[way]));
}

int main(void)
{
    int status = transcript((void (*const[])(void)){prepare, data, orders, parts, NULL});
    printf("%s\n", wrong ? "wrong" : "right");
    return wrong || status;
}
