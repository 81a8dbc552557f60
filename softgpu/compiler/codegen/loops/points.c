/*
 * points.c - the body of a kernel in loop form: i32 body(thread, params, context, local, stride, point,
 * start, affine, firsts, decisions). With `affine`, registers that the region's check has found to be affine
 * along the row that begins at thread `start` are taken to be so, which lets LLVM see consecutive addresses
 * and conditions that are the same for all. What the row's first thread had in them is in `firsts`, since its
 * turn may have changed it in the context. `decisions` says which tests are known to go which way
 * (divergence.h).
 *
 * It begins at `point` and returns the next point, or SG_POINT_END: a switch at its start goes to the place
 * behind the point. Before it returns it stores the operands of the operation that the threads meet for, and
 * the registers that may have changed; when it goes on it loads the registers, and the operation's results,
 * which the engine left there. Registers that can be computed anew are, before the switch.
 */
#include "softgpu/compiler/codegen/loops/loops.h"
#include "softgpu/compiler/codegen/memory/memory.h"
#include "softgpu/compiler/codegen/threads/threads.h"
#include "softgpu/compiler/ir/traits.h"

#define B gen->builder

/* Columns hold predicates as bytes. */
static void store_slot(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type, LLVMValueRef slot)
{
    LLVMValueRef value = LLVMBuildLoad2(B, type, slot, "");
    if (type == gen->i1)
        value = LLVMBuildZExt(B, value, gen->i8, "");
    sg_gen_store_column(gen, column, value);
}

/* What the row's first thread has, and a step for each from there, if that holds; else the thread's own. */
static void load_affine(struct sg_codegen *gen, uint32_t reg, uint32_t place_among, LLVMTypeRef type,
                        LLVMValueRef slot)
{
    uint32_t column = gen->loops.regions.column[reg];
    int64_t step = gen->loops.regions.step[reg];
    LLVMTypeRef stored = type == gen->i1 ? gen->i8 : type;
    LLVMValueRef affine = LLVMGetParam(gen->self, 7), start = LLVMGetParam(gen->self, 6);
    LLVMValueRef own = sg_gen_column(gen, column, stored), index = sg_gen_const(gen, 64, place_among);
    LLVMValueRef first = LLVMBuildGEP2(B, gen->i64, LLVMGetParam(gen->self, 8), &index, 1, "");
    LLVMValueRef value = LLVMBuildLoad2(B, stored, sg_gen_select(gen, affine, first, own), "");
    LLVMSetMetadata(value, gen->access_group_kind, gen->access_group);
    if (type == gen->i1) {
        value = LLVMBuildTrunc(B, value, type, "");
    } else if (step != 0) {
        LLVMValueRef place = LLVMBuildSub(B, sg_gen_linear(gen), start, "");
        place = sg_gen_select(gen, affine, place, sg_gen_const(gen, 32, 0));
        LLVMTypeRef whole = type == gen->guest ? gen->i64 : type;
        place = LLVMBuildIntCast2(B, place, whole, 0, "");
        place = LLVMBuildMul(B, place, LLVMConstInt(whole, (uint64_t)step, 1), "");
        value = type == gen->guest ? LLVMBuildGEP2(B, gen->i8, value, &place, 1, "")
                                   : LLVMBuildAdd(B, value, place, "");
    }
    LLVMBuildStore(B, value, slot);
}

static void load_slot(struct sg_codegen *gen, uint32_t column, LLVMTypeRef type, LLVMValueRef slot)
{
    LLVMValueRef value = sg_gen_load_column(gen, column, type == gen->i1 ? gen->i8 : type);
    if (type == gen->i1)
        value = LLVMBuildTrunc(B, value, type, "");
    LLVMBuildStore(B, value, slot);
}

void sg_gen_points_begin(struct sg_codegen *gen)
{
    uint8_t *done = SG_NEW_ARRAY(gen->arena, uint8_t, gen->function->n_insns + 1);
    gen->loops.points = SG_NEW_ARRAY(gen->arena, struct sg_point, gen->loops.regions.n_points + 1);
    for (uint32_t reg = 0; reg < gen->function->n_regs; reg++)
        if (sg_regions_has(gen->loops.regions.crossing, reg))
            sg_gen_rematerialise(gen, done, reg);
    LLVMBasicBlockRef begin = sg_gen_block(gen, "begin");
    gen->loops.dispatch = LLVMBuildSwitch(B, LLVMGetParam(gen->self, 5), begin, gen->loops.regions.n_points);
    LLVMPositionBuilderAtEnd(B, begin);
}

/* --- a point --- */

static LLVMTypeRef type_of_register(struct sg_codegen *gen, uint32_t reg)
{
    const struct sg_reg *r = &gen->function->regs[reg];
    return r->pointer ? gen->guest : sg_gen_type(gen, (enum sg_type)r->type);
}

void sg_gen_load_affine(struct sg_codegen *gen, uint32_t point)
{
    uint32_t count = 0;
    for (uint32_t reg = 0; point != 0 && reg < gen->function->n_regs; reg++)
        if (sg_regions_has(gen->loops.regions.affine[point], reg))
            load_affine(gen, reg, count++, type_of_register(gen, reg), gen->registers[reg]);
}

static void operand(struct sg_codegen *gen, struct sg_point *point, uint8_t flag, uint32_t *constant,
                    uint32_t column, LLVMValueRef value)
{
    if (LLVMIsAConstantInt(value) != NULL) {
        *constant = (uint32_t)LLVMConstIntGetZExtValue(value);
        point->constant |= flag;
    } else {
        sg_gen_store_column(gen, column, value);
    }
}

/* In halves: threads that are at other points have values of 32 bits in the same column. */
static void store_value(struct sg_codegen *gen, LLVMValueRef value)
{
    if (LLVMTypeOf(value) == gen->i64) {
        LLVMValueRef high = LLVMBuildLShr(B, value, sg_gen_const(gen, 64, 32), "");
        sg_gen_store_column(gen, SG_LANES_VALUE_HIGH, LLVMBuildTrunc(B, high, gen->i32, ""));
        value = LLVMBuildTrunc(B, value, gen->i32, "");
    }
    sg_gen_store_column(gen, SG_LANES_VALUE, value);
}

/* Unless the frame keeps them once for the whole block: bit 0 of the decisions. */
static void store_kept(struct sg_codegen *gen, uint32_t number)
{
    const struct sg_regions *regions = &gen->loops.regions;
    LLVMBasicBlockRef each = NULL, after = NULL;
    for (uint32_t i = 0; regions->turns[number] && i < regions->n_kept; i++) {
        uint32_t reg = regions->kept[i];
        if (!sg_regions_has(regions->save[number], reg))
            continue;
        if (each == NULL) {
            each = sg_gen_block(gen, "");
            after = sg_gen_block(gen, "");
            LLVMValueRef once = LLVMBuildTrunc(B, LLVMGetParam(gen->self, 9), gen->i1, "");
            LLVMBuildCondBr(B, once, after, each);
            LLVMPositionBuilderAtEnd(B, each);
        }
        store_slot(gen, regions->column[reg], type_of_register(gen, reg), gen->registers[reg]);
    }
    if (each != NULL) {
        LLVMBuildBr(B, after);
        LLVMPositionBuilderAtEnd(B, after);
    }
}

static bool can_be_kept(const struct sg_regions *regions, uint32_t number, uint32_t reg)
{
    bool found = false;
    for (uint32_t i = 0; i < regions->n_kept; i++)
        found |= regions->kept[i] == reg;
    return found && regions->turns[number];
}

/* Stores what the point needs, returns, and goes on behind it. Operands that it does not have are NULL. */
static void meet(struct sg_codegen *gen, enum sg_point_kind kind, uint32_t mode, LLVMValueRef value,
                 LLVMValueRef a, LLVMValueRef b, LLVMValueRef mask)
{
    const struct sg_regions *regions = &gen->loops.regions;
    uint32_t number = regions->points[gen->insn - gen->function->insns];
    struct sg_point *point = &gen->loops.points[number];
    point->kind = (uint8_t)kind;
    point->mode = (uint8_t)mode;
    if (value != NULL)
        store_value(gen, value);
    if (a != NULL)
        operand(gen, point, SG_POINT_A, &point->a, SG_LANES_A, a);
    if (b != NULL)
        operand(gen, point, SG_POINT_B, &point->b, SG_LANES_B, b);
    if (mask != NULL)
        operand(gen, point, SG_POINT_MASK, &point->mask, SG_LANES_MASK, mask);
    if (regions->steady[number])
        point->constant |= SG_POINT_STEADY;
    for (uint32_t reg = 0; reg < gen->function->n_regs; reg++)
        if (sg_regions_has(regions->save[number], reg) && regions->column[reg] != 0 &&
            !can_be_kept(regions, number, reg))
            store_slot(gen, regions->column[reg], type_of_register(gen, reg), gen->registers[reg]);
    store_kept(gen, number);
    if (regions->carry != 0)
        store_slot(gen, regions->carry, gen->i1, gen->carry);
    sg_gen_report_misaligned(gen);
    LLVMBuildRet(B, sg_gen_const(gen, 32, number));

    LLVMBasicBlockRef resume = sg_gen_block(gen, "");
    LLVMAddCase(gen->loops.dispatch, sg_gen_const(gen, 32, number), resume);
    LLVMPositionBuilderAtEnd(B, resume);
    sg_gen_load_affine(gen, number);
    for (uint32_t reg = 0; reg < gen->function->n_regs; reg++)
        if (!sg_regions_has(regions->affine[number], reg) && sg_regions_has(regions->load[number], reg) &&
            regions->column[reg] != 0)
            load_slot(gen, regions->column[reg], type_of_register(gen, reg), gen->registers[reg]);
    if (regions->carry != 0)
        load_slot(gen, regions->carry, gen->i1, gen->carry);
}

static LLVMValueRef result(struct sg_codegen *gen)
{
    return sg_gen_load_column(gen, SG_LANES_RESULT, gen->i32);
}

static LLVMValueRef is_set(struct sg_codegen *gen, LLVMValueRef word)
{
    return sg_gen_compare(gen, LLVMIntNE, word, sg_gen_const(gen, 32, 0));
}

/* A result and, if it is wanted, a predicate. */
static void write_pair(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    sg_gen_write(gen, &insn->operands[0], SG_B32, result(gen));
    if (insn->operands[insn->n_operands].kind == SG_OPERAND_REG)
        sg_gen_write(gen, &insn->operands[insn->n_operands], SG_PRED,
                     is_set(gen, sg_gen_load_column(gen, SG_LANES_PREDICATE, gen->i32)));
}

/* Compilers move numbers into registers of their own; what meets at the point wants the number. */
static LLVMValueRef u32_operand(struct sg_codegen *gen, uint32_t i)
{
    const struct sg_operand *operand = &gen->insn->operands[i];
    if (operand->kind == SG_OPERAND_REG && gen->loops.regions.rematerialised[operand->reg] != 0) {
        const struct sg_insn *by = &gen->function->insns[gen->loops.regions.rematerialised[operand->reg] - 1];
        if (by->form->op == SG_OP_MOV && by->operands[1].kind == SG_OPERAND_INTEGER)
            operand = &by->operands[1];
    }
    return sg_gen_read(gen, operand, SG_U32);
}

static void barrier(struct sg_codegen *gen)
{
    const struct sg_insn *insn = gen->insn;
    uint8_t kind = SG_MOD(insn, SG_GROUP_BAR);
    LLVMValueRef zero = sg_gen_const(gen, 32, 0);
    if (kind != SG_BAR_RED) {
        meet(gen, kind == SG_BAR_SYNC ? SG_POINT_BARRIER : SG_POINT_BARRIER_ARRIVE, 0, NULL,
             u32_operand(gen, 0), insn->n_operands > 1 ? u32_operand(gen, 1) : zero, NULL);
        return;
    }
    bool counted = insn->n_operands == 4;
    meet(gen, SG_POINT_BARRIER_RED, SG_MOD(insn, SG_GROUP_REDUCE) - 1u,
         sg_gen_operand_predicate(gen, counted ? 3 : 2), u32_operand(gen, 1),
         counted ? u32_operand(gen, 2) : zero, NULL);
    LLVMValueRef value = result(gen);
    sg_gen_result(gen, insn->types[0] == SG_PRED ? is_set(gen, value) : value);
}

static void match(struct sg_codegen *gen)
{
    LLVMValueRef value = sg_gen_operand(gen, 1);
    bool all = SG_MOD(gen->insn, SG_GROUP_MATCH) == SG_MATCH_ALL;
    if (LLVMTypeOf(value) != gen->i64)
        value = LLVMBuildZExt(B, value, gen->i64, "");
    meet(gen, all ? SG_POINT_MATCH_ALL : SG_POINT_MATCH_ANY, 0, value, NULL, NULL, u32_operand(gen, 2));
    if (all)
        write_pair(gen);
    else
        sg_gen_write(gen, &gen->insn->operands[0], SG_B32, result(gen));
}

static void elect(struct sg_codegen *gen)
{
    meet(gen, SG_POINT_VOTE, SG_VOTE_BALLOT - 1u, sg_gen_const(gen, 32, 1), NULL, NULL, u32_operand(gen, 1));
    sg_gen_elected(gen, result(gen));
}

static void vote(struct sg_codegen *gen)
{
    uint8_t mode = SG_MOD(gen->insn, SG_GROUP_VOTE);
    meet(gen, SG_POINT_VOTE, mode - 1u, sg_gen_operand_predicate(gen, 1), NULL, NULL, u32_operand(gen, 2));
    LLVMValueRef value = result(gen);
    sg_gen_result(gen, mode == SG_VOTE_BALLOT ? value : is_set(gen, value));
}

static void matrices(struct sg_codegen *gen)
{
    uint32_t first = gen->loops.n_matrices;
    sg_gen_matrix_run(gen);
    meet(gen, SG_POINT_MATRIX, 0, NULL, sg_gen_const(gen, 32, first),
         sg_gen_const(gen, 32, gen->loops.n_matrices - first), sg_gen_const(gen, 32, UINT32_MAX));
}

/* Back to the beginning of a loop: for all together, or as one of those that yield to others. */
static void jump_back(struct sg_codegen *gen)
{
    if (gen->insn->yields)
        meet(gen, SG_POINT_YIELD, 0, NULL, NULL, NULL, NULL);
    else
        meet(gen, SG_POINT_PASS, SG_PASS_TURN, NULL, NULL, NULL, NULL);
    LLVMBuildBr(B, gen->labels[gen->insn->operands[0].value]);
    LLVMPositionBuilderAtEnd(B, sg_gen_block(gen, ""));
}

/* Whether that is all of the instruction: of others only threads meet here. */
static bool emit(struct sg_codegen *gen)
{
    switch (gen->insn->form->op) {
    case SG_OP_LD:
    case SG_OP_ST:
    case SG_OP_FENCE:
        meet(gen, SG_POINT_PASS, 0, NULL, NULL, NULL, NULL);
        return false;           /* and now the access, or the fence */
    case SG_OP_MBARRIER_WAIT: { /* it looks again behind the point */
        LLVMValueRef done = LLVMBuildZExt(B, sg_gen_mbarrier_test(gen), gen->i32, "");
        meet(gen, SG_POINT_YIELD, SG_YIELD_UNLESS, done, NULL, NULL, NULL);
        return false;
    }
    case SG_OP_NANOSLEEP:
        meet(gen, SG_POINT_YIELD, 0, NULL, NULL, NULL, NULL);
        return true;
    case SG_OP_BRA:
        jump_back(gen);
        return true;
    case SG_OP_BAR:
        barrier(gen);
        return true;
    case SG_OP_BAR_WARP:
        meet(gen, SG_POINT_WARP_SYNC, 0, NULL, NULL, NULL, u32_operand(gen, 0));
        return true;
    case SG_OP_ELECT:
        elect(gen);
        return true;
    case SG_OP_SHFL:
        meet(gen, SG_POINT_SHFL, SG_MOD(gen->insn, SG_GROUP_SHFL) - 1u, sg_gen_operand(gen, 1),
             u32_operand(gen, 2), u32_operand(gen, 3), u32_operand(gen, 4));
        write_pair(gen);
        return true;
    case SG_OP_VOTE:
        vote(gen);
        return true;
    case SG_OP_MATCH:
        match(gen);
        return true;
    case SG_OP_REDUX:
        meet(gen, SG_POINT_REDUX, sg_gen_redux(gen), sg_gen_redux_operand(gen), NULL, NULL,
             u32_operand(gen, 2));
        sg_gen_result(gen, sg_gen_redux_result(gen, result(gen)));
        return true;
    case SG_OP_ACTIVEMASK:
        meet(gen, SG_POINT_ACTIVEMASK, 0, NULL, NULL, NULL, NULL);
        sg_gen_result(gen, result(gen));
        return true;
    default:
        if (!sg_is_matrix(gen->insn))
            return false;
        matrices(gen);
        return true;
    }
}

bool sg_emit_point(struct sg_codegen *gen)
{
    if (!sg_gen_in_loops(gen))
        return false;
    if (gen->insn->joins) /* done with the first of its run */
        return true;
    return gen->loops.regions.points[gen->insn - gen->function->insns] != 0 && emit(gen);
}
