/*
 * loops.c - finds loops in which a thread may wait for what another thread writes: cycles of the control flow
 * graph that hold a volatile or acquiring load, a compare-and-swap, or the like, or a load with a fence or,
 * outside of .shared memory, a barrier, or a call of a function that does. The jumps backwards of such a
 * cycle are marked; the code generator lets other threads run there.
 *
 * A cycle in which the block's threads meet and whose every jump follows from what was known when it was
 * entered (the steps of a scan in shared memory that is volatile) makes the same turns whatever others write:
 * nobody waits in it.
 *
 * Cycles are the strongly connected components of the graph of basic blocks (Tarjan, without recursion).
 */
#include "softgpu/compiler/analysis/analysis.h"
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/traits.h"

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

/* Does an atomic operation only look (`atomicOr(&flag, 0)`)? */
static bool changes_nothing(const struct sg_insn *insn)
{
    const struct sg_operand *operand = &insn->operands[2];
    enum sg_type type = (enum sg_type)insn->types[0];
    uint64_t all = sg_types[type].bits >= 64 ? UINT64_MAX : (UINT64_C(1) << sg_types[type].bits) - 1;
    uint64_t value, top = all - (all >> 1);
    bool is_signed = sg_type_is_signed(type);
    if (insn->n_operands < 3 || (operand->kind != SG_OPERAND_INTEGER && operand->kind != SG_OPERAND_FLOAT32 &&
                                 operand->kind != SG_OPERAND_FLOAT64))
        return false;
    value = operand->value & all;
    switch (SG_MOD(insn, SG_GROUP_ATOM)) {
    case SG_ATOM_ADD:
        return value == 0 || (sg_type_is_float(type) && value == top);
    case SG_ATOM_OR:
    case SG_ATOM_XOR:
        return value == 0;
    case SG_ATOM_AND:
        return value == all;
    case SG_ATOM_MIN:
        return value == (is_signed ? all - top : all);
    case SG_ATOM_MAX:
        return value == (is_signed ? top : 0);
    default:
        return false;
    }
}

/* What a thread that waits on memory repeats. */
static bool watches_memory(const struct sg_insn *insn)
{
    uint8_t sem = SG_MOD(insn, SG_GROUP_SEM);
    switch (insn->form->op) {
    case SG_OP_LD:
        return sem == SG_VOLATILE || sem == SG_ACQUIRE || sem == SG_RELAXED ||
               SG_MOD(insn, SG_GROUP_CACHE) == SG_CACHE_CV;
    case SG_OP_ATOM: {
        uint8_t op = SG_MOD(insn, SG_GROUP_ATOM);
        return op == SG_ATOM_CAS || op == SG_ATOM_EXCH || changes_nothing(insn);
    }
    default:
        return false;
    }
}

/*
 * What a cycle holds by which its threads may wait: loads that are always made anew, and others, of .shared
 * memory or of what other blocks may write; fences and barriers, behind which those are made anew, too;
 * calls.
 */
enum { WATCHES = 1, FENCES = 2, LOADS = 4, LOOKS = 8, CALLS = 16, MEETS = 32, SHARED_LOADS = 64 };

/* Those of a function's ways that are its caller's: by what it returns, and by what it does before that. */
static uint8_t ways_of_call(const struct sg_ptx_function *callee)
{
    uint8_t ways = callee->ways_to_wait;
    return (ways & (WATCHES | LOOKS | CALLS) ? CALLS : 0) | (ways & (FENCES | MEETS | LOADS | SHARED_LOADS));
}

static uint8_t ways_to_wait(const struct sg_ptx_module *module, const struct sg_insn *insn)
{
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE), ways = 0;
    if (watches_memory(insn))
        return WATCHES;
    if (insn->form->op == SG_OP_FENCE)
        return FENCES;
    if (insn->form->op == SG_OP_BAR)
        return MEETS;
    if (insn->form->op == SG_OP_LD && (space == 0 || space == SG_MOD_GLOBAL || space == SG_MOD_SHARED))
        return SG_MOD(insn, SG_GROUP_CACHE) == SG_CACHE_CG ? LOOKS
               : space == SG_MOD_SHARED                    ? SHARED_LOADS
                                                           : LOADS;
    if (insn->call != NULL && insn->call->callee != NULL)
        return ways_of_call(insn->call->callee);
    for (uint32_t i = 0; insn->call != NULL && i < module->n_handles; i++)
        ways |= ways_of_call(module->handles[i]);
    return ways;
}

/*
 * The ways that the function's caller has by it. It may also look if the function only adds what it is given,
 * which may be 0: without optimisation nvcc calls a function for each atomic operation.
 */
static uint8_t ways_for_caller(const struct sg_ptx_module *module, const struct sg_insn *insn)
{
    bool given =
        insn->form->op == SG_OP_ATOM && insn->n_operands > 2 && insn->operands[2].kind == SG_OPERAND_REG;
    return ways_to_wait(module, insn) | (given ? WATCHES : 0);
}

void sg_analyse_watchers(struct sg_ptx_module *module)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t f = 0; f < module->n_functions; f++) {
            struct sg_ptx_function *function = module->functions[f];
            uint8_t before = function->ways_to_wait;
            for (uint32_t i = 0; i < function->n_insns; i++)
                function->ways_to_wait |= ways_for_caller(module, &function->insns[i]);
            changed |= function->ways_to_wait != before;
        }
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
        *seen;   /* by register: may hold something that was read from memory or from others in this cycle */
    bool reads;  /* of the instruction that is looked at: it, or something that it reads, does */
    bool shared; /* .shared memory may hold such */
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

/* May what the instruction writes differ from turn to turn by what others do? Of `ways` only, if not 0. */
static bool brings_news(const struct sg_ptx_module *module, const struct sg_ptx_function *function,
                        const struct sg_insn *insn, uint8_t ways)
{
    bool returned = insn->form->op == SG_OP_LD && SG_MOD(insn, SG_GROUP_SPACE) == SG_MOD_PARAM &&
                    !sg_is_own_param(function, &insn->operands[1]);
    if (ways != 0)
        return (ways_to_wait(module, insn) & ways) != 0 ||
               (returned && (ways & (CALLS | LOADS | SHARED_LOADS)) != 0);
    if (insn->form->op == SG_OP_LD)
        return SG_MOD(insn, SG_GROUP_SPACE) != SG_MOD_PARAM || returned;
    return insn->call != NULL || !sg_is_arithmetic(insn->form->op);
}

/* Are the turns of the cycle the same whatever its threads read (by `ways`)? `*meet`: do they meet in it? */
static bool has_set_turns(struct sg_arena *arena, const struct sg_ptx_module *module,
                          const struct sg_flow *graph, const struct walk *walk, uint32_t component,
                          uint8_t ways, bool *meet)
{
    const struct sg_ptx_function *function = graph->function;
    struct taint taint = {.seen = SG_NEW_ARRAY(arena, uint8_t, function->n_regs + 1), .changed = true};
    *meet = false;
    while (taint.changed) {
        taint.changed = false;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            const struct sg_insn *insn = &function->insns[i];
            if (walk->component[graph->block_of[i]] != component)
                continue;
            *meet |= sg_is_meeting(insn) || insn->aligns;
            if (insn->guard != 0 && taint.seen[insn->guard - 1])
                return false;
            taint.reads = brings_news(module, function, insn, ways) ||
                          (taint.shared && (ways_to_wait(module, insn) & SHARED_LOADS) != 0);
            sg_visit_registers(insn, note_tainted_read, &taint);
            if (taint.reads && insn->form->op == SG_OP_ST && SG_MOD(insn, SG_GROUP_SPACE) == SG_MOD_SHARED) {
                taint.changed |= !taint.shared;
                taint.shared = true;
            }
            if (insn->form->op == SG_OP_BRX && (ways == 0 || taint.reads))
                return false;
            if (taint.reads)
                sg_visit_registers(insn, note_tainted_write, &taint);
        }
    }
    return true;
}

static bool may_wait(struct sg_arena *arena, const struct sg_ptx_module *module, const struct sg_flow *graph,
                     const struct walk *walk, uint32_t component, uint8_t ways)
{
    bool meet;
    if ((ways & WATCHES) != 0)
        return !has_set_turns(arena, module, graph, walk, component, 0, &meet) || !meet;
    /* of other loads, most are no waits: only those count by which the cycle's turns are decided */
    uint8_t deciding = ways & (LOOKS | CALLS);
    if ((ways & FENCES) != 0)
        deciding |= ways & (LOADS | SHARED_LOADS);
    if ((ways & MEETS) != 0) /* what the block itself writes nobody waits for any more behind a barrier */
        deciding |= ways & LOADS;
    return deciding != 0 && !has_set_turns(arena, module, graph, walk, component, deciding, &meet);
}

void sg_analyse_loops(struct sg_arena *arena, const struct sg_ptx_module *module,
                      struct sg_ptx_function *function)
{
    struct sg_flow graph = {0};
    struct walk walk;
    uint8_t any = 0;
    for (uint32_t i = 0; i < function->n_insns; i++)
        any |= ways_to_wait(module, &function->insns[i]);
    if ((any & (WATCHES | FENCES | LOOKS | CALLS | MEETS)) == 0)
        return;
    sg_flow_build(arena, function, &graph);
    find_components(arena, &graph, &walk);
    uint8_t *waits = sg_arena_alloc(arena, walk.n_components + 1);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        uint8_t ways = ways_to_wait(module, &function->insns[i]);
        if (ways != WATCHES || !always_gets_on(&graph, graph.block_of[i]))
            waits[walk.component[graph.block_of[i]]] |= ways;
    }
    for (uint32_t component = 1; component <= walk.n_components; component++)
        waits[component] = may_wait(arena, module, &graph, &walk, component, waits[component]);
    for (uint32_t block = 0; block < graph.n_blocks; block++) {
        uint32_t to;
        if (!waits[walk.component[block]])
            continue;
        for (uint32_t i = 0; sg_flow_successor(&graph, block, i, &to); i++)
            if (to != UINT32_MAX && to <= block && walk.component[to] == walk.component[block])
                function->insns[graph.first[block + 1] - 1].waits_in_loop = true;
    }
}
