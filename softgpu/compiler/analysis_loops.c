/*
 * analysis_loops.c - finds loops in which a thread may wait for what another thread writes: cycles of the
 * control flow graph that hold a volatile or acquiring load, a compare-and-swap, or the like. The jumps
 * backwards of such a cycle are marked; the code generator lets other threads run there.
 *
 * A cycle in which the block's threads meet and whose every jump follows from what was known when it was entered (the
 * steps of a scan in shared memory that is volatile) makes the same turns whatever others write: nobody waits in it.
 *
 * Cycles are the strongly connected components of the graph of basic blocks (Tarjan, without recursion).
 */
#include "softgpu/compiler/analysis.h"
#include "softgpu/compiler/flow.h"
#include "softgpu/compiler/regions.h"

struct walk {
    uint32_t *order, *low, *component, *next, *stack, *path;
    uint32_t counter, n_stack, n_path, n_components;
};

static void open_block(struct walk *walk, uint32_t block)
{
    walk->order[block] = walk->low[block] = ++walk->counter;
    walk->stack[walk->n_stack++] = block;
    walk->path[walk->n_path++] = block;
}

static void close_block(struct walk *walk, uint32_t block)
{
    walk->n_path--;
    if (walk->n_path > 0) {
        uint32_t parent = walk->path[walk->n_path - 1];
        if (walk->low[block] < walk->low[parent])
            walk->low[parent] = walk->low[block];
    }
    if (walk->low[block] != walk->order[block])
        return;
    walk->n_components++;
    uint32_t member;
    do {
        member = walk->stack[--walk->n_stack];
        walk->component[member] = walk->n_components;
    } while (member != block);
}

static void find_components(struct sg_arena *arena, const struct sg_flow *graph, struct walk *walk)
{
    uint32_t n = graph->n_blocks;
    uint32_t *memory = SG_NEW_ARRAY(arena, uint32_t, 6 * (size_t)n);
    *walk = (struct walk){
        memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n, memory + 5 * n, 0, 0, 0, 0};
    for (uint32_t root = 0; root < n; root++) {
        if (walk->order[root] != 0)
            continue;
        open_block(walk, root);
        while (walk->n_path > 0) {
            uint32_t block = walk->path[walk->n_path - 1], to;
            if (!sg_flow_successor(graph, block, walk->next[block]++, &to)) {
                close_block(walk, block);
            } else if (to == UINT32_MAX || walk->component[to] != 0) {
                continue;
            } else if (walk->order[to] == 0) {
                open_block(walk, to);
            } else if (walk->order[to] < walk->low[block]) {
                walk->low[block] = walk->order[to];
            }
        }
    }
}

/* What a thread that waits on memory repeats. */
static bool watches_memory(const struct sg_insn *insn)
{
    uint8_t sem = SG_MOD(insn, SG_GROUP_SEM);
    switch (insn->form->op) {
    case SG_OP_LD:
        return sem == SG_VOLATILE || sem == SG_ACQUIRE || sem == SG_RELAXED;
    case SG_OP_ATOM: {
        uint8_t op = SG_MOD(insn, SG_GROUP_ATOM);
        if (op == SG_ATOM_CAS || op == SG_ATOM_EXCH)
            return true;
        /* reading by adding 0 */
        return insn->n_operands > 2 && insn->operands[2].kind == SG_OPERAND_INTEGER &&
               insn->operands[2].value == 0;
    }
    default:
        return false;
    }
}

static bool same_register(const struct sg_operand *a, const struct sg_operand *b)
{
    return a->kind == SG_OPERAND_REG && b->kind == SG_OPERAND_REG && a->reg == b->reg;
}

/*
 * A compare-and-swap that is repeated until nobody came between, in a loop of one block:
 *
 *     again:  new = f(old); atom.cas seen, [m], old, new; setp.ne p, seen, old; mov old, seen; @p bra again;
 *
 * It fails only when another thread has got on, so that a thread in it waits for nobody.
 */
static bool always_gets_on(const struct sg_flow *graph, uint32_t block)
{
    const struct sg_insn *insns = graph->function->insns, *swap = NULL, *test = NULL, *update = NULL;
    uint32_t end = graph->first[block + 1];
    const struct sg_insn *jump = &insns[end - 1];
    if (jump->form->op != SG_OP_BRA || jump->guard == 0 || jump->guard_negated ||
        sg_flow_label(graph, jump->operands[0].value) != block)
        return false;
    for (uint32_t i = graph->first[block]; i < end; i++) {
        const struct sg_insn *insn = &insns[i];
        const struct sg_operand *operands = insn->operands;
        if (watches_memory(insn)) {
            if (swap != NULL || insn->form->op != SG_OP_ATOM || SG_MOD(insn, SG_GROUP_ATOM) != SG_ATOM_CAS ||
                insn->guard != 0)
                return false;
            swap = insn;
        } else if (swap != NULL && insn->form->op == SG_OP_SETP && SG_MOD(insn, SG_GROUP_CMP) == SG_NE &&
                   SG_MOD(insn, SG_GROUP_BOOL) == 0 && operands[0].kind == SG_OPERAND_REG &&
                   operands[0].reg == jump->guard - 1) {
            bool one_way = same_register(&operands[1], &swap->operands[0]) &&
                           same_register(&operands[2], &swap->operands[2]);
            bool other_way = same_register(&operands[2], &swap->operands[0]) &&
                             same_register(&operands[1], &swap->operands[2]);
            test = update == NULL && insn->guard == 0 && (one_way || other_way) ? insn : NULL;
        } else if (swap != NULL && insn->form->op == SG_OP_MOV && insn->guard == 0 &&
                   same_register(&operands[0], &swap->operands[2]) &&
                   same_register(&operands[1], &swap->operands[0])) {
            update = insn;
        }
    }
    if (test == NULL || update == NULL)
        return false;
    /* and nothing else changes what is expected */
    for (uint32_t i = graph->first[block]; i < end; i++)
        if (&insns[i] != update && insns[i].n_operands > 0 &&
            (insns[i].form->operand[0].flags & SG_OPF_DEST) != 0 &&
            same_register(&insns[i].operands[0], &swap->operands[2]))
            return false;
    return true;
}

/* --- what a cycle's jumps depend on --- */

struct taint {
    uint8_t
        *seen;  /* by register: may hold something that was read from memory or from others in this cycle */
    bool reads; /* of the instruction that is looked at: it, or something that it reads, does */
    bool changed;
};

static void note_tainted_read(void *user, uint32_t reg, bool written, bool maybe)
{
    struct taint *taint = user;
    (void)maybe;
    taint->reads |= !written && taint->seen[reg];
}

static void note_tainted_write(void *user, uint32_t reg, bool written, bool maybe)
{
    struct taint *taint = user;
    (void)maybe;
    if (!written || taint->seen[reg])
        return;
    taint->seen[reg] = 1;
    taint->changed = true;
}

static bool brings_news(const struct sg_insn *insn)
{
    if (insn->form->op == SG_OP_LD)
        return SG_MOD(insn, SG_GROUP_SPACE) != SG_MOD_PARAM;
    return insn->call != NULL || !sg_is_arithmetic(insn->form->op);
}

/* Are the turns of the cycle the same whatever its threads read, and do they meet in it? */
static bool has_set_turns(struct sg_arena *arena, const struct sg_flow *graph, const struct walk *walk,
                          uint32_t component)
{
    const struct sg_function *function = graph->function;
    struct taint taint = {.seen = SG_NEW_ARRAY(arena, uint8_t, function->n_regs + 1), .changed = true};
    bool meets = false;
    while (taint.changed) {
        taint.changed = false;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            const struct sg_insn *insn = &function->insns[i];
            if (walk->component[graph->block_of[i]] != component)
                continue;
            meets |= sg_is_meeting(insn) || insn->aligns;
            if (insn->form->op == SG_OP_BRX || (insn->guard != 0 && taint.seen[insn->guard - 1]))
                return false;
            taint.reads = brings_news(insn);
            sg_visit_registers(insn, note_tainted_read, &taint);
            if (taint.reads)
                sg_visit_registers(insn, note_tainted_write, &taint);
        }
    }
    return meets;
}

void sg_analyse_loops(struct sg_arena *arena, struct sg_function *function)
{
    struct sg_flow graph = {0};
    struct walk walk;
    bool any = false;
    for (uint32_t i = 0; i < function->n_insns; i++)
        any |= watches_memory(&function->insns[i]);
    if (!any)
        return;
    sg_flow_build(arena, function, &graph);
    find_components(arena, &graph, &walk);
    uint8_t *waits = sg_arena_alloc(arena, walk.n_components + 1);
    for (uint32_t i = 0; i < function->n_insns; i++)
        if (watches_memory(&function->insns[i]) && !always_gets_on(&graph, graph.block_of[i]))
            waits[walk.component[graph.block_of[i]]] = 1;
    for (uint32_t component = 1; component <= walk.n_components; component++)
        if (waits[component])
            waits[component] = !has_set_turns(arena, &graph, &walk, component);
    for (uint32_t block = 0; block < graph.n_blocks; block++) {
        uint32_t to;
        if (!waits[walk.component[block]])
            continue;
        for (uint32_t i = 0; sg_flow_successor(&graph, block, i, &to); i++)
            if (to != UINT32_MAX && to <= block && walk.component[to] == walk.component[block])
                function->insns[graph.first[block + 1] - 1].waits_in_loop = true;
    }
}
