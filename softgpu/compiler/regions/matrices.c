/*
 * matrices.c - instructions on matrices in kernels in loop form. Those that follow each other are one point,
 * so that the block's threads stop once for all of them; the engine finds their operands in the context and
 * leaves results there, so that what only such instructions use (sums, above all) is never loaded into
 * registers.
 *
 * nvcc puts other instructions between them: the next address, conversions of what was loaded. Those that
 * need nothing of the run are moved before it, the others behind, where that changes nothing.
 */
#include "softgpu/compiler/regions/matrices.h"
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/mma.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/regions/regions.h"

#include <string.h>

#define RUN_MAX    256u /* instructions of a point */
#define ACCESS_MAX 32u  /* of them such that access memory: each has a column for its address */
#define SIGHT      512u /* how far behind a run one looks for more of it */

bool sg_matrix_accesses(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return op == SG_OP_WMMA_LOAD || op == SG_OP_WMMA_STORE || op == SG_OP_LDMATRIX || op == SG_OP_STMATRIX;
}

static bool stores(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    return op == SG_OP_WMMA_STORE || op == SG_OP_STMATRIX;
}

static bool is_registers(const struct sg_operand *operand)
{
    if (operand->kind != SG_OPERAND_VECTOR)
        return operand->kind == SG_OPERAND_REG;
    for (uint32_t i = 0; i < operand->count; i++)
        if (operand->items[i].kind != SG_OPERAND_REG)
            return false;
    return true;
}

bool sg_matrix_in_columns(const struct sg_insn *insn)
{
    if (insn->guard != 0)
        return false;
    switch (insn->form->op) {
    case SG_OP_MMA:
    case SG_OP_WMMA_MMA:
        return is_registers(&insn->operands[0]) && is_registers(&insn->operands[1]) &&
               is_registers(&insn->operands[2]) && is_registers(&insn->operands[3]) &&
               (!sg_mma_is_sparse(insn) || is_registers(&insn->operands[4]));
    case SG_OP_WMMA_LOAD:
    case SG_OP_LDMATRIX:
        return is_registers(&insn->operands[0]);
    case SG_OP_WMMA_STORE:
    case SG_OP_STMATRIX:
        return is_registers(&insn->operands[1]);
    default:
        return is_registers(&insn->operands[0]) && is_registers(&insn->operands[1]);
    }
}

void sg_matrix_visit(const struct sg_insn *insn, sg_register_visitor visit, void *user)
{
    enum sg_op op = insn->form->op;
    bool from_memory = op == SG_OP_WMMA_LOAD || op == SG_OP_LDMATRIX, to_memory = stores(insn);
    for (uint32_t i = to_memory; i < insn->n_operands; i++) {
        const struct sg_operand *operand = &insn->operands[i];
        uint32_t count = operand->kind == SG_OPERAND_VECTOR ? operand->count : 1;
        for (uint32_t n = 0; n < count; n++) {
            const struct sg_operand *item = operand->kind == SG_OPERAND_VECTOR ? &operand->items[n] : operand;
            if (item->kind == SG_OPERAND_REG)
                visit(user, item->reg, i == 0, false);
        }
        if (from_memory || to_memory)
            return;
    }
}

uint32_t sg_matrix_run_end(const struct sg_ptx_function *function, uint32_t i)
{
    while (i + 1 < function->n_insns && function->insns[i + 1].joins)
        i++;
    return i;
}

/* --- runs --- */

/* What some instructions read and write. */
struct effects {
    uint64_t *read, *written;
    uint32_t n_words;
};

struct run {
    struct effects own;     /* of the instructions of the run */
    struct effects between; /* of those that were left behind the run */
    uint32_t count, accesses;
    bool stores; /* the run */
};

static void note(void *user, uint32_t reg, bool written, bool maybe)
{
    struct effects *effects = user;
    (void)maybe;
    (written ? effects->written : effects->read)[reg / 64] |= UINT64_C(1) << reg % 64;
}

static void clear(struct effects *effects)
{
    memset(effects->read, 0, effects->n_words * sizeof(*effects->read));
    memset(effects->written, 0, effects->n_words * sizeof(*effects->written));
}

struct conflict {
    const struct effects *effects;
    bool any;
};

static void find_conflict(void *user, uint32_t reg, bool written, bool maybe)
{
    struct conflict *c = user;
    uint64_t taken = c->effects->written[reg / 64] | (written ? c->effects->read[reg / 64] : 0);
    (void)maybe;
    c->any |= taken >> reg % 64 & 1;
}

/* Would it make a difference if the instruction came before those with these effects? */
static bool depends(const struct sg_insn *insn, const struct effects *effects)
{
    struct conflict c = {effects, false};
    sg_visit_registers(insn, find_conflict, &c);
    return c.any;
}

static bool is_plain_load(const struct sg_insn *insn)
{
    return insn->form->op == SG_OP_LD && SG_MOD(insn, SG_GROUP_SEM) <= SG_WEAK;
}

/* Does nothing but compute and load, so that others may go before it and it before others. */
static bool is_quiet(const struct sg_insn *insn)
{
    return insn->guard == 0 && SG_MOD(insn, SG_GROUP_CC) == 0 &&
           (is_plain_load(insn) || sg_is_arithmetic(insn->form->op));
}

static bool can_go_before(const struct run *run, const struct sg_insn *insn)
{
    bool loads = insn->form->op == SG_OP_LD && SG_MOD(insn, SG_GROUP_SPACE) != SG_MOD_PARAM;
    return is_quiet(insn) && !(loads && run->stores) && !depends(insn, &run->own) &&
           !depends(insn, &run->between);
}

static void append(struct run *run, const struct sg_insn *insn)
{
    sg_visit_registers(insn, note, &run->own);
    run->count++;
    run->accesses += sg_matrix_accesses(insn);
    run->stores |= stores(insn);
}

/* Addresses and strides are taken before the run begins, so no instruction of it may have made them. */
static bool has_place(const struct run *run, const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    uint32_t data = op == SG_OP_WMMA_LOAD || op == SG_OP_LDMATRIX ? 0 : 1;
    for (uint32_t i = 0; sg_matrix_accesses(insn) && i < insn->n_operands; i++) {
        const struct sg_operand *operand = &insn->operands[i];
        if (i != data && operand->kind == SG_OPERAND_REG && sg_regions_has(run->own.written, operand->reg))
            return false;
    }
    return true;
}

static bool joins(const struct run *run, const struct sg_insn *insn, bool passes_loads)
{
    return sg_is_matrix(insn) && sg_matrix_in_columns(insn) && run->count < RUN_MAX &&
           run->accesses + sg_matrix_accesses(insn) <= ACCESS_MAX && has_place(run, insn) &&
           !depends(insn, &run->between) && !(passes_loads && stores(insn));
}

/* Puts the instruction at `from` at place `to` before it. */
static void move_up(struct sg_ptx_function *function, uint32_t to, uint32_t from)
{
    struct sg_insn insn = function->insns[from];
    memmove(&function->insns[to + 1], &function->insns[to], (from - to) * sizeof(insn));
    function->insns[to] = insn;
}

/*
 * Makes a run of what is at `first` and behind it; returns the place behind. What is not on matrices goes
 * before the run if it can (what it does may be wanted by the next of them), else stays behind it.
 */
static uint32_t gather_run(struct sg_ptx_function *function, struct run *run, uint32_t first, uint32_t end)
{
    uint32_t behind = first + 1; /* the run */
    bool loads = false;
    clear(&run->own);
    clear(&run->between);
    run->count = run->accesses = 0;
    run->stores = false;
    append(run, &function->insns[first]);
    end = end - first > SIGHT ? first + SIGHT : end;
    for (uint32_t i = behind; i < end; i++) {
        struct sg_insn *insn = &function->insns[i];
        if (joins(run, insn, loads)) {
            append(run, insn);
            move_up(function, behind, i);
            function->insns[behind++].joins = true;
        } else if (can_go_before(run, insn)) {
            move_up(function, first++, i);
            behind++;
        } else if (is_quiet(insn) ||
                   (sg_is_matrix(insn) && sg_matrix_in_columns(insn) && !sg_matrix_accesses(insn))) {
            sg_visit_registers(insn, note, &run->between);
            loads |= is_plain_load(insn);
        } else {
            break;
        }
    }
    return behind;
}

void sg_analyse_matrices(struct sg_arena *arena, struct sg_ptx_function *kernel)
{
    struct sg_flow flow = {0};
    bool any = false;
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        any |= sg_is_matrix(&kernel->insns[i]);
    if (!any)
        return;
    uint32_t n = kernel->n_regs / 64 + 1;
    struct run run = {.own = {SG_NEW_ARRAY(arena, uint64_t, n), SG_NEW_ARRAY(arena, uint64_t, n), n},
                      .between = {SG_NEW_ARRAY(arena, uint64_t, n), SG_NEW_ARRAY(arena, uint64_t, n), n}};
    sg_flow_build(arena, kernel, &flow);
    for (uint32_t block = 0; block < flow.n_blocks; block++)
        for (uint32_t i = flow.first[block]; i < flow.first[block + 1];)
            if (sg_is_matrix(&kernel->insns[i]) && sg_matrix_in_columns(&kernel->insns[i]))
                i = gather_run(kernel, &run, i, flow.first[block + 1]);
            else
                i++;
}
