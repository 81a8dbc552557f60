/*
 * regions.c - liveness across points, and what of it is stored and what computed anew.
 *
 * A register is live after a point if some way from there reads it before it is written. Of these, a point
 * stores only those that may have been written since the point before, and a region loads all of them (what
 * it does not read LLVM drops). Registers that are read before they are ever written hold 0, as in the other
 * forms.
 */
#include "softgpu/compiler/regions/regions.h"
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/regions/matrices.h"

#include <string.h>

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

static void live_at_end(const struct sg_flow *flow, uint32_t block, uint64_t *const *live_in, uint64_t *live,
                        uint32_t n)
{
    uint32_t to;
    memset(live, 0, n * sizeof(*live));
    for (uint32_t i = 0; sg_flow_successor(flow, block, i, &to); i++)
        if (to != UINT32_MAX)
            sg_regions_merge(live, live_in[to], n);
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
            changed |= sg_regions_merge(live_in[block], sets.live, n);
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
    sg_regions_merge(in[0], at_entry, n);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t block = 0; block < flow->n_blocks; block++) {
            memcpy(now, in[block], n * sizeof(*now));
            for (uint32_t i = flow->first[block]; i < flow->first[block + 1]; i++) {
                const struct sg_insn *insn = &flow->function->insns[i];
                uint32_t point = regions->points[i];
                if (point != 0)
                    sg_regions_merge(regions->save[point], now, n);
                if (point != 0 && insn->guard == 0)
                    memset(now, 0, n * sizeof(*now));
                if (!sg_is_matrix(insn)) /* their results are in the columns already */
                    sg_visit_registers(insn, set_written, now);
            }
            for (uint32_t i = 0; sg_flow_successor(flow, block, i, &to); i++)
                if (to != UINT32_MAX)
                    changed |= sg_regions_merge(in[to], now, n);
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
static void place_addresses(const struct sg_ptx_function *function, struct sg_regions *regions)
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

static void place_registers(struct sg_arena *arena, const struct sg_ptx_function *function,
                            struct sg_regions *regions)
{
    regions->column = SG_NEW_ARRAY(arena, uint32_t, function->n_regs + 1);
    regions->crossing = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    for (uint32_t point = 1; point <= regions->n_points; point++)
        sg_regions_merge(regions->crossing, regions->load[point], regions->n_words);
    uint64_t *matrices = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    for (uint32_t i = 0; i < function->n_insns; i++)
        if (sg_is_matrix(&function->insns[i]))
            sg_matrix_visit(&function->insns[i], note_any, matrices);
    for (uint32_t reg = 0; reg < function->n_regs; reg++)
        if ((sg_regions_has(regions->crossing, reg) && regions->rematerialised[reg] == 0) ||
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

static void place_locals(struct sg_arena *arena, const struct sg_ptx_function *function,
                         struct sg_regions *regions)
{
    uint32_t most = 64; /* each lane's begin on as good a place as the variable that needs the best */
    regions->local = SG_NEW_ARRAY(arena, uint32_t, function->n_vars + 1);
    for (uint32_t i = 0; i < function->n_vars; i++) {
        const struct sg_var *var = function->vars[i];
        if (var->space != SG_SPACE_LOCAL)
            continue;
        uint32_t align = var->align < 16 ? 16 : var->align;
        regions->local_size = (regions->local_size + align - 1) & ~(align - 1);
        regions->local[i] = regions->local_size;
        regions->local_size += (uint32_t)var->size;
        most = align > most ? align : most;
    }
    regions->local_size = (regions->local_size + most - 1) & ~(most - 1);
}

/* --- all of it --- */

void sg_regions_compute(struct sg_arena *arena, const struct sg_ptx_function *kernel,
                        struct sg_regions *regions)
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
    regions->rematerialised = sg_rematerialise_find(arena, kernel);
    sg_points_find_steady(arena, &flow, regions);
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
    sg_regions_find_nexts(arena, &flow, regions);
    sg_regions_find_affine(arena, &flow, regions);
    sg_regions_find_kept(arena, kernel, regions);
}
