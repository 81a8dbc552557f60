/*
 * affine.c - what is found out of each region when it is known what lives across its ends: where it leads,
 * which of the registers that it loads should be affine along a row, and which of these can be kept once for
 * the whole block.
 */
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/regions/matrices.h"
#include "softgpu/compiler/regions/regions.h"
#include "softgpu/compiler/uniformity/uniformity.h"

#define AFFINE_POINTS_MAX 48u /* points of a kernel whose regions are made twice, for affine registers */

static void note_read(void *user, uint32_t reg, bool written, bool maybe)
{
    uint64_t *set = user;
    (void)maybe;
    if (!written)
        set[reg / 64] |= UINT64_C(1) << reg % 64;
}

/* Adds what the region behind the instruction reads. */
static void find_reads(struct sg_walk *walk, uint32_t insn, uint64_t *reads)
{
    const struct sg_insn *insns = walk->flow->function->insns;
    uint32_t block = walk->flow->block_of[insn];
    bool behind = !insns[insn].aligns, first = true;
    sg_walk_begin(walk);
    do {
        uint32_t end = walk->flow->first[block + 1];
        for (; insn < end && (first || !sg_is_point(&insns[insn])); insn++, first = behind = false)
            if (!behind)
                sg_visit_registers(&insns[insn], note_read, reads);
        if (insn < end) /* what the next point is given */
            sg_visit_registers(&insns[insn], note_read, reads);
        else
            sg_walk_on(walk, block);
    } while (sg_walk_next(walk, &block, &insn));
}

/* The only point that is reached from an instruction, or from behind it, SG_POINT_END, or 0. */
static uint32_t find_next(struct sg_walk *walk, const struct sg_regions *regions, uint32_t insn, bool behind)
{
    const struct sg_insn *insns = walk->flow->function->insns;
    uint32_t next = 0, block = walk->flow->block_of[insn];
    sg_walk_begin(walk);
    do {
        uint32_t end = walk->flow->first[block + 1], found = 0;
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
        if (found == 0 && sg_walk_on(walk, block)) {
            if (next != 0 && next != SG_POINT_END)
                return 0;
            next = SG_POINT_END;
        }
    } while (sg_walk_next(walk, &block, &insn));
    return next;
}

void sg_regions_find_nexts(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions)
{
    struct sg_walk walk;
    sg_walk_init(arena, flow, &walk);
    regions->next = SG_NEW_ARRAY(arena, uint32_t, regions->n_points + 1);
    regions->next[0] = find_next(&walk, regions, 0, false);
    for (uint32_t i = 0; i < flow->function->n_insns; i++)
        if (regions->points[i] != 0)
            regions->next[regions->points[i]] = find_next(&walk, regions, i, true);
}

void sg_regions_find_affine(struct sg_arena *arena, const struct sg_flow *flow, struct sg_regions *regions)
{
    const struct sg_ptx_function *kernel = flow->function;
    const struct sg_uniformity *uniformities = sg_uniformity_compute(arena, kernel, SG_AMONG_ROW);
    struct sg_walk walk;
    sg_walk_init(arena, flow, &walk);
    regions->affine = SG_NEW_ARRAY(arena, uint64_t *, regions->n_points + 1);
    regions->step = SG_NEW_ARRAY(arena, int64_t, kernel->n_regs + 1);
    for (uint32_t reg = 0; reg < kernel->n_regs; reg++)
        regions->step[reg] = uniformities[reg].step;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        uint32_t point = regions->points[i], count = 0;
        if (point == 0)
            continue;
        if (regions->n_points > AFFINE_POINTS_MAX) {
            regions->affine[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
            continue;
        }
        uint64_t *reads = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        regions->affine[point] = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
        find_reads(&walk, sg_matrix_run_end(kernel, i), reads);
        for (uint32_t reg = 0; reg < kernel->n_regs; reg++) {
            enum sg_type type = (enum sg_type)kernel->regs[reg].type;
            bool wanted =
                regions->column[reg] != 0 && sg_regions_has(reads, reg) &&
                sg_regions_has(regions->load[point], reg) && uniformities[reg].kind == SG_UNIFORMITY_AFFINE &&
                (uniformities[reg].step == 0 || !sg_type_is_float(type)) && sg_types[type].bits <= 64;
            if (wanted && count++ < SG_AFFINE_MAX)
                regions->affine[point][reg / 64] |= UINT64_C(1) << reg % 64;
        }
    }
}

/* What is affine at the end of some turn, as far as there is place. */
void sg_regions_find_kept(struct sg_arena *arena, const struct sg_ptx_function *kernel,
                          struct sg_regions *regions)
{
    uint64_t *found = SG_NEW_ARRAY(arena, uint64_t, regions->n_words);
    regions->turns = SG_NEW_ARRAY(arena, uint8_t, regions->n_points + 1);
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        if (!kernel->insns[i].passes)
            continue;
        regions->turns[regions->points[i]] = 1;
        sg_regions_merge(found, regions->affine[regions->points[i]], regions->n_words);
    }
    for (uint32_t reg = 0; reg < kernel->n_regs; reg++) {
        enum sg_type type = (enum sg_type)kernel->regs[reg].type;
        if (sg_regions_has(found, reg) && !sg_type_is_float(type) && type != SG_PRED &&
            sg_types[type].bits >= 16 && regions->n_kept < SG_KEPT_MAX)
            regions->kept[regions->n_kept++] = reg;
    }
}
