/*
 * warp_sync.c - where the lanes of a warp have to be kept together for programs that take it for granted.
 *
 * The idiom is volatile shared memory without barriers between the steps of one warp:
 *
 *     volatile int *s = …; s[i] += s[i + 16]; s[i] += s[i + 8]; …
 *
 * On a GPU all lanes load, then all store. So no lane may store before all have loaded, nor load again before all have
 * stored. Stores behind stores are left alone: it would take two lanes that write one place.
 */
#include "softgpu/compiler/warp_sync.h"

#include "softgpu/compiler/flow.h"
#include "softgpu/compiler/regions.h"

/* Since the lanes were last together; WATCHED: one of the accesses was volatile, so now all of them count. */
enum { LOADED = 1, STORED = 2, WATCHED = 4 };

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

/* What has been done since the lanes were together, behind the instruction, which it marks. */
static uint8_t step(struct sg_insn *insn, uint8_t state)
{
    if (sg_is_meeting(insn))
        return 0;
    if (!is_shared(insn))
        return state;
    uint8_t own = insn->form->op == SG_OP_LD ? LOADED : STORED, other = own == LOADED ? STORED : LOADED;
    uint8_t watched = is_volatile(insn) ? WATCHED : state & WATCHED;
    insn->aligns = watched != 0 && (state & other) != 0;
    /* where a guard is false the lanes were not brought together */
    return (uint8_t)(own | watched | (!insn->aligns || insn->guard != 0 ? state : 0));
}

void sg_analyse_warp_sync(struct sg_arena *arena, struct sg_function *function)
{
    struct sg_flow flow = {0};
    bool any = false;
    for (uint32_t i = 0; i < function->n_insns; i++)
        any |= is_volatile(&function->insns[i]) && function->insns[i].form->op == SG_OP_ST;
    if (!any)
        return;
    sg_flow_build(arena, function, &flow);
    uint8_t *in = sg_arena_alloc(arena, flow.n_blocks + 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t block = 0; block < flow.n_blocks; block++) {
            uint8_t state = in[block];
            uint32_t to;
            for (uint32_t i = flow.first[block]; i < flow.first[block + 1]; i++)
                state = step(&function->insns[i], state);
            for (uint32_t i = 0; sg_flow_successor(&flow, block, i, &to); i++)
                if (to != UINT32_MAX && (state & ~in[to]) != 0) {
                    in[to] |= state;
                    changed = true;
                }
        }
    }
}
