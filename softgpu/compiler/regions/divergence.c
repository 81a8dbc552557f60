/*
 * divergence.c - see divergence.h. The tree is built by following the code instruction by instruction from
 * where the region begins; the last that wrote a register on the way is what the register's value comes from,
 * or else what is computed anew or affine (regions.h).
 */
#include "softgpu/compiler/regions/divergence.h"
#include "softgpu/compiler/regions/steps.h"

#include <string.h>

struct finding {
    struct sg_arena *arena;
    struct sg_way *way; /* from the region's start to the place in work */
    struct sg_tests *tests;
    struct sg_divergence *tree;
    uint32_t n_open; /* nodes that are begun and have no leaf yet */
};

/* --- nodes --- */

/* Can the test come again before a point does? Its decision is good for once. */
static bool comes_again(struct finding *f, uint32_t test)
{
    const struct sg_flow *flow = f->way->flow;
    const struct sg_insn *insns = flow->function->insns;
    const uint32_t *points = f->way->regions->points;
    uint32_t block = flow->block_of[test], insn = test + 1, to;
    bool stops = points != NULL && points[test] != 0 && insns[test].guard == 0;
    struct sg_walk walk;
    sg_walk_init(f->arena, flow, &walk);
    sg_walk_begin(&walk);
    do {
        uint32_t end = flow->first[block + 1];
        for (; insn < end && !stops; insn++) {
            if (insn == test)
                return true;
            stops = points != NULL && points[insn] != 0 && insns[insn].guard == 0;
        }
        for (uint32_t i = 0; !stops && sg_flow_successor(flow, block, i, &to); i++) {
            const struct sg_insn *last = &insns[end - 1];
            bool behind = points != NULL && points[end - 1] != 0 && last->form->op == SG_OP_BRA &&
                          to == sg_flow_label(flow, last->operands[0].value);
            if (to != UINT32_MAX && !behind) /* the point, that is */
                sg_walk_to(&walk, to);
        }
        stops = false;
    } while (sg_walk_next(&walk, &block, &insn));
    return false;
}

static uint32_t number_of_test(struct sg_tests *tests, uint32_t insn)
{
    for (uint32_t i = 0; i < tests->count; i++)
        if (tests->insns[i] == insn)
            return i;
    if (tests->count == SG_TESTS_MAX)
        return UINT32_MAX;
    tests->insns[tests->count] = insn;
    return tests->count++;
}

/* What follows place `start` is the node's. */
static void keep_node(struct finding *f, struct sg_divergence_node *node, uint32_t start)
{
    node->count = f->way->count - start;
    node->insns = SG_NEW_ARRAY(f->arena, uint32_t, node->count + 1);
    node->uses = SG_NEW_ARRAY(f->arena, struct sg_use_of, node->count + 1);
    memcpy(node->insns, f->way->insns + start, node->count * sizeof(*node->insns));
    memcpy(node->uses, f->way->uses + start, node->count * sizeof(*node->uses));
}

/* At the end of a turn: are the registers that can be kept as affine as they should be? */
static void look_at_kept(struct finding *f, struct sg_divergence_leaf *leaf)
{
    const struct sg_regions *regions = f->way->regions;
    if (leaf->next == 0 || leaf->next == SG_POINT_END || !regions->turns[leaf->next])
        return;
    leaf->keeps = regions->n_kept > 0;
    for (uint32_t i = 0; i < regions->n_kept; i++) {
        uint32_t reg = regions->kept[i];
        int64_t step = 0;
        if (!sg_regions_has(regions->save[leaf->next], reg))
            continue;
        leaf->written |= 1u << i;
        leaf->keeps &= sg_way_step(f->way, reg, f->way->count, &step) && step == regions->step[reg];
    }
}

/* The node from place `start` on; it ends as a leaf. */
static struct sg_divergence_node *make_leaf(struct finding *f, struct sg_divergence_node *node,
                                            uint32_t start, uint32_t decisions, uint32_t next)
{
    struct sg_divergence *tree = f->tree;
    struct sg_divergence_leaf *leaf = &tree->leaves[tree->n_leaves];
    *leaf = (struct sg_divergence_leaf){.decisions = decisions, .next = next};
    if (f->way->regions->points != NULL)
        look_at_kept(f, leaf);
    keep_node(f, node, start);
    node->test = UINT32_MAX;
    node->leaf = tree->n_leaves++;
    f->n_open--;
    return node;
}

static bool was_there(const struct finding *f, uint32_t insn)
{
    for (uint32_t i = 0; i < f->way->count; i++)
        if (f->way->insns[i] == insn)
            return true;
    return false;
}

static struct sg_divergence_node *follow(struct finding *f, uint32_t insn, uint32_t decisions);

/* What follows a test on one of its sides: `to` is an instruction, or where it ends is known. */
static struct sg_divergence_node *follow_side(struct finding *f, uint32_t to, uint32_t next,
                                              uint32_t decisions)
{
    uint32_t count = f->way->count;
    struct sg_divergence_node *node;
    if (next != 0)
        node = make_leaf(f, SG_NEW(f->arena, struct sg_divergence_node), count, decisions, next);
    else
        node = follow(f, to, decisions);
    f->way->count = count;
    return node;
}

static struct sg_divergence_node *follow(struct finding *f, uint32_t insn, uint32_t decisions)
{
    const struct sg_ptx_function *function = f->way->flow->function;
    struct sg_divergence_node *node = SG_NEW(f->arena, struct sg_divergence_node);
    uint32_t start = f->way->count,
             known = f->way->regions->next != NULL ? f->way->regions->next[f->way->point] : 0;
    for (;;) {
        if (insn >= function->n_insns) {
            return make_leaf(f, node, start, decisions, SG_POINT_END);
        }
        const struct sg_insn *i = &function->insns[insn];
        enum sg_op op = i->form->op;
        uint32_t point = f->way->regions->points != NULL ? f->way->regions->points[insn] : 0;
        uint32_t next = point != 0 ? point : op == SG_OP_RET || op == SG_OP_EXIT ? SG_POINT_END : 0;
        bool jump = op == SG_OP_BRA && point == 0;
        if (next != 0 && i->guard == 0) {
            return make_leaf(f, node, start, decisions, next);
        }
        if (f->way->count == SG_WAY_MAX || op == SG_OP_BRX || op == SG_OP_TRAP || was_there(f, insn))
            break;
        if (jump && i->guard == 0) {
            f->way->insns[f->way->count] = insn; /* so that a circle is noticed */
            f->way->uses[f->way->count++] = (struct sg_use_of){0};
            insn = function->labels[i->operands[0].value].insn;
            continue;
        }
        if (next == 0 && !jump) {
            f->way->insns[f->way->count] = insn++;
            f->way->uses[f->way->count++] = (struct sg_use_of){0};
            continue;
        }
        int64_t step;
        uint32_t number;
        if (f->tree->n_leaves + f->n_open >= SG_LEAVES_MAX ||
            !sg_way_step(f->way, i->guard - 1, f->way->count, &step) || comes_again(f, insn) ||
            (number = number_of_test(f->tests, insn)) == UINT32_MAX)
            break;
        uint32_t holds = decisions | 3u << (2 * number + 2), fails = decisions | 1u << (2 * number + 2);
        uint32_t count = f->way->count;
        node->test = insn;
        f->n_open++;
        node->taken = follow_side(f, jump ? function->labels[i->operands[0].value].insn : 0, next, holds);
        node->passed = follow_side(f, insn + 1, 0, fails);
        f->way->count = count;
        keep_node(f, node, start); /* with what the tests behind it use of it */
        return node;
    }
    return make_leaf(f, node, start, decisions, known);
}

void sg_divergence_find(struct sg_arena *arena, const struct sg_flow *flow, const struct sg_regions *regions,
                        uint32_t point, struct sg_tests *tests, struct sg_divergence *tree)
{
    const struct sg_ptx_function *function = flow->function;
    struct finding *f = SG_NEW(arena, struct finding);
    uint32_t insn = 0;
    *tree = (struct sg_divergence){.rematerialised =
                                       SG_NEW_ARRAY(arena, struct sg_use_of, function->n_insns + 1)};
    f->arena = arena;
    f->way = SG_NEW(arena, struct sg_way);
    f->way->flow = flow;
    f->way->regions = regions;
    f->way->point = point;
    f->way->rematerialised = tree->rematerialised;
    f->tests = tests;
    f->tree = tree;
    f->n_open = 1;
    while (point != 0 && regions->points[insn] != point)
        insn++;
    if (point != 0) {
        const struct sg_insn *at = &function->insns[insn];
        if (at->aligns) /* the point is before the access */
            f->way->insns[f->way->count++] = insn;
        insn = at->form->op == SG_OP_BRA ? function->labels[at->operands[0].value].insn : insn + 1;
    }
    tree->first = follow(f, insn, 0);
    if (tree->n_leaves < 2 && !tree->leaves[0].keeps)
        tree->first = NULL;
}
