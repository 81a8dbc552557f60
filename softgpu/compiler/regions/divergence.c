/*
 * divergence.c - see divergence.h. The tree is built by following the code instruction by instruction from
 * where the region begins; the last that wrote a register on the way is what the register's value comes from,
 * or else what is computed anew or affine (regions.h).
 */
#include "softgpu/compiler/regions/divergence.h"
#include "softgpu/compiler/ir/traits.h"

#include <string.h>

#define NODE_MAX  2000u /* instructions */
#define DEPTH_MAX 64u   /* of what a condition is computed from */

struct finding {
    struct sg_arena *arena;
    const struct sg_flow *flow;
    const struct sg_regions *regions;
    uint32_t point;
    struct sg_tests *tests;
    struct sg_divergence *tree;
    uint32_t n_open; /* nodes that are begun and have no leaf yet */
    uint32_t depth;
    /* the instructions from the region's start to the place in work, and what they are used for */
    uint32_t count;
    uint32_t insns[NODE_MAX];
    struct sg_use_of uses[NODE_MAX];
};

static const struct sg_insn *insn_at(const struct finding *f, uint32_t i)
{
    return &f->flow->function->insns[i];
}

/* --- where values come from --- */

/*
 * An instruction that computes a value, on the way (place) or anew (NULL: it is affine, and step says how).
 */
struct origin {
    const struct sg_insn *insn;
    uint32_t before; /* what its operands are: as they are before this place of the way */
    struct sg_use_of *use;
    int64_t step;
};

struct search {
    uint32_t reg;
    bool written;
};

static void note_write(void *user, uint32_t reg, bool written, bool maybe)
{
    struct search *search = user;
    (void)maybe;
    search->written |= written && reg == search->reg;
}

static bool is_simple(const struct sg_insn *insn, uint32_t reg)
{
    return insn->guard == 0 && insn->call == NULL && SG_MOD(insn, SG_GROUP_CC) == 0 &&
           sg_is_arithmetic(insn->form->op) && insn->operands[0].kind == SG_OPERAND_REG &&
           insn->operands[0].reg == reg;
}

static bool find_origin(struct finding *f, uint32_t reg, uint32_t before, struct origin *origin)
{
    const struct sg_regions *regions = f->regions;
    if (regions->rematerialised[reg] != 0) {
        uint32_t by = regions->rematerialised[reg] - 1;
        *origin = (struct origin){.insn = insn_at(f, by), .before = 0, .use = &f->tree->rematerialised[by]};
        return true;
    }
    for (uint32_t i = before; i-- > 0;) {
        struct search search = {.reg = reg};
        const struct sg_insn *insn = insn_at(f, f->insns[i]);
        sg_visit_registers(insn, note_write, &search);
        if (!search.written)
            continue;
        *origin = (struct origin){.insn = insn, .before = i, .use = &f->uses[i]};
        return is_simple(insn, reg);
    }
    *origin = (struct origin){.step = f->point != 0 ? regions->step[reg] : 0};
    return f->point != 0 && sg_regions_has(regions->affine[f->point], reg);
}

/* --- how they grow from thread to thread --- */

static bool step_of_register(struct finding *f, uint32_t reg, uint32_t before, int64_t *step);

static bool step_of_special(const struct sg_operand *operand, int64_t *step)
{
    *step = operand->reg == SG_SPECIAL_TID && operand->component == 0;
    return operand->reg == SG_SPECIAL_TID || operand->reg == SG_SPECIAL_NTID ||
           operand->reg == SG_SPECIAL_CTAID || operand->reg == SG_SPECIAL_NCTAID;
}

static bool step_of_operand(struct finding *f, const struct sg_operand *operand, uint32_t before,
                            int64_t *step)
{
    *step = 0;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return step_of_register(f, operand->reg, before, step);
    case SG_OPERAND_INTEGER:
    case SG_OPERAND_FLOAT32:
    case SG_OPERAND_FLOAT64:
        return true;
    case SG_OPERAND_SPECIAL:
        return step_of_special(operand, step);
    case SG_OPERAND_VAR:
        return operand->var->space != SG_SPACE_LOCAL;
    default:
        return false;
    }
}

/* A register that grows must be as wide as what is computed in it: nothing is cut off or filled up. */
static bool has_width(const struct finding *f, const struct sg_operand *operand, unsigned bits)
{
    return operand->kind != SG_OPERAND_REG ||
           sg_types[f->flow->function->regs[operand->reg].type].bits == bits;
}

static bool multiply(int64_t a, uint64_t b, int64_t *product)
{
    int64_t factor = (int64_t)b;
    return factor > -(1 << 20) && factor < 1 << 20 && !__builtin_mul_overflow(a, factor, product) &&
           *product > -(INT64_C(1) << 40) && *product < INT64_C(1) << 40;
}

/* steps: of the operands, by place; those of what is not read are 0. */
static bool step_of_product(const struct sg_insn *insn, const int64_t *steps, int64_t *step)
{
    uint32_t stepped = steps[1] != 0 ? 1 : 2;
    const struct sg_operand *factor = &insn->operands[3 - stepped];
    unsigned bits = sg_types[insn->types[0]].bits;
    *step = 0;
    if (steps[1] == 0 && steps[2] == 0)
        return true;
    if ((steps[1] != 0 && steps[2] != 0) || factor->kind != SG_OPERAND_INTEGER ||
        SG_MOD(insn, SG_GROUP_WIDE) == SG_HI)
        return false;
    uint64_t value = bits < 64 && sg_type_is_signed((enum sg_type)insn->types[0])
                         ? (uint64_t)((int64_t)(factor->value << (64 - bits)) >> (64 - bits))
                     : bits < 64 ? factor->value & ((UINT64_C(1) << bits) - 1)
                                 : factor->value;
    return multiply(steps[stepped], value, step);
}

/* What an instruction of integers computes if some of its operands grow; sets the use. */
static bool step_of_growing(struct finding *f, const struct origin *origin, const int64_t *steps,
                            int64_t *step)
{
    const struct sg_insn *insn = origin->insn;
    const struct sg_operand *operands = insn->operands;
    unsigned bits = sg_types[insn->types[0]].bits, from = bits;
    uint8_t stepped = steps[1] != 0 ? 1 : 2;
    enum sg_op op = insn->form->op;
    bool wide = (op == SG_OP_MUL || op == SG_OP_MAD) && SG_MOD(insn, SG_GROUP_WIDE) == SG_WIDE;
    if (SG_MOD(insn, SG_GROUP_SAT) != 0 || sg_type_is_float((enum sg_type)insn->types[0]) ||
        insn->types[0] == SG_PRED)
        return false;
    switch (op) {
    case SG_OP_MOV:
        *step = steps[1];
        break;
    case SG_OP_CVT:
        from = sg_types[insn->types[1]].bits;
        if (sg_type_is_float((enum sg_type)insn->types[1]) || from > bits)
            return false;
        *step = steps[1];
        break;
    case SG_OP_ADD:
        *step = steps[1] + steps[2];
        break;
    case SG_OP_SUB:
        *step = steps[1] - steps[2];
        break;
    case SG_OP_NEG:
        *step = -steps[1];
        break;
    case SG_OP_MUL:
    case SG_OP_MAD:
        if (!step_of_product(insn, steps, step))
            return false;
        *step += op == SG_OP_MAD ? steps[3] : 0;
        break;
    case SG_OP_SHL:
        if (steps[2] != 0 || operands[2].kind != SG_OPERAND_INTEGER || operands[2].value >= 20 ||
            !multiply(steps[1], UINT64_C(1) << operands[2].value, step))
            return false;
        break;
    default:
        return false;
    }
    bool widens = wide || (op == SG_OP_CVT && from < bits);
    bits *= wide ? 2 : 1;
    bool factors_grow = steps[1] != 0 || steps[2] != 0;
    for (uint32_t i = 1; i < insn->n_operands; i++)
        if (steps[i] != 0 && !has_width(f, &operands[i], widens && i < 3 ? (wide ? bits / 2 : from) : bits))
            return false;
    if (bits < 16 || from < 16 || !has_width(f, &operands[0], bits))
        return false;
    if (widens && factors_grow)
        *origin->use = (struct sg_use_of){SG_USE_WIDEN, stepped, steps[stepped]};
    return true;
}

static bool step_of_comparison(struct finding *f, const struct origin *origin, const int64_t *steps)
{
    const struct sg_insn *insn = origin->insn;
    uint8_t stepped = steps[1] != 0 ? 1 : 2;
    enum sg_type type = (enum sg_type)insn->types[0];
    if ((steps[1] != 0 && steps[2] != 0) || (insn->n_operands > 3 && steps[3] != 0))
        return false;
    if (steps[1] == 0 && steps[2] == 0)
        return true;
    if (sg_type_is_float(type) || sg_types[type].bits < 16 || sg_types[type].bits > 64 ||
        !has_width(f, &insn->operands[stepped], sg_types[type].bits))
        return false;
    *origin->use = (struct sg_use_of){SG_USE_COMPARE, stepped, steps[stepped]};
    return true;
}

/* How a register grows. Predicates count as growing by 0; comparisons note what changes them. */
static bool step_of_register(struct finding *f, uint32_t reg, uint32_t before, int64_t *step)
{
    struct origin origin;
    int64_t steps[SG_INSN_OPERANDS] = {0};
    bool grows = false, done = false;
    if (f->depth >= DEPTH_MAX || !find_origin(f, reg, before, &origin))
        return false;
    *step = origin.step;
    if (origin.insn == NULL)
        return true;
    const struct sg_insn *insn = origin.insn;
    f->depth++;
    if (origin.use->kind == SG_USE_NONE)
        origin.use->kind = SG_USE_VALUE;
    done = true;
    if (insn->form->op != SG_OP_LD) { /* of a parameter, that is */
        for (uint32_t i = 1; i < insn->n_operands && done; i++) {
            done = step_of_operand(f, &insn->operands[i], origin.before, &steps[i]);
            grows |= steps[i] != 0;
        }
        if (done && insn->form->op == SG_OP_SETP)
            done = step_of_comparison(f, &origin, steps);
        else if (done && grows)
            done = step_of_growing(f, &origin, steps, step);
    }
    f->depth--;
    return done;
}

/* --- nodes --- */

/* Can the test come again before a point does? Its decision is good for once. */
static bool comes_again(struct finding *f, uint32_t test)
{
    const struct sg_flow *flow = f->flow;
    const struct sg_insn *insns = flow->function->insns;
    const uint32_t *points = f->regions->points;
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
    node->count = f->count - start;
    node->insns = SG_NEW_ARRAY(f->arena, uint32_t, node->count + 1);
    node->uses = SG_NEW_ARRAY(f->arena, struct sg_use_of, node->count + 1);
    memcpy(node->insns, f->insns + start, node->count * sizeof(*node->insns));
    memcpy(node->uses, f->uses + start, node->count * sizeof(*node->uses));
}

/* At the end of a turn: are the registers that can be kept as affine as they should be? */
static void look_at_kept(struct finding *f, struct sg_divergence_leaf *leaf)
{
    const struct sg_regions *regions = f->regions;
    if (leaf->next == 0 || leaf->next == SG_POINT_END || !regions->turns[leaf->next])
        return;
    leaf->keeps = regions->n_kept > 0;
    for (uint32_t i = 0; i < regions->n_kept; i++) {
        uint32_t reg = regions->kept[i];
        int64_t step = 0;
        if (!sg_regions_has(regions->save[leaf->next], reg))
            continue;
        leaf->written |= 1u << i;
        leaf->keeps &= step_of_register(f, reg, f->count, &step) && step == regions->step[reg];
    }
}

/* The node from place `start` on; it ends as a leaf. */
static struct sg_divergence_node *make_leaf(struct finding *f, struct sg_divergence_node *node,
                                            uint32_t start, uint32_t decisions, uint32_t next)
{
    struct sg_divergence *tree = f->tree;
    struct sg_divergence_leaf *leaf = &tree->leaves[tree->n_leaves];
    *leaf = (struct sg_divergence_leaf){.decisions = decisions, .next = next};
    if (f->regions->points != NULL)
        look_at_kept(f, leaf);
    keep_node(f, node, start);
    node->test = UINT32_MAX;
    node->leaf = tree->n_leaves++;
    f->n_open--;
    return node;
}

static bool was_there(const struct finding *f, uint32_t insn)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->insns[i] == insn)
            return true;
    return false;
}

static struct sg_divergence_node *follow(struct finding *f, uint32_t insn, uint32_t decisions);

/* What follows a test on one of its sides: `to` is an instruction, or where it ends is known. */
static struct sg_divergence_node *follow_side(struct finding *f, uint32_t to, uint32_t next,
                                              uint32_t decisions)
{
    uint32_t count = f->count;
    struct sg_divergence_node *node;
    if (next != 0)
        node = make_leaf(f, SG_NEW(f->arena, struct sg_divergence_node), count, decisions, next);
    else
        node = follow(f, to, decisions);
    f->count = count;
    return node;
}

static struct sg_divergence_node *follow(struct finding *f, uint32_t insn, uint32_t decisions)
{
    const struct sg_ptx_function *function = f->flow->function;
    struct sg_divergence_node *node = SG_NEW(f->arena, struct sg_divergence_node);
    uint32_t start = f->count, known = f->regions->next != NULL ? f->regions->next[f->point] : 0;
    for (;;) {
        if (insn >= function->n_insns) {
            return make_leaf(f, node, start, decisions, SG_POINT_END);
        }
        const struct sg_insn *i = &function->insns[insn];
        enum sg_op op = i->form->op;
        uint32_t point = f->regions->points != NULL ? f->regions->points[insn] : 0;
        uint32_t next = point != 0 ? point : op == SG_OP_RET || op == SG_OP_EXIT ? SG_POINT_END : 0;
        bool jump = op == SG_OP_BRA && point == 0;
        if (next != 0 && i->guard == 0) {
            return make_leaf(f, node, start, decisions, next);
        }
        if (f->count == NODE_MAX || op == SG_OP_BRX || op == SG_OP_TRAP || was_there(f, insn))
            break;
        if (jump && i->guard == 0) {
            f->insns[f->count] = insn; /* so that a circle is noticed */
            f->uses[f->count++] = (struct sg_use_of){0};
            insn = function->labels[i->operands[0].value].insn;
            continue;
        }
        if (next == 0 && !jump) {
            f->insns[f->count] = insn++;
            f->uses[f->count++] = (struct sg_use_of){0};
            continue;
        }
        int64_t step;
        uint32_t number;
        if (f->tree->n_leaves + f->n_open >= SG_LEAVES_MAX ||
            !step_of_register(f, i->guard - 1, f->count, &step) || comes_again(f, insn) ||
            (number = number_of_test(f->tests, insn)) == UINT32_MAX)
            break;
        uint32_t holds = decisions | 3u << (2 * number + 2), fails = decisions | 1u << (2 * number + 2);
        uint32_t count = f->count;
        node->test = insn;
        f->n_open++;
        node->taken = follow_side(f, jump ? function->labels[i->operands[0].value].insn : 0, next, holds);
        node->passed = follow_side(f, insn + 1, 0, fails);
        f->count = count;
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
    f->flow = flow;
    f->regions = regions;
    f->point = point;
    f->tests = tests;
    f->tree = tree;
    f->n_open = 1;
    while (point != 0 && regions->points[insn] != point)
        insn++;
    if (point != 0) {
        const struct sg_insn *at = &function->insns[insn];
        if (at->aligns) /* the point is before the access */
            f->insns[f->count++] = insn;
        insn = at->form->op == SG_OP_BRA ? function->labels[at->operands[0].value].insn : insn + 1;
    }
    tree->first = follow(f, insn, 0);
    if (tree->n_leaves < 2 && !tree->leaves[0].keeps)
        tree->first = NULL;
}
