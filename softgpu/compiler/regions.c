/*
 * regions.c - liveness across points, and what of it is stored and what computed anew.
 *
 * A register is live after a point if some way from there reads it before it is written. Of these, a point stores
 * only those that may have been written since the point before, and a region loads all of them (what it does not
 * read LLVM drops). Registers that are read before they are ever written hold 0, as in the other forms.
 */
#include "softgpu/compiler/regions.h"
#include "softgpu/compiler/flow.h"
#include "softgpu/compiler/lockstep.h"
#include "softgpu/compiler/matrices.h"

#include <string.h>

#define POINTS_MAX      400u
#define LOCAL_MAX       4096u /* bytes of .local variables a thread */
#define REMAKE_COST_MAX 24u   /* instructions to compute one register anew */
#define REMAKE_DEPTH    24u
#define EVEN_POINTS_MAX 48u   /* points of a kernel whose regions are made twice, for even registers */
#define GROWTH_MAX      4u    /* how often the regions may hold an instruction, on average … */
#define GROWTH_FREE     4000u /* … beyond so many instructions */

bool sg_is_meeting(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_BAR:
    case SG_OP_BAR_WARP:
    case SG_OP_ELECT:
    case SG_OP_SHFL:
    case SG_OP_VOTE:
    case SG_OP_MATCH:
    case SG_OP_REDUX:
    case SG_OP_ACTIVEMASK:
        return true;
    default:
        return sg_is_matrix(insn);
    }
}

bool sg_is_point(const struct sg_insn *insn)
{
    return insn->passes || insn->aligns || (sg_is_meeting(insn) && !insn->joins);
}

/* What needs a stack of the thread's own, or lets others run at places that are no points. */
static bool needs_fiber(const struct sg_insn *insn)
{
    switch (insn->form->op) {
    case SG_OP_MBARRIER_WAIT:
    case SG_OP_NANOSLEEP:
    case SG_OP_ALLOCA:
    case SG_OP_STACKSAVE:
    case SG_OP_STACKRESTORE:
        return true;
    default:
        return insn->waits_in_loop || (sg_is_matrix(insn) && !sg_matrix_in_columns(insn));
    }
}

/* --- registers of an instruction --- */

static void visit_operand(const struct sg_operand *operand, bool written, bool maybe,
                          sg_register_visitor visit, void *user)
{
    if (operand->kind == SG_OPERAND_REG) {
        visit(user, operand->reg, written, maybe);
    } else if (operand->kind == SG_OPERAND_VECTOR) {
        for (uint32_t i = 0; i < operand->count; i++)
            visit_operand(&operand->items[i], written, maybe, visit, user);
    }
}

/* Whether an operand of a texture instruction is written: their forms do not say (check_texture.c). */
static bool texture_writes(const struct sg_insn *insn, uint32_t operand)
{
    switch (insn->form->op) {
    case SG_OP_TEX:
    case SG_OP_SULD:
        return operand == 2;
    case SG_OP_TXQ:
        return operand == 1;
    default:
        return false;
    }
}

void sg_visit_registers(const struct sg_insn *insn, sg_register_visitor visit, void *user)
{
    const struct sg_form *form = insn->form;
    bool maybe = insn->guard != 0, known = form->n_operands > 0; /* textures have forms without operands */
    if (insn->guard != 0)
        visit(user, insn->guard - 1, false, false);
    if (insn->call != NULL) {
        visit_operand(&insn->call->target, false, false, visit, user);
        for (uint32_t i = 0; i < insn->call->n_arguments; i++)
            visit_operand(&insn->call->arguments[i], false, false, visit, user);
        for (uint32_t i = 0; i < insn->call->n_returns; i++)
            visit_operand(&insn->call->returns[i], true, maybe, visit, user);
        return;
    }
    for (uint32_t i = 0; i < insn->n_operands; i++) {
        bool written = known ? (form->operand[i].flags & SG_OPF_DEST) != 0 : texture_writes(insn, i);
        visit_operand(&insn->operands[i], written, written && maybe, visit, user);
    }
    if (known && insn->n_operands > 0 && (form->operand[0].flags & SG_OPF_PAIR) != 0)
        visit_operand(&insn->operands[insn->n_operands], true, maybe, visit, user);
}

/* --- is it worth it, and possible --- */

/* How many instructions the regions that begin at a block, or behind an instruction, hold. */
static uint32_t reach_of(const struct sg_flow *flow, uint32_t insn, uint32_t *seen, uint32_t walk,
                         uint32_t *stack)
{
    uint32_t count = 0, n_stack = 0, to;
    uint32_t block = flow->block_of[insn];
    for (;;) {
        uint32_t end = flow->first[block + 1];
        while (insn < end && (count == 0 || !sg_is_point(&flow->function->insns[insn]))) {
            insn++;
            count++;
        }
        for (uint32_t i = 0; insn == end && sg_flow_successor(flow, block, i, &to); i++)
            if (to != UINT32_MAX && seen[to] != walk) {
                seen[to] = walk;
                stack[n_stack++] = to;
            }
        if (n_stack == 0)
            return count;
        block = stack[--n_stack];
        insn = flow->first[block];
    }
}

bool sg_regions_possible(struct sg_arena *arena, const struct sg_reach *reach)
{
    const struct sg_function *kernel = reach->functions[0];
    uint32_t n_points = 0, local = 0;
    bool asks_space = false;
    for (uint32_t f = 0; f < reach->count; f++) {
        const struct sg_function *function = reach->functions[f];
        if (f > 0 && (function->waits || function->exits))
            return false;
        for (uint32_t i = 0; i < function->n_insns; i++)
            asks_space |= function->insns[i].form->op == SG_OP_ISSPACEP;
    }
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        if (needs_fiber(&kernel->insns[i]))
            return false;
        n_points += sg_is_point(&kernel->insns[i]);
    }
    for (uint32_t i = 0; i < kernel->n_vars; i++)
        if (kernel->vars[i]->space == SG_SPACE_LOCAL)
            local += (uint32_t)(kernel->vars[i]->size < LOCAL_MAX ? kernel->vars[i]->size : LOCAL_MAX) + 16;
    if (n_points == 0 || n_points > POINTS_MAX || local > LOCAL_MAX)
        return false;
    if (local > 0 && asks_space) /* what is local is told by its nearness to the stack */
        return false;
    struct sg_flow flow = {0};
    sg_flow_build(arena, kernel, &flow);
    uint32_t *seen = SG_NEW_ARRAY(arena, uint32_t, 2 * (size_t)flow.n_blocks), *stack = seen + flow.n_blocks;
    uint64_t total = reach_of(&flow, 0, seen, 1, stack);
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (sg_is_point(&kernel->insns[i]))
            total += reach_of(&flow, i, seen, i + 2, stack);
    return total <= (uint64_t)kernel->n_insns * GROWTH_MAX + GROWTH_FREE;
}

/* --- computing anew --- */

struct remaking {
    const struct sg_function *function;
    uint32_t *made_by; /* register → 1 + the only instruction that writes it; UINT32_MAX: several */
    uint8_t *cost;     /* register → 1 + cost; 255: cannot be; 0: not known yet */
    uint32_t insn;
};

static void note_writer(void *user, uint32_t reg, bool written, bool maybe)
{
    struct remaking *r = user;
    if (written)
        r->made_by[reg] = r->made_by[reg] == 0 && !maybe ? r->insn + 1 : UINT32_MAX;
}

/* The engine takes what it multiplies from columns. */
static void keep_in_column(void *user, uint32_t reg, bool written, bool maybe)
{
    uint8_t *cost = user;
    (void)written;
    (void)maybe;
    cost[reg] = 255;
}

bool sg_is_arithmetic(enum sg_op op)
{
    switch (op) {
    case SG_OP_ADD:
    case SG_OP_SUB:
    case SG_OP_MUL:
    case SG_OP_MAD:
    case SG_OP_NEG:
    case SG_OP_MIN:
    case SG_OP_MAX:
    case SG_OP_SHL:
    case SG_OP_SHR:
    case SG_OP_AND:
    case SG_OP_OR:
    case SG_OP_XOR:
    case SG_OP_NOT:
    case SG_OP_BFE:
    case SG_OP_BFI:
    case SG_OP_LOP3:
    case SG_OP_SETP:
    case SG_OP_SELP:
    case SG_OP_MOV:
    case SG_OP_CVT:
    case SG_OP_CVTA:
    case SG_OP_FADD:
    case SG_OP_FSUB:
    case SG_OP_FMUL:
        return true;
    default:
        return false;
    }
}

/* Its result follows from its operands, and it is cheap and does no harm wherever it is computed. */
static bool is_pure(const struct sg_function *function, const struct sg_insn *insn)
{
    if (insn->guard != 0 || SG_MOD(insn, SG_GROUP_CC) != 0)
        return false;
    if (insn->form->op != SG_OP_LD)
        return sg_is_arithmetic(insn->form->op);
    const struct sg_operand *address = &insn->operands[1];
    return address->kind == SG_OPERAND_VAR && address->var->space == SG_SPACE_PARAM &&
           address->var >= function->params && address->var < function->params + function->n_params;
}

static bool is_constant_special(const struct sg_operand *operand)
{
    return operand->reg < SG_SPECIAL_CLOCK || operand->reg > SG_SPECIAL_GLOBALTIMER_HI;
}

static uint32_t cost_of(struct remaking *r, uint32_t reg, uint32_t depth);

static uint32_t cost_of_operand(struct remaking *r, const struct sg_operand *operand, uint32_t depth)
{
    uint32_t cost = 0;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return cost_of(r, operand->reg, depth + 1);
    case SG_OPERAND_SPECIAL:
        return is_constant_special(operand) ? 0 : 255;
    case SG_OPERAND_VECTOR:
        for (uint32_t i = 0; i < operand->count; i++)
            cost += cost_of_operand(r, &operand->items[i], depth);
        return cost;
    default:
        return 0;
    }
}

static uint32_t cost_of(struct remaking *r, uint32_t reg, uint32_t depth)
{
    if (r->cost[reg] != 0)
        return r->cost[reg] == 255 ? 255 : r->cost[reg] - 1u;
    uint32_t by = r->made_by[reg], cost = 255;
    r->cost[reg] = 255; /* also for what depends on itself */
    if (by != 0 && by != UINT32_MAX && depth < REMAKE_DEPTH) {
        const struct sg_insn *insn = &r->function->insns[by - 1];
        if (is_pure(r->function, insn) && insn->operands[0].kind == SG_OPERAND_REG) {
            enum sg_op op = insn->form->op;
            cost = op == SG_OP_LD || (op == SG_OP_MOV && insn->operands[1].kind != SG_OPERAND_REG) ? 0 : 1;
            for (uint32_t i = 1; i < insn->n_operands && op != SG_OP_LD; i++)
                cost += cost_of_operand(r, &insn->operands[i], depth);
        }
    }
    if (cost <= REMAKE_COST_MAX)
        r->cost[reg] = (uint8_t)(cost + 1);
    return cost <= REMAKE_COST_MAX ? cost : 255;
}

uint32_t *sg_remade_compute(struct sg_arena *arena, const struct sg_function *function)
{
    struct remaking r = {.function = function,
                         .made_by = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1),
                         .cost = SG_NEW_ARRAY(arena, uint8_t, function->n_regs + 1)};
    uint32_t *remade = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1);
    for (r.insn = 0; r.insn < function->n_insns; r.insn++)
        sg_visit_registers(&function->insns[r.insn], note_writer, &r);
    for (uint32_t i = 0; i < function->n_insns; i++)
        if (sg_is_matrix(&function->insns[i]))
            sg_matrix_visit(&function->insns[i], keep_in_column, r.cost);
    for (uint32_t reg = 0; reg < function->n_regs; reg++)
        if (cost_of(&r, reg, 0) != 255)
            remade[reg] = r.made_by[reg];
    return remade;
}

/* --- liveness --- */

struct sets {
    uint64_t *live; /* walked backwards: registers that will be read */
    bool reading;   /* the pass over what is read, after the one over what is written */
};

static void set_live(void *user, uint32_t reg, bool written, bool maybe)
{
    struct sets *sets = user;
    if (!written && sets->reading)
        sets->live[reg / 64] |= UINT64_C(1) << reg % 64;
    else if (written && !maybe && !sets->reading)
        sets->live[reg / 64] &= ~(UINT64_C(1) << reg % 64);
}

static void step_back(struct sets *sets, const struct sg_insn *insn)
{
    sets->reading = false;
    sg_visit_registers(insn, set_live, sets);
    sets->reading = true;
    sg_visit_registers(insn, set_live, sets);
}

/* `to` gets all of `from`; true if that is news. */
static bool merge(uint64_t *to, const uint64_t *from, uint32_t n)
{
    bool changed = false;
    for (uint32_t i = 0; i < n; i++) {
        changed |= (from[i] & ~to[i]) != 0;
        to[i] |= from[i];
    }
    return changed;
}

static void live_at_end(const struct sg_flow *flow, uint32_t block, uint64_t *const *live_in, uint64_t *live,
                        uint32_t n)
{
    uint32_t to;
    memset(live, 0, n * sizeof(*live));
    for (uint32_t i = 0; sg_flow_successor(flow, block, i, &to); i++)
        if (to != UINT32_MAX)
            merge(live, live_in[to], n);
}

/* What is live at the start of each block, and in `load` after each point; in `before` before it. */
static void find_live(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions,
                      uint64_t **live_in)
{
    uint32_t n = regions->n_words;
    struct sets sets = {.live = SG_NEW_ARRAY(arena, uint64_t, n)};
    for (uint32_t block = 0; block < flow->n_blocks; block++)
        live_in[block] = SG_NEW_ARRAY(arena, uint64_t, n);
    for (bool changed = true, last = false; changed || !last;) {
        last = !changed;
        changed = false;
        for (uint32_t block = flow->n_blocks; block-- > 0;) {
            live_at_end(flow, block, live_in, sets.live, n);
            for (uint32_t i = flow->first[block + 1]; i-- > flow->first[block];) {
                uint32_t ends = regions->ends[i], begins = regions->points[i];
                if (last && ends != 0)
                    memcpy(regions->load[ends], sets.live, n * sizeof(*sets.live));
                step_back(&sets, &flow->function->insns[i]);
                if (last && begins != 0)
                    memcpy(regions->before[begins], sets.live, n * sizeof(*sets.live));
            }
            changed |= merge(live_in[block], sets.live, n);
        }
    }
}

static void set_written(void *user, uint32_t reg, bool written, bool maybe)
{
    uint64_t *set = user;
    (void)maybe;
    if (written)
        set[reg / 64] |= UINT64_C(1) << reg % 64;
}

static void clear_written(void *user, uint32_t reg, bool written, bool maybe)
{
    uint64_t *set = user;
    (void)maybe; /* where a point's guard is false nothing is stored or loaded */
    if (written)
        set[reg / 64] &= ~(UINT64_C(1) << reg % 64);
}

/* What may have been written since the last point, before each point: what it has to store. */
static void find_written(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions,
                         const uint64_t *at_entry)
{
    uint32_t n = regions->n_words, to;
    uint64_t **in = SG_NEW_ARRAY(arena, uint64_t *, flow->n_blocks), *now = SG_NEW_ARRAY(arena, uint64_t, n);
    for (uint32_t block = 0; block < flow->n_blocks; block++)
        in[block] = SG_NEW_ARRAY(arena, uint64_t, n);
    merge(in[0], at_entry, n);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t block = 0; block < flow->n_blocks; block++) {
            memcpy(now, in[block], n * sizeof(*now));
            for (uint32_t i = flow->first[block]; i < flow->first[block + 1]; i++) {
                const struct sg_insn *insn = &flow->function->insns[i];
                uint32_t point = regions->points[i];
                if (point != 0)
                    merge(regions->save[point], now, n);
                if (point != 0 && insn->guard == 0)
                    memset(now, 0, n * sizeof(*now));
                if (!sg_is_matrix(insn)) /* their results are in the columns already */
                    sg_visit_registers(insn, set_written, now);
            }
            for (uint32_t i = 0; sg_flow_successor(flow, block, i, &to); i++)
                if (to != UINT32_MAX)
                    changed |= merge(in[to], now, n);
        }
    }
}

/* --- columns --- */

static uint32_t add_column(struct sg_regions *regions, uint32_t bits)
{
    uint32_t column = regions->context_size;
    regions->context_size += bits < 8 ? 1 : bits / 8;
    return column;
}

static void note_any(void *user, uint32_t reg, bool written, bool maybe)
{
    uint64_t *set = user;
    (void)written;
    (void)maybe;
    set[reg / 64] |= UINT64_C(1) << reg % 64;
}

/* Columns for the addresses and strides of a run's loads and stores, as many as any run has. */
static void place_addresses(const struct sg_function *function, struct sg_regions *regions)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < function->n_insns; i++) {
        uint32_t accesses = 0;
        if (regions->points[i] == 0 || !sg_is_matrix(&function->insns[i]))
            continue;
        for (uint32_t n = i; n <= sg_matrix_run_end(function, i); n++)
            accesses += sg_matrix_accesses(&function->insns[n]);
        most = accesses > most ? accesses : most;
    }
    regions->addresses = regions->context_size;
    regions->context_size += most * (uint32_t)sizeof(uint64_t);
    regions->strides = regions->context_size;
    regions->context_size += most * (uint32_t)sizeof(uint32_t);
}

static void place_registers(struct sg_arena *arena, const struct sg_function *function,
                            struct sg_regions *regions)
{
    regions->column = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1);
    regions->crossing = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    for (uint32_t point = 1; point <= regions->n_points; point++)
        merge(regions->crossing, regions->load[point], regions->n_words);
    uint64_t *matrices = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    for (uint32_t i = 0; i < function->n_insns; i++)
        if (sg_is_matrix(&function->insns[i]))
            sg_matrix_visit(&function->insns[i], note_any, matrices);
    for (uint32_t reg = 0; reg < function->n_regs; reg++)
        if ((sg_regions_has(regions->crossing, reg) && regions->remade[reg] == 0) ||
            sg_regions_has(matrices, reg))
            regions->column[reg] = add_column(regions, sg_types[function->regs[reg].type].bits);
    place_addresses(function, regions);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        enum sg_op op = function->insns[i].form->op;
        if (regions->carry == 0 && (op == SG_OP_ADDC || op == SG_OP_SUBC || op == SG_OP_MADC))
            regions->carry = add_column(regions, 8);
    }
    regions->context_size = (regions->context_size + 7) & ~7u;
}

static void place_locals(struct sg_arena *arena, const struct sg_function *function,
                         struct sg_regions *regions)
{
    regions->local = SG_NEW_ARRAY(arena, uint32_t, function->n_vars + 1);
    for (uint32_t i = 0; i < function->n_vars; i++) {
        const struct sg_var *var = function->vars[i];
        if (var->space != SG_SPACE_LOCAL)
            continue;
        uint32_t align = var->align < 16 ? 16 : var->align;
        regions->local_size = (regions->local_size + align - 1) & ~(align - 1);
        regions->local[i] = regions->local_size;
        regions->local_size += (uint32_t)var->size;
    }
    regions->local_size = (regions->local_size + 63) & ~63u;
}

/* --- registers that are even along a row --- */

static void note_read(void *user, uint32_t reg, bool written, bool maybe)
{
    uint64_t *set = user;
    (void)maybe;
    if (!written)
        set[reg / 64] |= UINT64_C(1) << reg % 64;
}

/* Adds what the region behind the instruction reads. */
static void find_reads(const struct sg_flow *flow, uint32_t insn, uint32_t *seen, uint32_t walk,
                       uint32_t *stack, uint64_t *reads)
{
    const struct sg_insn *insns = flow->function->insns;
    uint32_t n_stack = 0, to, block = flow->block_of[insn];
    bool behind = !insns[insn].aligns, first = true;
    for (;;) {
        uint32_t end = flow->first[block + 1];
        for (; insn < end && (first || !sg_is_point(&insns[insn])); insn++, first = behind = false)
            if (!behind)
                sg_visit_registers(&insns[insn], note_read, reads);
        if (insn < end) /* what the next point is given */
            sg_visit_registers(&insns[insn], note_read, reads);
        for (uint32_t i = 0; insn == end && sg_flow_successor(flow, block, i, &to); i++)
            if (to != UINT32_MAX && seen[to] != walk) {
                seen[to] = walk;
                stack[n_stack++] = to;
            }
        if (n_stack == 0)
            return;
        block = stack[--n_stack];
        insn = flow->first[block];
    }
}

/* The only point that is reached from behind an instruction (at the start: -1), SG_POINT_END, or 0. */
static uint32_t find_next(const struct sg_flow *flow, const struct sg_regions *regions, uint32_t from,
                          bool behind, uint32_t *seen, uint32_t walk, uint32_t *stack)
{
    const struct sg_insn *insns = flow->function->insns;
    uint32_t next = 0, n_stack = 0, to, insn = from, block = flow->block_of[from];
    for (;;) {
        uint32_t end = flow->first[block + 1], found = 0;
        for (bool first = behind; insn < end && found == 0; insn++, first = false) {
            enum sg_op op = insns[insn].form->op;
            if (!first && regions->points[insn] != 0)
                found = regions->points[insn];
            else if (op == SG_OP_RET || op == SG_OP_EXIT)
                found = SG_POINT_END;
            if (found != 0 && next != 0 && next != found)
                return 0;
            next = found != 0 ? found : next;
            if (found != 0 && insns[insn].guard != 0)
                found = 0; /* and perhaps further */
        }
        behind = false;
        for (uint32_t i = 0; found == 0 && sg_flow_successor(flow, block, i, &to); i++) {
            if (to == UINT32_MAX) {
                if (next != 0 && next != SG_POINT_END)
                    return 0;
                next = SG_POINT_END;
            } else if (seen[to] != walk) {
                seen[to] = walk;
                stack[n_stack++] = to;
            }
        }
        if (n_stack == 0)
            return next;
        block = stack[--n_stack];
        insn = flow->first[block];
    }
}

static void find_nexts(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions)
{
    uint32_t *seen = SG_NEW_ARRAY(arena, uint32_t, 2 * (size_t)flow->n_blocks),
             *stack = seen + flow->n_blocks;
    regions->next = SG_NEW_ARRAY(arena, uint32_t, regions->n_points + 1);
    regions->next[0] = find_next(flow, regions, 0, false, seen, UINT32_MAX, stack);
    for (uint32_t i = 0; i < flow->function->n_insns; i++)
        if (regions->points[i] != 0)
            regions->next[regions->points[i]] =
                find_next(flow, regions, i, true, seen, regions->points[i], stack);
}

static void find_even(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions)
{
    const struct sg_function *kernel = flow->function;
    const struct sg_course *courses = sg_courses_compute(arena, kernel);
    uint32_t *seen = SG_NEW_ARRAY(arena, uint32_t, 2 * (size_t)flow->n_blocks),
             *stack = seen + flow->n_blocks;
    regions->even = SG_NEW_ARRAY(arena, uint64_t *, regions->n_points + 1);
    regions->step = SG_NEW_ARRAY(arena, int64_t, kernel->n_regs + 1);
    for (uint32_t reg = 0; reg < kernel->n_regs; reg++)
        regions->step[reg] = courses[reg].step;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        uint32_t point = regions->points[i], count = 0;
        if (point == 0)
            continue;
        if (regions->n_points > EVEN_POINTS_MAX) {
            regions->even[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
            continue;
        }
        uint64_t *reads = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        regions->even[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        find_reads(flow, sg_matrix_run_end(kernel, i), seen, point, stack, reads);
        for (uint32_t reg = 0; reg < kernel->n_regs; reg++) {
            enum sg_type type = (enum sg_type)kernel->regs[reg].type;
            bool wanted = regions->column[reg] != 0 && sg_regions_has(reads, reg) &&
                          sg_regions_has(regions->load[point], reg) && courses[reg].kind == SG_COURSE_EVEN &&
                          (courses[reg].step == 0 || !sg_type_is_float(type)) && sg_types[type].bits <= 64;
            if (wanted && count++ < SG_EVEN_MAX)
                regions->even[point][reg / 64] |= UINT64_C(1) << reg % 64;
        }
    }
}

/* What is even at the end of some turn, as far as there is place. */
static void find_kept(struct sg_arena *arena, const struct sg_function *kernel, struct sg_regions *regions)
{
    uint64_t *found = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    regions->turns = SG_NEW_ARRAY(arena, uint8_t, regions->n_points + 1);
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        if (!kernel->insns[i].passes)
            continue;
        regions->turns[regions->points[i]] = 1;
        merge(found, regions->even[regions->points[i]], regions->n_words);
    }
    for (uint32_t reg = 0; reg < kernel->n_regs; reg++) {
        enum sg_type type = (enum sg_type)kernel->regs[reg].type;
        if (sg_regions_has(found, reg) && !sg_type_is_float(type) && type != SG_PRED &&
            sg_types[type].bits >= 16 && regions->n_kept < SG_KEPT_MAX)
            regions->kept[regions->n_kept++] = reg;
    }
}

void sg_regions_compute(struct sg_arena *arena, const struct sg_function *kernel, struct sg_regions *regions)
{
    struct sg_flow flow = {0};
    *regions = (struct sg_regions){.context_size = SG_LANES_SIZE, .n_words = kernel->n_regs / 64 + 1};
    regions->points = SG_NEW_ARRAY(arena, uint32_t, kernel->n_insns);
    regions->ends = SG_NEW_ARRAY(arena, uint32_t, kernel->n_insns);
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (sg_is_point(&kernel->insns[i])) {
            regions->points[i] = ++regions->n_points;
            regions->ends[sg_matrix_run_end(kernel, i)] = regions->n_points;
        }
    regions->save = SG_NEW_ARRAY(arena, uint64_t *, regions->n_points + 1);
    regions->load = SG_NEW_ARRAY(arena, uint64_t *, regions->n_points + 1);
    regions->before = SG_NEW_ARRAY(arena, uint64_t *, regions->n_points + 1);
    for (uint32_t point = 1; point <= regions->n_points; point++) {
        regions->save[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        regions->load[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        regions->before[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    }
    sg_flow_build(arena, kernel, &flow);
    uint64_t **live_in = SG_NEW_ARRAY(arena, uint64_t *, flow.n_blocks);
    find_live(arena, &flow, regions, live_in);
    find_written(arena, &flow, regions, live_in[0]);
    regions->remade = sg_remade_compute(arena, kernel);
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        uint32_t point = regions->points[i];
        if (point == 0)
            continue;
        bool matrix = sg_is_matrix(&kernel->insns[i]), aligns = kernel->insns[i].aligns;
        if (aligns) /* the point is before the instruction */
            memcpy(regions->load[point], regions->before[point], regions->n_words * sizeof(uint64_t));
        else if (!matrix)
            sg_visit_registers(&kernel->insns[i], clear_written, regions->load[point]);
        for (uint32_t n = 0; n < regions->n_words; n++)
            regions->save[point][n] &= (matrix ? regions->before : regions->load)[point][n];
    }
    place_registers(arena, kernel, regions);
    place_locals(arena, kernel, regions);
    find_nexts(arena, &flow, regions);
    find_even(arena, &flow, regions);
    find_kept(arena, kernel, regions);
}
