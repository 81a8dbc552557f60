/*
 * warp_sync.c - where the lanes of a warp have to be kept together for programs that take it for granted.
 *
 * The idiom is volatile shared memory without barriers between the steps of one warp:
 *
 *     volatile int *s = …; s[i] += s[i + 16]; s[i] += s[i + 8]; …
 *
 * On a GPU all lanes load, then all store. So no lane may store before all have loaded, nor load again before
 * all have stored. Stores behind stores are left alone: it would take two lanes that write one place.
 *
 * The other idiom takes what lies somewhere, and leaves a mark in its place, which may be one place for
 * several lanes:
 *
 *     x = *p; *p = 1; … barrier … *p = x;
 *
 * (cuBLAS takes the diagonal of a matrix so.) What marks are made of is a constant, else the lanes would race
 * on a GPU, too.
 */
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/uniformity/uniformity.h"

#include "softgpu/compiler/ir/flow.h"

/* Since the lanes were last together; WATCHED: one of the accesses was volatile, so now all of them count. */
enum { LOADED = 1, STORED = 2, WATCHED = 4, TAKEN = 8 };
/* … and from TAKEN on a bit each for the places that are marked: somebody has loaded from there. */
#define PLACES_MAX 29u

struct places {
    uint32_t n;
    struct {
        uint32_t reg;
        uint64_t offset;
    } at[PLACES_MAX];
};

static bool is_shared(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    return (op == SG_OP_LD || op == SG_OP_ST) && (space == SG_MOD_SHARED || space == 0);
}

static bool is_volatile(const struct sg_insn *insn)
{
    return is_shared(insn) && SG_MOD(insn, SG_GROUP_SEM) == SG_VOLATILE;
}

static bool is_place(const struct sg_insn *insn, enum sg_op op)
{
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    return insn->form->op == op && insn->operands[op == SG_OP_LD].kind == SG_OPERAND_REG &&
           (space == SG_MOD_SHARED || space == SG_MOD_GLOBAL || space == 0);
}

/* The bit of the place that an operand names, or 0. */
static uint32_t place_bit(const struct places *places, const struct sg_operand *address)
{
    for (uint32_t i = 0; i < places->n; i++)
        if (places->at[i].reg == address->reg && places->at[i].offset == address->value)
            return (uint32_t)TAKEN << i;
    return 0;
}

/* What has been done since the lanes were together, behind the instruction, which it marks. */
static uint32_t step(struct sg_insn *insn, const struct places *places, uint32_t state)
{
    if (sg_is_meeting(insn))
        return 0;
    uint32_t own = 0, other = 0;
    if (is_shared(insn)) {
        own = insn->form->op == SG_OP_LD ? LOADED : STORED;
        own |= is_volatile(insn) ? WATCHED : state & WATCHED;
        other = own & WATCHED ? (LOADED | STORED) & ~own : 0;
    }
    if (is_place(insn, SG_OP_LD))
        own |= place_bit(places, &insn->operands[1]);
    else if (is_place(insn, SG_OP_ST))
        other |= place_bit(places, &insn->operands[0]);
    insn->aligns = (state & other) != 0;
    /* where a guard is false the lanes were not brought together */
    return own | (!insn->aligns || insn->guard != 0 ? state : 0);
}

struct writes {
    uint32_t *count; /* by register */
};

static void count_write(void *user, uint32_t reg, bool written, bool maybe)
{
    const struct writes *writes = user;
    (void)maybe;
    writes->count[reg] += written;
}

/* By register: whether it only ever has the value that a `mov` gives it. */
static bool *find_constants(struct sg_arena *arena, const struct sg_ptx_function *function)
{
    struct writes writes = {SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1)};
    bool *constant = SG_NEW_ARRAY(arena, bool, function->n_regs + 1);
    for (uint32_t i = 0; i < function->n_insns; i++)
        sg_visit_registers(&function->insns[i], count_write, &writes);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (insn->form->op == SG_OP_MOV && insn->operands[0].kind == SG_OPERAND_REG &&
            (insn->operands[1].kind == SG_OPERAND_INTEGER || insn->operands[1].kind == SG_OPERAND_FLOAT32 ||
             insn->operands[1].kind == SG_OPERAND_FLOAT64))
            constant[insn->operands[0].reg] = writes.count[insn->operands[0].reg] == 1;
    }
    return constant;
}

static bool is_constant(const bool *constant, const struct sg_operand *value)
{
    if (value->kind != SG_OPERAND_VECTOR)
        return value->kind != SG_OPERAND_REG || constant[value->reg];
    for (uint32_t i = 0; i < value->count; i++)
        if (!is_constant(constant, &value->items[i]))
            return false;
    return true;
}

/* The places that constants are stored to. Without meetings in the function nothing is made of marks. */
static void find_places(struct sg_arena *arena, const struct sg_ptx_function *function, struct places *places)
{
    const bool *constant = NULL;
    bool meets = false;
    for (uint32_t i = 0; i < function->n_insns && !meets; i++)
        meets = sg_is_meeting(&function->insns[i]);
    for (uint32_t i = 0; meets && i < function->n_insns && places->n < PLACES_MAX; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (!is_place(insn, SG_OP_ST) || place_bit(places, &insn->operands[0]) != 0)
            continue;
        if (!constant)
            constant = find_constants(arena, function);
        if (!is_constant(constant, &insn->operands[1]))
            continue;
        places->at[places->n].reg = insn->operands[0].reg;
        places->at[places->n++].offset = insn->operands[0].value;
    }
}

void sg_analyse_warp_sync(struct sg_arena *arena, struct sg_ptx_function *function)
{
    struct sg_flow flow = {0};
    struct places places = {0};
    bool any = false;
    find_places(arena, function, &places);
    for (uint32_t i = 0; i < function->n_insns; i++) {
        const struct sg_insn *insn = &function->insns[i];
        any |= (is_volatile(insn) && insn->form->op == SG_OP_ST) ||
               (is_place(insn, SG_OP_LD) && place_bit(&places, &insn->operands[1]) != 0);
    }
    if (!any)
        return;
    sg_flow_build(arena, function, &flow);
    uint32_t *in = SG_NEW_ARRAY(arena, uint32_t, flow.n_blocks + 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t block = 0; block < flow.n_blocks; block++) {
            uint32_t state = in[block], to;
            for (uint32_t i = flow.first[block]; i < flow.first[block + 1]; i++)
                state = step(&function->insns[i], &places, state);
            for (uint32_t i = 0; sg_flow_successor(&flow, block, i, &to); i++)
                if (to != UINT32_MAX && (state & ~in[to]) != 0) {
                    in[to] |= state;
                    changed = true;
                }
        }
    }
}
