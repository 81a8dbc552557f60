/*
 * lockstep.c - see lockstep.h. Courses are found by going over the instructions until nothing changes any more; a
 * register with several writers has a course if they all agree on it.
 */
#include "softgpu/compiler/lockstep.h"
#include "softgpu/compiler/flow.h"
#include "softgpu/compiler/matrices.h"
#include "softgpu/compiler/regions.h"

#define STEP_NEAR 32 /* bytes from one thread's access to the next one's that still share cache lines */

typedef struct sg_course course;

static const course rough = {.kind = SG_COURSE_ROUGH}, uniform = {.kind = SG_COURSE_EVEN};

static course even(int64_t step)
{
    return (course){.kind = SG_COURSE_EVEN, .step = step};
}

static bool is_uniform(course c)
{
    return c.kind == SG_COURSE_EVEN && c.step == 0;
}

static course of_special(const struct sg_operand *operand)
{
    switch (operand->reg) {
    case SG_SPECIAL_TID:
        return even(operand->component == 0 ? 1 : 0);
    case SG_SPECIAL_LANEID:
    case SG_SPECIAL_WARPID:
    case SG_SPECIAL_LANEMASK_EQ:
    case SG_SPECIAL_LANEMASK_LE:
    case SG_SPECIAL_LANEMASK_LT:
    case SG_SPECIAL_LANEMASK_GE:
    case SG_SPECIAL_LANEMASK_GT:
    case SG_SPECIAL_CLOCK:
    case SG_SPECIAL_CLOCK_HI:
    case SG_SPECIAL_CLOCK64:
    case SG_SPECIAL_GLOBALTIMER:
    case SG_SPECIAL_GLOBALTIMER_LO:
    case SG_SPECIAL_GLOBALTIMER_HI:
        return rough;
    default:
        return uniform;
    }
}

static course of_operand(const course *courses, const struct sg_operand *operand)
{
    course all = uniform;
    switch (operand->kind) {
    case SG_OPERAND_REG:
        return courses[operand->reg];
    case SG_OPERAND_SPECIAL:
        return of_special(operand);
    case SG_OPERAND_VAR:
        return operand->var->space == SG_SPACE_LOCAL ? rough : uniform;
    case SG_OPERAND_VECTOR:
        for (uint32_t i = 0; i < operand->count; i++) {
            course item = of_operand(courses, &operand->items[i]);
            if (item.kind == SG_COURSE_UNKNOWN || !is_uniform(item))
                all = item.kind == SG_COURSE_UNKNOWN ? item : rough;
        }
        return all;
    default:
        return uniform;
    }
}

static course product(const struct sg_operand *a, course ca, const struct sg_operand *b, course cb)
{
    if (is_uniform(ca) && is_uniform(cb))
        return uniform;
    if (a->kind == SG_OPERAND_INTEGER && cb.kind == SG_COURSE_EVEN)
        return even((int64_t)((uint64_t)cb.step * a->value));
    if (b->kind == SG_OPERAND_INTEGER && ca.kind == SG_COURSE_EVEN)
        return even((int64_t)((uint64_t)ca.step * b->value));
    return rough;
}

static course sum(course a, course b, int sign)
{
    if (a.kind != SG_COURSE_EVEN || b.kind != SG_COURSE_EVEN)
        return rough;
    return even((int64_t)((uint64_t)a.step + (uint64_t)sign * (uint64_t)b.step));
}

static bool is_float(enum sg_type type)
{
    return sg_type_is_float(type);
}

static bool is_jump_register_op(enum sg_op op)
{
    return op == SG_OP_SETP || op == SG_OP_AND || op == SG_OP_OR || op == SG_OP_XOR || op == SG_OP_NOT;
}

/* Threads differ in it at few places of a row, if at all. */
static bool is_coarse(course c)
{
    return is_uniform(c) || c.linear;
}

/* Even values in steps that most likely are larger than a warp: quotients of a grid's threads, numbers of warps. */
static bool makes_coarse(const struct sg_insn *insn, const course *in)
{
    const struct sg_operand *by = &insn->operands[2];
    if ((in[1].kind != SG_COURSE_EVEN && !in[1].linear) || !is_uniform(in[2]))
        return false;
    if (insn->form->op == SG_OP_DIV)
        return by->kind != SG_OPERAND_INTEGER || by->value >= 32;
    return insn->form->op == SG_OP_SHR && by->kind == SG_OPERAND_INTEGER && by->value >= 5;
}

/* The course of what the instruction writes. */
static course of_result(const course *courses, const struct sg_insn *insn)
{
    course in[SG_INSN_OPERANDS] = {{0}};
    bool all_uniform = true, all_linear = true, all_coarse = true;
    enum sg_op op = insn->form->op;
    if (insn->call != NULL || insn->form->n_operands == 0 || sg_is_matrix(insn))
        return rough;
    for (uint32_t i = 0; i < insn->n_operands; i++) {
        if ((insn->form->operand[i].flags & SG_OPF_DEST) != 0)
            continue;
        in[i] = of_operand(courses, &insn->operands[i]);
        if (in[i].kind == SG_COURSE_UNKNOWN)
            return in[i];
        all_uniform &= is_uniform(in[i]);
        all_linear &= in[i].kind == SG_COURSE_EVEN || in[i].linear;
        all_coarse &= is_coarse(in[i]);
    }
    const struct sg_operand *operands = insn->operands;
    if (!all_uniform && ((all_coarse && (sg_is_arithmetic(op) || op == SG_OP_DIV || op == SG_OP_REM)) ||
                         makes_coarse(insn, in)))
        return (course){.kind = SG_COURSE_ROUGH, .linear = true};
    switch (op) {
    case SG_OP_MOV:
    case SG_OP_CVTA:
        return in[1];
    case SG_OP_CVT:
        return all_uniform                                                                        ? uniform
               : is_float((enum sg_type)insn->types[0]) || is_float((enum sg_type)insn->types[1]) ? rough
                                                                                                  : in[1];
    case SG_OP_ADD:
        return sum(in[1], in[2], 1);
    case SG_OP_SUB:
        return sum(in[1], in[2], -1);
    case SG_OP_MUL:
        return SG_MOD(insn, SG_GROUP_WIDE) == SG_HI && !all_uniform
                   ? rough
                   : product(&operands[1], in[1], &operands[2], in[2]);
    case SG_OP_MAD:
        return SG_MOD(insn, SG_GROUP_WIDE) == SG_HI && !all_uniform
                   ? rough
                   : sum(product(&operands[1], in[1], &operands[2], in[2]), in[3], 1);
    case SG_OP_NEG:
        return sum(uniform, in[1], -1);
    case SG_OP_SHL:
        if (operands[2].kind == SG_OPERAND_INTEGER && operands[2].value < 63 && in[1].kind == SG_COURSE_EVEN)
            return even((int64_t)((uint64_t)in[1].step << operands[2].value));
        break;
    case SG_OP_LD:
    case SG_OP_ATOM:
    case SG_OP_SHFL:
    case SG_OP_VOTE:
    case SG_OP_MATCH:
    case SG_OP_REDUX:
    case SG_OP_ACTIVEMASK:
    case SG_OP_ELECT:
        return op == SG_OP_LD && all_uniform && SG_MOD(insn, SG_GROUP_SPACE) != SG_MOD_LOCAL ? uniform
                                                                                             : rough;
    default:
        break;
    }
    if (all_uniform)
        return uniform;
    return (course){.kind = SG_COURSE_ROUGH, .linear = is_jump_register_op(op) && all_linear};
}

/*
 * What is more regular in a warp than in a row: its threads differ in the lowest five bits of %tid.x alone, so that tid / 32
 * is the same for all and tid & 31 is even. (Where rows are no multiples of 32 threads it is another guess.)
 */
static bool of_warp(const course *courses, const struct sg_insn *insn, course *result)
{
    if (insn->call != NULL || insn->n_operands < 2)
        return false;
    const struct sg_operand *in = &insn->operands[1];
    if (insn->form->op == SG_OP_MOV && in->kind == SG_OPERAND_SPECIAL &&
        (in->reg == SG_SPECIAL_LANEID || in->reg == SG_SPECIAL_WARPID)) {
        *result = even(in->reg == SG_SPECIAL_LANEID);
        return true;
    }
    if (insn->n_operands < 3 || in->kind != SG_OPERAND_REG || in[1].kind != SG_OPERAND_INTEGER)
        return false;
    const course from = courses[in->reg];
    const uint64_t by = in[1].value, step = (uint64_t)from.step;
    *result = uniform;
    if (insn->form->op == SG_OP_AND && from.kind == SG_COURSE_ROUGH && from.bits != 0)
        return (by & from.bits) == 0;
    if (from.kind != SG_COURSE_EVEN || step == 0 || step > 1u << 16 || (step & (step - 1)) != 0)
        return false;
    const uint64_t lanes = 31 * step; /* the bits in which they differ */
    switch (insn->form->op) {
    case SG_OP_SHR:
        if (by < 64 && lanes >> by != 0)
            *result = (course){.kind = SG_COURSE_ROUGH, .bits = lanes >> by};
        return by < 64;
    case SG_OP_DIV:
        return !is_float((enum sg_type)insn->types[0]) && by != 0 && by % (32 * step) == 0;
    case SG_OP_REM:
        *result = from;
        return by != 0 && by % (32 * step) == 0;
    case SG_OP_AND:
        if ((by & lanes) != 0)
            *result = from;
        return (by & lanes) == 0 || (by & lanes) == lanes;
    default:
        return false;
    }
}

struct join {
    course *courses;
    course result;
    bool changed;
};

static void join(void *user, uint32_t reg, bool written, bool maybe)
{
    struct join *j = user;
    course *to = &j->courses[reg], before = *to;
    (void)maybe;
    if (!written || j->result.kind == SG_COURSE_UNKNOWN)
        return;
    if (to->kind == SG_COURSE_UNKNOWN) {
        *to = j->result;
    } else if (to->kind != j->result.kind || to->step != j->result.step) {
        *to = rough;
    } else {
        to->linear &= j->result.linear;
        to->bits = to->bits == j->result.bits ? to->bits : 0;
    }
    j->changed |= to->kind != before.kind || to->step != before.step || to->linear != before.linear ||
                  to->bits != before.bits;
}

struct sg_course *sg_courses_compute(struct sg_arena *arena, const struct sg_function *function,
                                     enum sg_course_among among)
{
    struct join j = {.courses = SG_NEW_ARRAY(arena, course, function->n_regs + 1), .changed = true};
    while (j.changed) {
        j.changed = false;
        for (uint32_t i = 0; i < function->n_insns; i++) {
            const struct sg_insn *insn = &function->insns[i];
            if (among != SG_AMONG_WARP || !of_warp(j.courses, insn, &j.result))
                j.result = of_result(j.courses, insn);
            if (insn->guard != 0 && j.result.kind != SG_COURSE_UNKNOWN &&
                !is_uniform(j.courses[insn->guard - 1]))
                j.result = rough;
            sg_visit_registers(insn, join, &j);
        }
    }
    return j.courses;
}

/* --- loops --- */

/* The jump back that ends a loop; its instructions are those between label and jump. */
struct loop {
    uint32_t first, jump;
};

static bool jumps_back(const struct sg_function *function, uint32_t i, struct loop *loop)
{
    const struct sg_insn *insn = &function->insns[i];
    if (insn->form->op != SG_OP_BRA)
        return false;
    *loop = (struct loop){function->labels[insn->operands[0].value].insn, i};
    return loop->first <= i;
}

static bool leaves_rarely(const course *courses, const struct sg_insn *insn)
{
    const course *guard = insn->guard == 0 ? &uniform : &courses[insn->guard - 1];
    return guard->kind == SG_COURSE_EVEN || guard->linear;
}

/* Counts an access to memory for or against taking turns together. */
static void judge_access(const course *courses, const struct sg_insn *insn, uint32_t *near, uint32_t *far)
{
    enum sg_op op = insn->form->op;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    if ((op != SG_OP_LD && op != SG_OP_ST && op != SG_OP_ATOM && op != SG_OP_RED) || space == SG_MOD_PARAM ||
        space == SG_MOD_SHARED || space == SG_MOD_LOCAL)
        return;
    course at = of_operand(courses, &insn->operands[op == SG_OP_LD || op == SG_OP_ATOM ? 1 : 0]);
    bool is_near = at.kind == SG_COURSE_EVEN && at.step >= -STEP_NEAR && at.step <= STEP_NEAR;
    ++*(is_near ? near : far);
}

/* Does a condition that divides rows decide whether a thread comes to the loop at all? */
static bool is_rarely_entered(const struct sg_function *function, const course *courses,
                              const struct loop *loop)
{
    for (uint32_t i = 0; i < loop->first; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (insn->form->op == SG_OP_BRX)
            return true;
        if (insn->form->op == SG_OP_BRA && function->labels[insn->operands[0].value].insn > loop->first &&
            !leaves_rarely(courses, insn))
            return true;
    }
    return false;
}

static bool worth_it(const struct sg_function *function, const course *courses, const struct loop *loop)
{
    uint32_t near = 0, far = 0;
    if (is_rarely_entered(function, courses, loop))
        return false;
    for (uint32_t i = loop->first; i <= loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        struct loop inner;
        if (sg_is_meeting(insn) || insn->yields || insn->call != NULL || insn->waits_in_loop ||
            insn->form->op == SG_OP_BRX)
            return false; /* it is cut anyway, or cannot be */
        if (jumps_back(function, i, &inner) && i != loop->jump && inner.first >= loop->first && !insn->passes)
            return false;
        bool leaves = i == loop->jump || insn->form->op == SG_OP_EXIT || insn->form->op == SG_OP_RET;
        if (insn->form->op == SG_OP_BRA && i != loop->jump) {
            uint32_t to = function->labels[insn->operands[0].value].insn;
            leaves = to < loop->first || to > loop->jump;
        }
        if (leaves && !leaves_rarely(courses, insn))
            return false;
        judge_access(courses, insn, &near, &far);
    }
    return near >= far;
}

static bool has_meeting(const struct sg_function *function, const struct loop *loop)
{
    for (uint32_t i = loop->first; i <= loop->jump; i++)
        if (sg_is_meeting(&function->insns[i]) || function->insns[i].yields)
            return true;
    return false;
}

/* Does each turn of the loop begin with a point at which threads wait? */
static bool begins_by_yielding(const struct sg_function *function, const struct loop *loop)
{
    for (uint32_t i = loop->first; i < loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        enum sg_op op = insn->form->op;
        if (insn->yields && insn->guard == 0)
            return true;
        if (op == SG_OP_BRA || op == SG_OP_BRX || op == SG_OP_RET || op == SG_OP_EXIT)
            return false;
    }
    return false;
}

/*
 * Does the loop look at the time? Threads that wait for it wait at the same time if they take turns, and one after the
 * other if they do not.
 */
static bool watches_time(const struct sg_function *function, const struct loop *loop)
{
    bool watches = false;
    if (begins_by_yielding(function, loop))
        return false; /* the others have their turns meanwhile */
    for (uint32_t i = loop->first; i <= loop->jump; i++) {
        const struct sg_insn *insn = &function->insns[i];
        if (insn->call != NULL || insn->waits_in_loop || insn->form->op == SG_OP_BRX)
            return false;
        for (uint32_t n = 0; n < insn->n_operands; n++)
            watches |= insn->operands[n].kind == SG_OPERAND_SPECIAL &&
                       insn->operands[n].reg >= SG_SPECIAL_CLOCK &&
                       insn->operands[n].reg <= SG_SPECIAL_GLOBALTIMER_HI;
    }
    return watches;
}

void sg_analyse_lockstep(struct sg_arena *arena, struct sg_function *kernel)
{
    struct loop loop;
    bool any = false;
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        any |= jumps_back(kernel, i, &loop);
    if (!any)
        return;
    const course *courses = sg_courses_compute(arena, kernel, SG_AMONG_ROW);
    /* inner loops end before those around them */
    for (uint32_t i = 0; i < kernel->n_insns; i++)
        if (jumps_back(kernel, i, &loop))
            kernel->insns[i].passes = watches_time(kernel, &loop) || worth_it(kernel, courses, &loop);
    /* a loop that threads go through one by one keeps no others from which they would come together */
    for (uint32_t i = kernel->n_insns; i-- > 0;) {
        if (!jumps_back(kernel, i, &loop) || kernel->insns[i].passes || has_meeting(kernel, &loop))
            continue;
        for (uint32_t n = loop.first; n < i; n++) {
            struct loop inner;
            kernel->insns[n].passes &= jumps_back(kernel, n, &inner) && watches_time(kernel, &inner);
        }
    }
}
